"""PPO end to end on a CPU: Paddock against Stable-Baselines3, a plain single-file PPO, and PufferLib's trainer.

    python scripts/bench/ppo.py [--quick] [--json PATH] [--rows NAME ...] [--pufferlib PYTHON]

cartpole  CleanRL's classic recipe for everyone: environment steps/s
walker    RL-Zoo's recipe for BipedalWalker for everyone, and once more with Paddock's own walker
own       CartPole in large batches, each with settings of his choice; PufferLib's published rate where it is missing
goal      seconds until 20 episodes have a mean return of 475 on CartPole
spaces    structured observations that were made beforehand, as PufferLib's own test has them: rows, beside Gymnasium's
          FlattenObservation around the environment, and PufferLib's emulation
minigrid  the same with MiniGrid's

In the first two rows everyone has the same network, environment, numbers of environments, steps, epochs and
minibatches. What leaves these as they are is chosen from a small grid by a first try, and printed: threads, and for
Paddock where environments step and whether a thread plays ahead. Each side is a process of its own (scripts/peers/)
that waits for its turn; whoever is not installed is left out, and said so.
"""

import argparse
import contextlib
import functools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from scripts.bench.harness import Report, command_line, describe_machine, finish, list_versions, versions  # noqa: E402

PEERS = Path(__file__).with_name("peers")
OURS = "paddock_ppo.py"  # in it
LOADS = {"PYTHONPATH": str(Path(__file__).with_name("loads"))}  # where the module `premade` lies
PACKAGES = ("paddock", "torch", "numpy", "gymnasium", "stable-baselines3")
PUBLISHED = 46_000, 55_000  # PufferLib 3's trainer on Gymnasium's CartPole on two cores (specs/vector.md), steps/s
GOAL, GOAL_S, GOAL_EVERY, GOAL_EPISODES = 475.0, 10.0, 5120, 20
SPLIT = {"env": "environment", "policy": "policy", "learn": "learning", "wait": "waiting"}

CLASSIC: Report = {
    "env": "CartPole-v1",
    "num_envs": 4,
    "num_steps": 128,
    "minibatch_size": 128,
    "epochs": 4,
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_coef": 0.2,
    "value_clip_coef": 0.2,
    "entropy_coef": 0.01,
    "value_coef": 0.5,
    "max_grad_norm": 0.5,
    "normalize": False,
}
WALKER = CLASSIC | {
    "env": "BipedalWalker-v3",
    "num_envs": 32,
    "num_steps": 256,  # of 2,048: an update in seconds, and the same work for a step
    "minibatch_size": 64,
    "epochs": 10,
    "learning_rate": 3e-4,
    "gamma": 0.999,
    "clip_coef": 0.18,
    "value_clip_coef": None,
    "entropy_coef": 0.0,
    "normalize": True,
}
BIPEDAL = "envs.bipedal:paddock/BipedalWalker-v3"  # the same walker, written for speed (conf/env/bipedal.yaml)
OWN = CLASSIC | {"num_envs": 64, "num_steps": 64, "minibatch_size": 4096, "epochs": 1, "learning_rate": 5e-3}
STRUCTURED = OWN | {"learning_rate": 3e-4}
FLATTENED = ["env.wrappers=[{_target_: gymnasium.wrappers.FlattenObservation}]"]
PUFFER = {"num_steps": 64, "minibatch_size": 16384, "epochs": 1}  # and PufferLib's defaults
ZOO = CLASSIC | {
    "num_envs": 8,
    "num_steps": 32,
    "minibatch_size": 256,
    "epochs": 20,
    "learning_rate": 1e-3,
    "anneal_steps": 100_000,  # over which the step size and the clipping fall to 0
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "value_clip_coef": None,
    "entropy_coef": 0.0,
}
TRIES = 2  # of each setting, in turn; the fastest one counts
TRIAL_STEPS = 64  # of a rollout, at most; see `Contender.trial`
THREADS = [1, 2]  # of torch, for the peers
AHEAD = ["algo.rollouts=prefetch"]
WORKERS = ["vec=multiprocess"]
HALVES = [*WORKERS, "algo.groups=2"]


