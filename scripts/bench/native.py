"""Compare steps/s of compiled environments, EnvPool, Gymnasium, MinAtar, PettingZoo and gymnax with random actions.

    python scripts/bench/native.py [--quick] [--json PATH] [--rows NAME ...]

Native environments step as in rollouts: actions are sent, and a batch with the infos of ended episodes is received.
Contenders run interleaved in separate processes (scripts/bench/contenders/compiled.py), each at the best setting of its
grid, found in a short pilot run. Actions are sampled in advance, and resets are included. Contenders with one thread are
bound to a core and measured in processor time, those with two in wall time. "Whole episodes" are those of random
networks, as in ES. In multi-agent games a step is one action. gymnax's peer of vec=jax is its compiled rollout, which
stays in JAX: it has no policy outside and copies nothing to NumPy.

Contenders that are not installed are skipped with a message. Targets that cannot be checked here, without the peer or
AVX-512, are not missed.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

from paddock.envs.native import library  # noqa: E402
from scripts.bench import harness  # noqa: E402
from scripts.bench.contenders.compiled import CONTENDERS, MINATAR, ROBOTS, ROWS, WALKERS, WORLDS  # noqa: E402
from scripts.bench.contenders.players import add_options, library_versions, play_row, players  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402

OURS = "native"
BATCHED, PARALLEL, SERIAL = "vec=mujoco", "vec=mujoco, 2 threads", "vec=serial"
WALKER_RATE = 150_000  # steps/s of a core with AVX-512
RATES = {  # targets in steps/s of a core
    **{id: WALKER_RATE for id in WALKERS},
    "CartPole-v1": 20_000_000,
    WORLDS[0]: 5_000_000,
    "connect_four_v3": 30_000_000,
    "snake": 5_000_000,
    "spread": 10_000_000,
    "paddock/Pong-v0": 20_000_000,
    **{id: 5_000_000 for id in MINATAR},
}
RATIOS = {  # targets of ours / theirs on one core
    **{id: {(OURS, "EnvPool"): 8.0, (OURS, "Gymnasium"): 15.0} for id in WALKERS},
    WORLDS[0]: {(OURS, "EnvPool"): 50.0, (OURS, "Gymnasium"): 900.0},
    **{id: {(BATCHED, SERIAL): 1.3, (PARALLEL, BATCHED): 1.7} for id in ROBOTS},
}
MEAN_RATIO = 1.45  # target of the geometric mean of the robots' first ratio
QUICK_ROWS = ["BipedalWalker-v3", "CartPole-v1"]
PILOT_S, WARM_S, PLAY_S = 0.3, 0.2, 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run all contenders in turn, and print medians and ratios; return 1 if a target is missed, else 0."""
    options = read_options(arguments)
    load, instructions = os.getloadavg()[0], library.widest()
    harness.warn_if_busy()
    with players({one.library for one in CONTENDERS.values()}, {}, "compiled.py") as present:
        rows = {}
        for row in options.rows:
            playing = {k: c for k, c in CONTENDERS.items() if row in c.rows and not present[c.library].missing}
            grids = {name: one.settings[:1] if options.quick else one.settings for name, one in playing.items()}
            clocks = {name: "cpu_s" for name, one in playing.items() if one.threads == 1}
            players_of = {name: present[one.library] for name, one in playing.items()}
            rows[row] = play_row(row, grids, players_of, clocks, options)
            rows[row]["targets"] = check_targets(row, rows[row]["sides"], instructions)
            print(render_row(row, rows[row]), flush=True)
    report = {
        "machine": harness.describe_machine(),
        "instructions": instructions,
        "versions": harness.versions() | library_versions(present),
        "settings": {"repeats": options.repeats, "play_s": options.play_s, "load_before": load},
        "rows": rows,
    }
    print(render(report))
    missed = any(target["reached"] is False for row in rows.values() for target in row["targets"])
    ratios = [rows[robot]["targets"][0]["measured"] for robot in ROBOTS if robot in rows]
    if len(ratios) == len(ROBOTS) and None not in ratios:
        mean = statistics.geometric_mean(ratios)
        print(f"robots, {BATCHED} / {SERIAL}: geometric mean {mean:.2f}, target {MEAN_RATIO}")
        missed |= mean < MEAN_RATIO
    return harness.finish(report, options.json, not missed)


def check_targets(row: str, sides: Report, instructions: str) -> list[Report]:
    """Return the row's targets with the measured values; `reached` is None if it cannot be checked.

    A ratio is the median over repetitions.
    """

    def target(what: str, measured: float | None, least: float, why_not: str = "") -> Report:
        reached = None if measured is None or why_not else measured >= least
        return {"what": what, "measured": measured, "target": least, "reached": reached, "why_not": why_not}

    targets = []
    if row in RATES:
        unsuited = row in WALKERS and instructions != "avx512"
        why_not = f"the target is for AVX-512, this ran with {instructions}" if unsuited else ""
        rate = sides[OURS]["median"] if OURS in sides else 0.0
        targets.append(target("steps/s of a core", rate, RATES[row], why_not))
    for (ours, peer), factor in RATIOS.get(row, {}).items():
        times = None
        if peer in sides:
            pairs = zip(sides[ours]["rates"], sides[peer]["rates"], strict=True) if ours in sides else [(0.0, 1.0)]
            times = statistics.median(ours / theirs for ours, theirs in pairs)
        why_not = "" if peer in sides else f"{peer} was not measured"
        targets.append(target(f"{ours} / {peer}", times, factor, why_not))
    return targets


def render_row(row: str, result: Report) -> str:
    """Format an environment's medians, ranges and targets."""
    lines = ["", f"{row:26}{'steps/s':>13}{'min':>13}{'max':>13}{'ours':>9}   setting"]
    ours = next((result["sides"][name] for name in (OURS, "vec=jax", BATCHED) if name in result["sides"]), None)
    for name, side in result["sides"].items():
        setting = " ".join(f"{key}={value}" for key, value in side["setting"].items())
        times = f"{ours['median'] / side['median']:8.1f}x" if ours else f"{'-':>9}"
        lines.append(
            f"  {name:24}{side['median']:13,.0f}{side['min']:13,.0f}{side['max']:13,.0f}{times}   {setting}".rstrip()
        )
    lines += [f"  {name:24}skipped: {error}" for name, error in result["errors"].items()]
    for target in result["targets"]:
        word = {True: "reached", False: "MISSED", None: f"not checked: {target['why_not']}"}[target["reached"]]
        measured = "-" if target["measured"] is None else f"{target['measured']:,.2f}"
        lines.append(f"  {target['what']}: {measured}, target {target['target']:,.4g} {word}")
    return "\n".join(lines)


def render(report: Report) -> str:
    """Format machine, versions and settings."""
    settings = report["settings"]
    lines = [
        "",
        f"{report['machine']}; instructions: {report['instructions']}",
        harness.list_versions(report),
        f"medians of {settings['repeats']} interleaved runs of {settings['play_s']} s; one core in processor time, two in "
        "wall time",
    ]
    return "\n".join(lines)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line; --quick changes the defaults."""
    parser = harness.command_line(__doc__, "under a minute: two rows, one setting, 3 short repeats")
    add_options(parser, list(ROWS), PLAY_S)
    options = parser.parse_args(arguments)
    options.rows = options.rows or (QUICK_ROWS if options.quick else list(ROWS))
    options.repeats = options.repeats or (3 if options.quick else 5)
    options.play_s = options.seconds or (0.4 if options.quick else PLAY_S)
    options.warm_s, options.pilot_s = (0.1, 0.1) if options.quick else (WARM_S, PILOT_S)
    return options


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
