"""Compare scores with Stable-Baselines3 at equal settings and steps, with deterministic evaluation.

    python scripts/bench/runs/seeds.py [--quick] [--json PATH] [--rows NAME ...] [--seeds 10] [--peers PYTHON]
        [--curves FOLDER]

Settings are those of conf/experiment, translated for Stable-Baselines3. Each side then plays 100 episodes of its last
policy. Environments are equivalent: native ones give the same episodes as the originals. Two runs are executed
concurrently, since no speed is measured. Scores are saved as they arrive: with --json an interrupted run resumes, other
rows of the file are kept, and a file with other settings is rejected. A row is reached if the 95 % intervals of the
means overlap. For off-policy algorithms, --curves keeps the peer's evaluations during training for
notebooks/replay.ipynb.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

from paddock.envs.errors import require  # noqa: E402
from paddock.reports.statistics import improvement, interval, mean  # noqa: E402
from scripts.bench import harness  # noqa: E402
from scripts.bench.contenders.contest import ask_alone  # noqa: E402
from scripts.bench.contenders.recipes import translate  # noqa: E402
from scripts.bench.harness import Report, positive_int  # noqa: E402

ROWS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {  # experiment, and Gymnasium's name of the environment
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
    """Print each row; return 1 if the intervals of a row do not overlap, else 0."""
    options = read_options(arguments)
    recipes = {name: read_recipe(name, options.steps) for name in options.rows}
    kept = harness.read_kept(options.json)["rows"]
    for name, recipe in recipes.items():
        held = kept[name].get("recipe", {}) if name in kept else recipe
        others = sorted(key for key in {**held, **recipe} if held.get(key) != recipe.get(key))
        problem = f"--json {options.json} has scores of {name} with other settings ({', '.join(others)})"
        require(not others, f"{problem}; choose another file")
    report: Report = {"machine": harness.describe_machine(), "rows": kept}
    report["versions"] = harness.versions("paddock", "torch", "numpy", "gymnasium")
    print(f"{report['machine']}\n{harness.list_versions(report)}", flush=True)
    for name, recipe in recipes.items():
        row = report["rows"].setdefault(name, {"recipe": recipe, "scores": {side: {} for side in SIDES}})
        missing = [
            (side, seed)
            for seed in range(1, options.seeds + 1)
            for side in SIDES
            if str(seed) not in row["scores"][side]
        ]

        def play(job: tuple[str, int], recipe: Report = recipe) -> tuple[str, int, Report]:
            side, seed = job
            return side, seed, score(side, recipe, seed, options.peers)

        with ThreadPoolExecutor(AT_ONCE) as threads:
            for side, seed, scored in threads.map(play, missing):
                curve = scored.pop("evaluations", [])
                if options.curves and curve:
                    options.curves.mkdir(parents=True, exist_ok=True)
                    file = options.curves / f"sb3_{name}{seed}.evaluations.jsonl"
                    file.write_text("".join(json.dumps(one) + "\n" for one in curve))
                row["scores"][side][str(seed)] = scored
                harness.finish(report, options.json, reached=True)
        row |= compare(row["scores"])
        print(render(name, row), flush=True)
    return harness.finish(report, options.json, all(report["rows"][name]["reached"] for name in options.rows))


def read_recipe(name: str, steps: int | None) -> Report:
    """Return a row's recipe, with another number of steps if given."""
    recipe = translate(*ROWS[name])
    return recipe | ({} if steps is None else {"steps": steps})


def score(side: str, recipe: Report, seed: int, peers: str) -> Report:
    """Train one seed of a side in a separate process, and evaluate the last policy: `steps` and `return_mean`."""
    ours, replayed = side == "paddock", "algo" in recipe
    file = f"{side}_{'replay' if replayed else 'ppo'}.py"
    request: Report = {"last_episodes": EPISODES} if replayed else {"setting": [] if ours else 1, "episodes": EPISODES}
    return ask_alone(file, sys.executable if ours else peers, recipe=recipe, seed=seed, **request)


def compare(scores: Mapping[str, Mapping[str, Report]]) -> Report:
    """Return both sides' means over seeds with intervals, how often ours is above, and whether the intervals overlap."""
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
    """Format a row."""
    steps = {side: {one["steps"] for one in runs.values()} for side, runs in row["scores"].items()}
    lines = [f"\n{name}: experiment={row['recipe']['experiment']}"]
    for side, result in row["sides"].items():
        seeds = " ".join(f"{one['return_mean']:.1f}" for one in row["scores"][side].values())
        counts = " to ".join(f"{count:,}" for count in sorted({min(steps[side]), max(steps[side])}))
        values = f"{result['mean']:8.1f} [{result['low']:.1f}, {result['high']:.1f}]"
        lines.append(f"{side:8} {values}  {counts} steps: {seeds}")
    verdict = "overlap: reached" if row["reached"] else "do not overlap: MISSED"
    return "\n".join([*lines, f"ours is above in {row['above']:.0%} of pairs; the intervals {verdict}"])


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line; --quick runs two seeds of CartPole for 5,120 steps."""
    parser = harness.command_line(__doc__, "two seeds of CartPole and 5,120 steps, too few for meaningful scores")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    parser.add_argument("--seeds", type=positive_int, default=10)
    parser.add_argument("--steps", type=positive_int, help="of each run, instead of the experiment's budget")
    parser.add_argument("--curves", type=Path, metavar="FOLDER", help="for the peer's evaluations during training")
    help = "interpreter with stable-baselines3"
    parser.add_argument("--peers", default=sys.executable, type=harness.interpreter, metavar="PYTHON", help=help)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.seeds, options.steps = ["cartpole"], 2, 5120
    return options


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