@dataclass(frozen=True)
class Contender:
    """Who plays a recipe, and the settings that he may choose from: those that he does not refuse."""

    title: str
    file: str  # in scripts/peers/
    recipe: Report
    grid: list[Any]
    updates: int
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of his process

    def trial(self) -> Report:
        """A recipe of shorter rollouts to try settings with: as much learning for a step, in as many environments."""
        steps = self.recipe.get("num_steps")
        return self.recipe | ({} if steps is None else {"num_steps": min(steps, TRIAL_STEPS)})


def main(arguments: list[str] | None = None) -> int:
    """Run the rows, print medians and ratios; returns 1 if ours is below a target, else 0."""
    options = _options(arguments)
    report: Report = {"machine": describe_machine(), "versions": versions(*PACKAGES), "rows": {}}
    print(report["machine"])
    print(list_versions(report), flush=True)
    for name in options.rows:
        report["rows"][name] = ROWS[name](options)
        print(f"\n{render(report['rows'][name])}", flush=True)
    claims = [one for row in report["rows"].values() for one in row["claims"]]
    return finish(report, options.json, all(one["reached"] for one in claims))


def bench_cartpole(options: argparse.Namespace) -> Report:
    """The classic recipe for everyone."""
    updates = 6 if options.quick else 20
    contenders = [
        Contender("paddock", OURS, CLASSIC, [[]] if options.quick else [[], AHEAD], updates),
        *peers(CLASSIC, updates, options.quick),
    ]
    row = measure(f"CartPole-v1, CleanRL's classic recipe: {describe(CLASSIC)}", contenders, options.repeats)
    return row | {"claims": compare(row, "paddock")}


def bench_walker(options: argparse.Namespace) -> Report:
    """RL-Zoo's recipe for everyone."""
    recipe = WALKER | ({"num_steps": 32} if options.quick else {})
    updates = 1 if options.quick else 2
    grid = [HALVES] if options.quick else [[], AHEAD, WORKERS, HALVES, [*WORKERS, *AHEAD]]
    contenders = [
        Contender("paddock", OURS, recipe, grid, updates),
        Contender("paddock, env=bipedal", OURS, recipe | {"env": BIPEDAL}, grid, updates),
        *peers(recipe, updates, options.quick),
    ]
    row = measure(f"BipedalWalker-v3, RL-Zoo's recipe: {describe(recipe)}", contenders, options.repeats)
    return row | {"claims": compare(row, "paddock")}


def bench_own(options: argparse.Namespace) -> Report:
    """Large batches of each one's choice."""
    sizes = [[f"vec.num_envs={size}"] for size in ((64,) if options.quick else (64, 128, 256))]
    grid = [[*how, *size] for size in sizes for how in ([], HALVES)]
    contenders = [Contender("paddock", OURS, OWN, grid, updates=12)]
    if options.pufferlib:
        settings = [[512, 0]] if options.quick else [[256, 0], [512, 0], [512, 2]]
        contenders.append(Contender("pufferlib", "pufferlib_ppo.py", PUFFER, settings, 3, options.pufferlib))
    row = measure(
        f"CartPole-v1, settings of each one's choice; Paddock's: {describe(OWN)}", contenders, options.repeats
    )
    if "pufferlib" in row["contenders"]:
        return row | {"claims": compare(row, "paddock", {"pufferlib": 1.0})}
    row["skipped"].setdefault("pufferlib", "give an interpreter that has it: --pufferlib PYTHON")
    ours = row["contenders"]["paddock"]["median"]
    what = f"paddock / the published {PUBLISHED[0]:,}-{PUBLISHED[1]:,} of PufferLib on two cores, not measured here"
    return row | {"claims": [claim(what, [ours / PUBLISHED[1]], 1.0)]}


