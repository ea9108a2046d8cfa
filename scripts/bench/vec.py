"""Compare environment steps/s of vector environments with random actions.

    python scripts/bench/vec.py [--quick] [--json PATH] [--rows NAME ...] [--pufferlib PYTHON]

Contenders run interleaved, each at the best setting of the same small grid, found in a short pilot run. Actions are
sampled in advance, observations are not read, and batches are not copied if a contender allows it. Resets are included.
The libraries run in separate processes, one at a time (scripts/bench/contenders/vectors.py); libraries that are not
installed are skipped with a message.

Targets: faster than every peer that runs the same Python environment, in every row, and 1.6 times as fast as one
environment without a vector on BipedalWalker. EnvPool runs other environments, in C++, and has no target.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

from scripts.bench import harness  # noqa: E402
from scripts.bench.contenders.players import add_options, library_versions, play_row, players  # noqa: E402
from scripts.bench.contenders.vectors import CONTENDERS, ONE_ENV, OURS, PEERS, ROWS  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402

TARGET = 1.0  # ours / best peer that runs the same Python environment
ONE_ENV_TARGET = {"BipedalWalker-v3": 1.6}  # ours / one environment
NUM_ENVS, WORKERS = (4, 16, 64, 256), (2, 4)  # the grid; EnvPool's workers are threads
QUICK_ROWS = ["CartPole-v1", "BipedalWalker-v3"]
PILOT_S, WARM_S, PLAY_S = 0.3, 0.2, 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run all contenders in turn, and print medians and ratios; return 1 if a target is missed, else 0."""
    options = read_options(arguments)
    load = os.getloadavg()[0]
    harness.warn_if_busy()
    names = [name for name in CONTENDERS if name in options.contenders]
    with players({CONTENDERS[name].library for name in names}, {"pufferlib": options.pufferlib}) as present:
        playing = [name for name in names if not present[CONTENDERS[name].library].missing]
        rows = {}
        for row in options.rows:
            grids = {name: CONTENDERS[name].settings(options.num_envs, options.workers) for name in playing}
            players_of = {name: present[CONTENDERS[name].library] for name in playing}
            rows[row] = play_row(row, grids, players_of, {}, options)
            rows[row] |= verdict(row, {name: side["rates"] for name, side in rows[row]["sides"].items()})
            print(render_row(row, rows[row]), flush=True)
    report = {
        "machine": harness.describe_machine(),
        "versions": harness.versions() | library_versions(present),
        "settings": {
            "num_envs": list(options.num_envs),
            "workers": list(options.workers),
            "repeats": options.repeats,
            "play_s": options.play_s,
            "load_before": load,
        },
        "rows": rows,
        "target": TARGET,
    }
    print(render(report))
    return harness.finish(report, options.json, all(row["reached"] for row in rows.values()))


def verdict(row: str, rates: dict[str, list[float]]) -> Report:
    """Return the ratios of our best contender to the best peer and to one environment, and whether they suffice.

    The best contender has the highest median. A ratio is the median over repetitions, or None if a side is missing; a
    target that cannot be measured is not missed.
    """

    def best(names: list[str]) -> str | None:
        present = [name for name in names if name in rates]
        return max(present, key=lambda name: statistics.median(rates[name])) if present else None

    def ratio(ours: str | None, other: str | None) -> float | None:
        if ours is None or other is None:
            return None
        return statistics.median(a / b for a, b in zip(rates[ours], rates[other], strict=True))

    ours, peer = best(OURS), best(PEERS)
    to_peer, to_one = ratio(ours, peer), ratio(ours, best([ONE_ENV]))
    enough = [(to_peer, TARGET), (to_one, ONE_ENV_TARGET.get(row, 0.0))]
    reached = ours is not None and all(measured is None or measured >= target for measured, target in enough)
    return {"ours": ours, "peer": peer, "ratio": to_peer, "ratio_to_bare": to_one, "reached": reached}


def render_row(row: str, result: Report) -> str:
    """Format an environment's medians and ranges."""
    lines = ["", f"{row:26}{'steps/s':>12}{'min':>12}{'max':>12}   setting"]
    for name, side in result["sides"].items():
        setting = " ".join(f"{key}={value}" for key, value in side["setting"].items())
        other = "" if CONTENDERS[name].python else "  (other code, C++)"
        lines.append(f"  {name:24}{side['median']:12,.0f}{side['min']:12,.0f}{side['max']:12,.0f}   {setting}{other}")
    lines += [f"  {name:24}skipped: {error}" for name, error in result["errors"].items()]
    return "\n".join(lines)


def render(report: Report) -> str:
    """Format machine, versions and the ratios of all rows."""
    settings = report["settings"]
    lines = [
        "",
        report["machine"],
        harness.list_versions(report),
        f"grid: num_envs {settings['num_envs']}, workers or threads {settings['workers']}; "
        f"medians of {settings['repeats']} interleaved runs of {settings['play_s']} s",
        "",
        f"{'row':26}{'ours':20}{'best Python peer':22}{'ratio':>8}{'to one':>8}",
    ]
    for row, result in report["rows"].items():
        word = "reached" if result["reached"] else "MISSED"
        ratios = "".join(
            "       -" if ratio is None else f"{ratio:8.2f}" for ratio in (result["ratio"], result["ratio_to_bare"])
        )
        one = f" and {ONE_ENV_TARGET[row]:.2f} to one" if row in ONE_ENV_TARGET else ""
        names = f"{row:26}{result['ours'] or '-':20}{result['peer'] or '-':22}"
        lines.append(f"{names}{ratios}  target {report['target']:.2f}{one} {word}")
    return "\n".join(lines)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line; --quick changes the defaults."""
    parser = harness.command_line(__doc__, "under a minute: three rows, one setting, 2 short repeats")
    add_options(parser, list(ROWS), PLAY_S)
    parser.add_argument(
        "--pufferlib",
        type=harness.interpreter,
        metavar="PYTHON",
        default=sys.executable,
        help="an interpreter that has PufferLib",
    )
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), metavar="NAME", help="some of them (all)")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (QUICK_ROWS if options.quick else list(ROWS))
    options.contenders = options.contenders or list(CONTENDERS)
    options.repeats = options.repeats or (2 if options.quick else 5)
    options.play_s = options.seconds or (0.2 if options.quick else PLAY_S)
    options.warm_s, options.pilot_s = (0.1, 0.1) if options.quick else (WARM_S, PILOT_S)
    options.num_envs, options.workers = ((8,), (2,)) if options.quick else (NUM_ENVS, WORKERS)
    return options


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
