"""PPO end to end on a CPU: Paddock against Stable-Baselines3, a plain single-file PPO, and PufferLib's trainer.

    python scripts/bench/ppo.py [--quick] [--json PATH] [--rows NAME ...] [--pufferlib PYTHON]

cartpole  CleanRL's classic recipe for everyone: environment steps/s
walker    RL-Zoo's recipe for BipedalWalker for everyone, and once more with Paddock's own walker
own       CartPole in large batches, each with settings of his choice; where PufferLib is missing, its published rate
          is told
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
import functools
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from scripts.bench.contenders.contest import (  # noqa: E402
    OURS,
    SPLIT,
    Contender,
    Missing,
    Player,
    claim,
    compare,
    describe,
    measure,
    render,
    summarize,
)
from scripts.bench.harness import (  # noqa: E402
    Report,
    command_line,
    describe_machine,
    finish,
    interpreter,
    list_versions,
    positive_int,
    run_script,
    versions,
)

LOADS = {"PYTHONPATH": str(Path(__file__).with_name("loads"))}  # where the module `premade` lies
PACKAGES = ("paddock", "torch", "numpy", "gymnasium", "stable-baselines3")
PUBLISHED = 46_000, 55_000  # PufferLib 3's trainer on Gymnasium's CartPole on two cores (specs/vector.md), steps/s
GOAL, GOAL_S, GOAL_EVERY, GOAL_EPISODES = 475.0, 10.0, 5120, 20

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
BIPEDAL = "paddock.envs.bipedal:paddock/BipedalWalker-v3"  # the same walker, written for speed (conf/env/bipedal.yaml)
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
THREADS = [1, 2]  # of torch, for the peers
QUICK_ROWS = ["cartpole", "goal"]
AHEAD = ["algo.rollouts=prefetch"]
WORKERS = ["vec=multiprocess"]
HALVES = [*WORKERS, "algo.groups=2"]


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
    why = row["skipped"].get("pufferlib", "give an interpreter that has it: --pufferlib PYTHON")
    published = f"it is published with {PUBLISHED[0]:,}-{PUBLISHED[1]:,} steps/s on two cores of another machine"
    row["skipped"]["pufferlib"] = f"{why}; {published}"
    return row | {"claims": []}


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


def peers(recipe: Report, updates: int, quick: bool) -> Iterator[Contender]:
    """Who plays anybody's recipe."""
    threads = THREADS[:1] if quick else THREADS
    yield Contender("sb3", "sb3_ppo.py", recipe, threads, updates)
    yield Contender("single file", "single_file_ppo.py", recipe, threads, updates)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = command_line(__doc__, "under a minute: two rows, 3 short repeats, fewer settings tried")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), metavar="NAME", help="some (all)")
    parser.add_argument(
        "--repeats", type=positive_int, help="runs of each contender (5); at most as many seeds reach the goal"
    )
    parser.add_argument("--pufferlib", type=interpreter, metavar="PYTHON", help="an interpreter that has PufferLib")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (QUICK_ROWS if options.quick else list(ROWS))
    options.repeats = options.repeats or (3 if options.quick else 5)
    return options


if __name__ == "__main__":
    sys.exit(run_script(main))