def bench_goal(options: argparse.Namespace) -> Report:
    """The time until an evaluation reaches the goal, and that of the whole process."""
    seeds = [1] if options.quick else list(range(1, 1 + min(options.repeats, 5)))
    runs: dict[str, list[Report]] = {"paddock": [], "paddock, compute=serial": [], "sb3": []}
    skipped = {"sb3": "left out by --quick"} if options.quick else {}
    for seed in seeds:
        runs["paddock"].append(reach_goal(seed, []))
        runs["paddock, compute=serial"].append(reach_goal(seed, ["compute=serial"]))
        if not skipped:
            try:
                runs["sb3"].append(sb3_reaches_goal(seed))
            except Missing as missing:
                skipped["sb3"] = str(missing)
    contenders = {title: summarize(reached) | {"setting": None} for title, reached in runs.items() if reached}
    return {
        "title": f"CartPole-v1 to a mean return of {GOAL:.0f} over {GOAL_EPISODES} episodes, seeds {seeds}: "
        "experiment=ppo_cartpole, and SB3 with RL-Zoo's settings",
        "unit": "seconds",
        "contenders": contenders,
        "skipped": skipped,
        "claims": [claim("10 s / paddock", [GOAL_S / contenders["paddock"]["median"]], 1.0)],
    }


