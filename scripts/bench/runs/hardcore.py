"""How BipedalWalkerHardcore begins: experiment=ppo_hardcore beside Stable-Baselines3 at its settings, seed by seed.

    python scripts/bench/runs/hardcore.py [--quick] [--json PATH] [--sides NAME ...] [--seeds 6] [--steps 10000000]
        [--peers PYTHON]

The published agent is one seed, and a hundred million steps of Stable-Baselines3 are a day. So sides are followed for
the first tenth, by schedules of the whole: returns of episodes in training, and the policy's entropy, as means of
500,000 steps. Everyone's environments are Paddock's native ones, whose numbers are Gymnasium's. Runs are kept as they
come: with --json those that were made before stay, and what is missing is played. Returns 1 where ours, from
observing first as Stable-Baselines3 does, and theirs have intervals that lie apart at the last point.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from paddock.envs.errors import require  # noqa: E402
from paddock.reports.statistics import interval, mean  # noqa: E402
from scripts.bench.contenders.contest import ask_alone  # noqa: E402
from scripts.bench.contenders.recipes import translate  # noqa: E402
from scripts.bench.harness import (  # noqa: E402
    Report,
    command_line,
    describe_machine,
    finish,
    interpreter,
    positive_int,
    read_kept,
    run_script,
)

POINTS, AROUND = (1_000_000, 1_500_000, 2_750_000, 4_500_000, 9_750_000), 250_000  # steps
PEER = "stable_baselines3"
SIDES: Mapping[str, tuple[str, list[str] | int]] = MappingProxyType(
    {  # who plays, and with which setting
        "recipe": ("paddock_ppo.py", ["algo.threads=1"]),
        "observe_first": ("paddock_ppo.py", ["algo.threads=1", "algo.observe_first=true"]),
        PEER: ("sb3_ppo.py", 1),
    }
)
NATIVE = "paddock.envs.bipedal:paddock/BipedalWalkerHardcore-v3"


def main(arguments: list[str] | None = None) -> int:
    """Print a line a run as it ends, then each side's means; see above for what is returned."""
    options = read_options(arguments)
    points = [point for point in POINTS if point + AROUND <= options.steps] or [options.steps // 2]
    report: Report = {
        "what": f"experiment=ppo_hardcore: means over {2 * AROUND:,} steps around, of episodes in training"
    }
    report |= {"machine": describe_machine(), "steps": points, "rows": {}}
    kept = read_kept(options.json)
    same = not kept["rows"] or kept.get("steps") == points
    remedy = f"and these would be at {points}; name another file"
    require(same, f"--json {options.json} has means at {kept.get('steps')}, {remedy}")
    report["rows"] = kept["rows"]
    recipe = translate("ppo_hardcore", "BipedalWalkerHardcore-v3") | {"native": NATIVE}
    owed = [
        (side, seed)
        for seed in range(1, options.seeds + 1)
        for side in options.sides
        if None in report["rows"].setdefault(side, {}).get(str(seed), [None])
    ]

    def play(job: tuple[str, int]) -> list[Report]:
        file, setting = SIDES[job[0]]
        python = options.peers if job[0] == PEER else sys.executable
        told = ask_alone(file, python, recipe=recipe, setting=setting, until=options.steps, seed=job[1])
        return [average(told["rows"], point) for point in points]

    with ThreadPoolExecutor(options.at_once) as threads:
        for (side, seed), means in zip(owed, threads.map(play, owed), strict=True):
            report["rows"][side][str(seed)] = means
            finish(report, options.json, reached=True)
            print(f"{side:18} seed {seed}  {'  '.join(map(render, means))}", flush=True)
    told = {side: [run[-1] for run in runs.values() if run[-1]] for side, runs in report["rows"].items()}
    last = {side: [[one["return_mean"]] for one in ones] for side, ones in told.items()}
    ends = {side: interval(runs, mean) for side, runs in last.items() if len(runs) > 1}
    for side, (low, high) in ends.items():
        print(f"{side:18} {mean(last[side]):.0f} [{low:.0f}, {high:.0f}] of {len(last[side])} seeds at {points[-1]:,}")
    ours, theirs = ends.get("observe_first"), ends.get(PEER)
    apart = ours is not None and theirs is not None and not (ours[0] <= theirs[1] and theirs[0] <= ours[1])
    return finish(report, options.json, not apart)


def average(rows: Sequence[Report], point: int) -> Report:
    """The means around a step: of episodes, each of which counts alike, and of entropies after updates."""
    near = [row for row in rows if abs(row["step"] - point) <= AROUND]
    near = near or [min(rows, key=lambda row: abs(row["step"] - point))]
    ended = [row for row in near if row["episodes"]]
    count = sum(row["episodes"] for row in ended)
    told = [row["entropy"] for row in near if row.get("entropy") is not None]
    return {
        "return_mean": round(sum(row["return_mean"] * row["episodes"] for row in ended) / count, 1) if count else None,
        "entropy": round(sum(told) / len(told), 2) if told else None,
    }


def render(means: Report) -> str:
    """A point's means, the entropy in brackets."""
    return f"{means['return_mean']} ({means['entropy']})"


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line, in which --quick leaves one seed's first rollouts."""
    parser = command_line(__doc__, "the first 65,536 steps of one seed, which say nothing")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), metavar="NAME")
    parser.add_argument("--seeds", type=positive_int, default=6)
    parser.add_argument("--steps", type=positive_int, default=10_000_000, help="of each run")
    parser.add_argument("--at-once", type=positive_int, default=2, help="runs side by side")
    parser.add_argument(
        "--peers", default=sys.executable, type=interpreter, metavar="PYTHON", help="which has stable-baselines3"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.steps = 1, 65_536
    return options


if __name__ == "__main__":
    sys.exit(run_script(main))
