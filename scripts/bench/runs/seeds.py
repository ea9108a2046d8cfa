"""What algorithms score beside Stable-Baselines3's at equal settings and steps, by deterministic evaluation.

    python scripts/bench/runs/seeds.py [--quick] [--json PATH] [--rows NAME ...] [--seeds 10] [--peers PYTHON]
        [--curves FOLDER]

Settings are those of conf/experiment, handed to Stable-Baselines3 as it names them. Each side then plays 100 episodes
of its last policy. Environments are the same: where ours are native, their episodes have the originals' numbers.
No speed is measured, so two run side by side. Scores are kept as they come: with --json a run that was cut off goes on
with what is missing, other rows of the file stay, and one of other settings is refused. A row is reached where the
95 % intervals of the means overlap. Where learning is from replay, --curves keeps the peer's evaluations on the way, as
notebooks/replay.ipynb reads them.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from paddock.envs.errors import require  # noqa: E402
from paddock.reports.statistics import improvement, interval, mean  # noqa: E402
from scripts.bench.contenders.contest import ask_alone  # noqa: E402
from scripts.bench.contenders.recipes import translate  # noqa: E402
from scripts.bench.harness import (  # noqa: E402
    Report,
    command_line,
    describe_machine,
    finish,
    interpreter,
    list_versions,
    positive_int,
    read_kept,
    run_script,
    versions,
)

ROWS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {  # experiment, and the environment as Gymnasium names it
        "cartpole": ("ppo_cartpole", "CartPole-v1"),
        "acrobot": ("ppo_acrobot", "Acrobot-v1"),
        "lunarlander": ("ppo_lunarlander_continuous", "LunarLanderContinuous-v3"),
        "bipedal": ("ppo_bipedal", "BipedalWalker-v3"),
        "dqn_cartpole": ("dqn_cartpole", "CartPole-v1"),
        "dqn_acrobot": ("dqn_acrobot", "Acrobot-v1"),
        "dqn_mountaincar": ("dqn_mountaincar", "MountainCar-v0"),
        "dqn_lunarlander": ("dqn_lunarlander", "LunarLander-v3"),
        "sac_pendulum": ("sac_pendulum", "Pendulum-v1"),
        "td3_pendulum": ("td3_pendulum", "Pendulum-v1"),
    }
)
SIDES = ("paddock", "sb3")
EPISODES, AT_ONCE = 100, 2


def main(arguments: list[str] | None = None) -> int:
    """Print a line a row; returns 1 where two sides' intervals lie apart, else 0."""
    options = read_options(arguments)
    recipes = {name: read_recipe(name, options.steps) for name in options.rows}
    kept = read_kept(options.json)["rows"]
    for name, recipe in recipes.items():
        held = kept[name].get("recipe", {}) if name in kept else recipe
        others = sorted(key for key in {**held, **recipe} if held.get(key) != recipe.get(key))
        said = f"--json {options.json} has scores of {name} with other settings ({', '.join(others)})"
        require(not others, f"{said}; name another file")
    report: Report = {
        "machine": describe_machine(),
        "versions": versions("paddock", "torch", "numpy", "gymnasium"),
        "rows": kept,
    }
    print(f"{report['machine']}\n{list_versions(report)}", flush=True)
    for name, recipe in recipes.items():
        row = report["rows"].setdefault(name, {"recipe": recipe, "scores": {side: {} for side in SIDES}})
        owed = [
            (side, seed)
            for seed in range(1, options.seeds + 1)
            for side in SIDES
            if str(seed) not in row["scores"][side]
        ]

        def play(job: tuple[str, int], recipe: Report = recipe) -> tuple[str, int, Report]:
            side, seed = job
            return side, seed, score(side, recipe, seed, options.peers)

        with ThreadPoolExecutor(AT_ONCE) as threads:
            for side, seed, scored in threads.map(play, owed):
                curve = scored.pop("evaluations", [])
                if options.curves and curve:
                    options.curves.mkdir(parents=True, exist_ok=True)
                    file = options.curves / f"sb3_{name}{seed}.evaluations.jsonl"
                    file.write_text("".join(json.dumps(one) + "\n" for one in curve))
                row["scores"][side][str(seed)] = scored
                finish(report, options.json, reached=True)
        row |= judge(row["scores"])
        print(render(name, row), flush=True)
    return finish(report, options.json, all(report["rows"][name]["reached"] for name in options.rows))


def read_recipe(name: str, steps: int | None) -> Report:
    """Return a row's settings, of so many steps where that is given."""
    recipe = translate(*ROWS[name])
    return recipe | ({} if steps is None else {"steps": steps})


def score(side: str, recipe: Report, seed: int, peers: str) -> Report:
    """Train one seed of a side in a process of its own, and play the last policy: `steps` and `return_mean`."""
    ours, replayed = side == "paddock", "algo" in recipe
    file = f"{side}_{'replay' if replayed else 'ppo'}.py"
    told: Report = {"last_episodes": EPISODES} if replayed else {"setting": [] if ours else 1, "episodes": EPISODES}
    return ask_alone(file, sys.executable if ours else peers, recipe=recipe, seed=seed, **told)


def judge(scores: Mapping[str, Mapping[str, Report]]) -> Report:
    """Both sides' means over seeds with their intervals, how often ours is above, and whether the intervals overlap."""
    means = {side: [[one["return_mean"]] for one in runs.values()] for side, runs in scores.items()}
    sides = {}
    for side, of_seeds in means.items():
        low, high = interval(of_seeds, mean)
        sides[side] = {"mean": float(mean(of_seeds)), "low": float(low), "high": float(high)}
    ours, theirs = sides["paddock"], sides["sb3"]
    return {
        "sides": sides,
        "above": float(improvement(means["paddock"], means["sb3"])),
        "reached": bool(ours["low"] <= theirs["high"] and theirs["low"] <= ours["high"]),
    }


def render(name: str, row: Report) -> str:
    """A row as a few lines."""
    steps = {side: {one["steps"] for one in runs.values()} for side, runs in row["scores"].items()}
    lines = [f"\n{name}: experiment={row['recipe']['experiment']}"]
    for side, told in row["sides"].items():
        seeds = " ".join(f"{one['return_mean']:.1f}" for one in row["scores"][side].values())
        of = " to ".join(f"{count:,}" for count in sorted({min(steps[side]), max(steps[side])}))
        lines.append(f"{side:8} {told['mean']:8.1f} [{told['low']:.1f}, {told['high']:.1f}]  {of} steps: {seeds}")
    verdict = "overlap: reached" if row["reached"] else "lie apart: MISSED"
    return "\n".join([*lines, f"ours is above in {row['above']:.0%} of pairs; the intervals {verdict}"])


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line, in which --quick leaves two seeds of CartPole's first 5,120 steps."""
    parser = command_line(__doc__, "two seeds of CartPole and 5,120 steps, which says nothing of scores")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    parser.add_argument("--seeds", type=positive_int, default=10)
    parser.add_argument("--steps", type=positive_int, help="of each run, in place of its experiment's budget")
    parser.add_argument("--curves", type=Path, metavar="FOLDER", help="for the peer's evaluations on the way")
    parser.add_argument(
        "--peers", default=sys.executable, type=interpreter, metavar="PYTHON", help="which has stable-baselines3"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.seeds, options.steps = ["cartpole"], 2, 5120
    return options


if __name__ == "__main__":
    sys.exit(run_script(main))