def bench_structured(name: str, options: argparse.Namespace) -> Report:
    """Observations of several parts; the same numbers for the same dense network, and the same batches for everyone."""
    recipe = STRUCTURED | {"env": f"premade:bench/{name}-v0"}
    updates, dense = (4 if options.quick else 12), ["algo.encoder=mlp"]
    contenders = [
        Contender("paddock", OURS, recipe, [dense], updates, environment=LOADS),
        Contender("paddock, flattened", OURS, recipe, [[*dense, *FLATTENED]], updates, environment=LOADS),
    ]
    if options.pufferlib:
        contenders.append(
            Contender(
                "pufferlib", "pufferlib_ppo.py", recipe, [[64, 0]], max(2, updates // 3), options.pufferlib, LOADS
            )
        )
    row = measure(f"{name}, observations made beforehand: {describe(recipe)}", contenders, options.repeats)
    return row | {"claims": compare(row, "paddock", {"paddock, flattened": 1.5, "pufferlib": 1.5})}


ROWS: dict[str, Callable[[argparse.Namespace], Report]] = {
    "cartpole": bench_cartpole,
    "walker": bench_walker,
    "own": bench_own,
    "goal": bench_goal,
    "spaces": functools.partial(bench_structured, "Spaces"),
    "minigrid": functools.partial(bench_structured, "MiniGrid"),
}


class Missing(Exception):
    """A peer is not installed."""


class Refused(Exception):
    """A setting is none of a contender's."""


class Player:
    """A contender's process, which answers one request at a time."""

    def __init__(
        self, file: str, python: str = sys.executable, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Start it; it has not imported anything yet when this returns."""
        self._file = file
        command = [python, "-W", "ignore", str(PEERS / file)]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, **request: Any) -> Report:
        """The answer to a request.

        Raises:
            Missing: it ended by an ImportError.
            Refused: it does not take the recipe with this setting.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if answer:
            given: Report = json.loads(answer)
            if "refused" in given:
                raise Refused(given["refused"])
            return given
        self._process.wait()
        self._log.seek(0)
        last = (self._log.read().strip().splitlines() or ["no output"])[-1]
        if last.startswith(("ModuleNotFoundError", "ImportError")):
            raise Missing(last)
        raise RuntimeError(f"{self._file} ended with {self._process.returncode}: {last}")

    def close(self) -> None:
        """End the process, which sees the end of its input."""
        self._process.communicate()
        self._log.close()


def measure(title: str, contenders: list[Contender], repeats: int, clock: str = "seconds") -> Report:
    """Steps/s of each contender at his fastest setting, in turn and `repeats` times.

    Args:
        clock: what a rate is of: `seconds`, or `cpu_s` of his process, where he says so.
    """
    rates: dict[str, list[Report]] = {}
    chosen: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        players = {who.title: Player(who.file, who.python, who.environment) for who in contenders}
        for player in players.values():
            stack.callback(player.close)

        def play(who: Contender, recipe: Report, setting: Any, updates: int, seed: int) -> Report:
            run = players[who.title].ask(recipe=recipe, setting=setting, updates=updates, seed=seed)
            return run | {"rate": run["steps"] / run[clock]}

        for who in contenders:
            # With one setting this is where it gets warm, and shows whether it is installed.
            trial, updates = who.trial(), math.ceil(who.updates / 4)
            tried: list[tuple[float, Any]] = []
            try:
                for setting in who.grid * TRIES:
                    try:
                        tried.append((play(who, trial, setting, updates, 0)["rate"], setting))
                    except Refused as refused:
                        skipped[who.title] = str(refused)
            except Missing as missing:
                skipped[who.title] = str(missing)
            if tried:
                skipped.pop(who.title, None)
                chosen[who.title], rates[who.title] = max(tried, key=lambda one: one[0])[1], []
            elif who.file == OURS:
                raise RuntimeError(f"{who.title} could not be measured: {skipped[who.title]}")
        for repeat in range(repeats):
            for who in contenders:
                if who.title in chosen:
                    rates[who.title].append(play(who, who.recipe, chosen[who.title], who.updates, repeat + 1))
    contestants = {name: summarize(runs) | {"setting": chosen[name]} for name, runs in rates.items()}
    return {"title": title, "unit": "steps/s", "contenders": contestants, "skipped": skipped}


def reach_goal(seed: int, overrides: list[str], experiment: str = "ppo_cartpole", goal: float = GOAL) -> Report:
    """One run of an experiment to a mean return, as a user starts it; any of its settings may be overridden.

    Its seconds count from where its loop first asks for a rollout, evaluations and checkpoints with them.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [
            f"experiment={experiment}",
            f"seed={seed}",
            f"run.dir={folder}/run",
            f"budget.return={goal}",
            *overrides,
        ]
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "paddock", *command], cwd=ROOT, capture_output=True, text=True)
        process_s = time.perf_counter() - started
        if done.returncode != 0:
            raise RuntimeError(f"the run ended with {done.returncode}: {done.stderr.strip()}")
        metrics, system = (
            [json.loads(line) for line in Path(folder, "run", f"{name}.jsonl").read_text().splitlines()]
            for name in ("metrics", "system")
        )
    met = max(row.get("eval/return_mean", -math.inf) for row in metrics)
    seconds = system[-1]["system/seconds"]
    shares = {name: sum(row[f"system/{name}_s"] for row in system) / seconds for name in SPLIT}
    shares["wait"] -= shares["env"] + shares["policy"]
    return {
        "rate": seconds if met >= goal else math.inf,
        "process_s": process_s,
        "steps": metrics[-1]["step"],
        "return_mean": met,
        "split": shares,
    }


def sb3_reaches_goal(seed: int) -> Report:
    """The same by SB3 in a process of its own: its seconds count from where learning begins."""
    player = Player("sb3_ppo.py")
    started = time.perf_counter()
    try:
        run = player.ask(recipe=ZOO, setting=1, goal=GOAL, every=GOAL_EVERY, episodes=GOAL_EPISODES, seed=seed)
    finally:
        player.close()
    process_s = time.perf_counter() - started
    return run | {"rate": run["seconds"] if run["return_mean"] is not None else math.inf, "process_s": process_s}


def render(row: Report) -> str:
    """A row as a table."""
    extra = f"{'process':>10}{'steps':>10}" if row["unit"] == "seconds" else ""
    lines = [row["title"], f"{'median (least-most)':24}{row['unit']:>30}{extra}   where the time goes"]
    for title, side in row["contenders"].items():
        digits = 1 if row["unit"] == "seconds" else 0
        low, middle, high = (f"{value:,.{digits}f}" for value in (min(side["all"]), side["median"], max(side["all"])))
        more = f"{side['process_s']:10.1f}{side['steps']:10,.0f}" if extra else ""
        shares = ", ".join(f"{SPLIT[name]} {share:.0%}" for name, share in side["split"].items())
        setting = "" if side["setting"] in (None, []) else f"   with {phrase(side['setting'])}"
        lines.append(f"{title:24}{f'{middle} ({low}-{high})':>30}{more}   {shares}{setting}")
    lines += [f"{title:24}left out: {why}" for title, why in row["skipped"].items()]
    return "\n".join([*lines, *map(render_claim, row["claims"])])


def render_claim(one: Report) -> str:
    """A claim in one line."""
    ratios = " ".join(f"{ratio:.2f}" for ratio in one["ratios"])
    verdict = "reached" if one["reached"] else "MISSED"
    return f"{one['what']}: median {one['ratio']:.2f} of {ratios}; target {one['target']:g} {verdict}"


def describe(recipe: Report) -> str:
    """A recipe in one line."""
    batch = f"{recipe['num_envs']} x {recipe['num_steps']} steps, minibatches of {recipe['minibatch_size']}"
    epochs, hidden = recipe["epochs"], "-".join(map(str, recipe.get("hidden", (64, 64))))
    network = f"{epochs} epoch{'s' if epochs > 1 else ''}, {hidden} tanh each"
    return f"{batch}, {network}" + (", normalized" if recipe["normalize"] else "")


def peers(recipe: Report, updates: int, quick: bool) -> Iterator[Contender]:
    """Who plays anybody's recipe."""
    threads = THREADS[:1] if quick else THREADS
    yield Contender("sb3", "sb3_ppo.py", recipe, threads, updates)
    yield Contender("single file", "single_file_ppo.py", recipe, threads, updates)


def summarize(runs: list[Report]) -> Report:
    """Medians of some runs, with all rates."""
    every = [run["rate"] for run in runs]
    names = runs[0].get("split", {})
    return {
        "median": median(every),
        "all": every,
        "steps": median(run["steps"] for run in runs),
        "process_s": median(run.get("process_s", 0.0) for run in runs),
        "split": {name: median(run["split"][name] for run in runs) for name in names},
    }


def compare(row: Report, ours: str, targets: dict[str, float] | None = None) -> list[Report]:
    """What is claimed of our rate over each peer's that was there."""
    sides = row["contenders"]
    claims = []
    for peer, target in (targets or {"sb3": 2.0, "single file": 1.0}).items():
        if peer in sides:
            ratios = [mine / other for mine, other in zip(sides[ours]["all"], sides[peer]["all"], strict=True)]
            claims.append(claim(f"{ours} / {peer}", ratios, target))
    return claims


def claim(what: str, ratios: list[float], target: float) -> Report:
    """What is claimed: that the median of these ratios reaches the target."""
    ratio = median(ratios)
    return {"what": what, "ratios": ratios, "ratio": ratio, "target": target, "reached": ratio >= target}


def phrase(setting: Any) -> str:
    """A setting in words: our overrides, threads, or PufferLib's environments, workers and threads."""
    if isinstance(setting, int):
        return f"{setting} thread{'s' if setting > 1 else ''}"
    if all(isinstance(part, str) for part in setting):
        return " ".join(setting)
    more = f", {phrase(setting[2])}" if len(setting) > 2 else ""
    return f"{setting[0]} environments, {setting[1] or 'no'} workers{more}"


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = command_line(__doc__, "under a minute: 3 short repeats, fewer settings tried")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="NAME", help="some (all)")
    parser.add_argument("--repeats", type=int, help="runs of each contender (5); at most as many seeds reach the goal")
    parser.add_argument("--pufferlib", metavar="PYTHON", help="an interpreter that has PufferLib")
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (3 if options.quick else 5)
    return options


if __name__ == "__main__":
    sys.exit(main())
