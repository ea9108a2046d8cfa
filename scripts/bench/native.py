"""Random actions through the native environments, EnvPool and Gymnasium: environment steps per second, a core and two.

    python scripts/bench/native.py [--quick] [--json PATH] [--rows NAME ...] [--pufferlib PYTHON]

Native environments step as rollouts step them: actions are sent, a batch with the infos of ended episodes is received.
Each contender plays at its best setting of its grid, found by a short pilot; then all play in turn, again and again, in
processes of their own (scripts/bench/native_contenders.py). Actions are drawn beforehand, observations are not read,
episodes end and begin again in the measured time. Who has one thread is bound to one core, and its rate is that of the
processor time it took, threads of its library included; who has two threads is measured by the clock. Whole episodes
are those of random networks, as ES plays them. Then comes where a step of the walker spends its time
(scripts/bench/native_split.py).

What is not installed is left out, and said so. A target that cannot be judged here, for want of a peer or of AVX-512,
is not missed.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from envs.native import library  # noqa: E402
from scripts.bench import native_split  # noqa: E402
from scripts.bench.contenders import Setting  # noqa: E402
from scripts.bench.es import describe_machine  # noqa: E402
from scripts.bench.native_contenders import CONTENDERS, ROWS, WALKERS  # noqa: E402
from scripts.bench.vec import BUSY, Player, players, summary  # noqa: E402

OURS = "native"
FACTORS = {"EnvPool": 8.0, "Gymnasium": 15.0}  # ours / theirs on one core, of walkers
WALKER_RATE, CARTPOLE_RATE = 150_000, 20_000_000  # steps/s of a core; of walkers with AVX-512
QUICK_ROWS = ["BipedalWalker-v3", "CartPole-v1"]
PILOT_S, WARM_S, PLAY_S, SPLIT_S = 0.3, 0.2, 1.0, 4.0

Report = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run all contenders in turn, print medians, ratios and verdicts; returns 1 if a target is missed, else 0."""
    options = read_options(arguments)
    load, instructions = os.getloadavg()[0], library.widest()
    if load > BUSY:
        print(f"others are at work here (load {load:.1f}): trust no rate of two threads, and ratios more than rates")
    with players({one.library for one in CONTENDERS.values()}, options.pufferlib, "native_contenders.py") as present:
        for name, player in present.items():
            if player.missing:
                print(f"{name} is left out: {player.missing}", flush=True)
        rows = {}
        for row in options.rows:
            rows[row] = play_row(row, present, options)
            rows[row]["targets"] = judge(row, rows[row]["sides"], instructions)
            print(render_row(row, rows[row]), flush=True)
    report = {
        "machine": describe_machine(),
        "instructions": instructions,
        "versions": {"python": platform.python_version()}
        | {name: number for player in present.values() for name, number in player.versions.items()},
        "settings": {"repeats": options.repeats, "play_s": options.play_s, "load_before": load},
        "rows": rows,
        "split": None if options.quick else native_split.measure("BipedalWalker-v3", SPLIT_S),
    }
    print(render(report))
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any(target["reached"] is False for row in rows.values() for target in row["targets"]) else 0


def play_row(row: str, present: dict[str, Player], options: argparse.Namespace) -> Report:
    """Every contender's rates in one environment."""
    best: dict[str, Setting] = {}
    errors: dict[str, str] = {}
    rates: dict[str, list[float]] = {}

    def rate(name: str, setting: Setting, seconds: float) -> float:
        one = CONTENDERS[name]
        answer = present[one.library].play(
            contender=name, row_name=row, setting=setting, warm_s=options.warm_s, seconds=seconds
        )
        if "error" in answer:
            errors[name] = answer["error"]
            return 0.0
        return answer["steps"] / answer["cpu_s" if one.threads == 1 else "seconds"]

    for name, one in CONTENDERS.items():
        if row not in one.rows or present[one.library].missing:
            continue
        settings = one.settings[:1] if options.quick else one.settings
        pilot = [rate(name, setting, options.pilot_s) if len(settings) > 1 else 1.0 for setting in settings]
        if max(pilot) > 0:
            best[name] = settings[pilot.index(max(pilot))]
            rates[name] = []
    for _, name in itertools.product(range(options.repeats), list(best)):
        rates[name].append(rate(name, best[name], options.play_s))
    sides = {name: summary(runs, best[name]) for name, runs in rates.items() if min(runs) > 0}
    return {"sides": sides, "errors": {name: errors[name] for name in errors if name not in sides}}


def judge(row: str, sides: Report, instructions: str) -> list[Report]:
    """The row's targets: what was measured, and whether that reaches it; None where that cannot be judged.

    A ratio is the median of those of the single repetitions.
    """

    def target(what: str, measured: float | None, least: float, why_not: str = "") -> Report:
        reached = None if measured is None or why_not else measured >= least
        return {"what": what, "measured": measured, "target": least, "reached": reached, "why_not": why_not}

    rate = sides[OURS]["median"] if OURS in sides else 0.0
    if row not in WALKERS:
        return [target("steps/s of a core", rate, CARTPOLE_RATE)] if row == "CartPole-v1" else []
    why_not = "" if instructions == "avx512" else f"it is for AVX-512, and this ran with {instructions}"
    targets = [target("steps/s of a core", rate, WALKER_RATE, why_not)]
    for peer, factor in FACTORS.items():
        times = None
        if peer in sides:
            pairs = zip(sides[OURS]["rates"], sides[peer]["rates"], strict=True) if OURS in sides else [(0.0, 1.0)]
            times = statistics.median(ours / theirs for ours, theirs in pairs)
        targets.append(target(f"times {peer}", times, factor, "" if peer in sides else f"{peer} did not play"))
    return targets


def render_row(row: str, result: Report) -> str:
    """One environment's contenders: medians, between what they lay, and the targets."""
    lines = ["", f"{row:26}{'steps/s':>13}{'min':>13}{'max':>13}{'ours':>9}   setting"]
    ours = result["sides"].get(OURS)
    for name, side in result["sides"].items():
        setting = " ".join(f"{key}={value}" for key, value in side["setting"].items())
        times = f"{ours['median'] / side['median']:8.1f}x" if ours else f"{'-':>9}"
        lines.append(
            f"  {name:24}{side['median']:13,.0f}{side['min']:13,.0f}{side['max']:13,.0f}{times}   {setting}".rstrip()
        )
    lines += [f"  {name:24}left out: {error}" for name, error in result["errors"].items()]
    for target in result["targets"]:
        word = {True: "reached", False: "MISSED", None: f"not judged: {target['why_not']}"}[target["reached"]]
        measured = "-" if target["measured"] is None else f"{target['measured']:,.1f}"
        lines.append(f"  {target['what']}: {measured}, target {target['target']:,.0f} {word}")
    return "\n".join(lines)


def render(report: Report) -> str:
    """Machine, versions, and the split of a step."""
    settings = report["settings"]
    lines = [
        "",
        f"{report['machine']}; instructions: {report['instructions']}",
        ", ".join(f"{name} {number}" for name, number in report["versions"].items()),
        f"medians of {settings['repeats']} interleaved runs of {settings['play_s']} s; one core by processor time, two "
        "by the clock",
    ]
    return "\n".join(lines + ([native_split.render(report["split"])] if report["split"] else []))


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; --quick changes what is not given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: two rows, one setting, 3 short repeats")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), metavar="ROW", help=f"of {', '.join(ROWS)} (all)")
    parser.add_argument(
        "--pufferlib", metavar="PYTHON", default=sys.executable, help="an interpreter that has PufferLib"
    )
    parser.add_argument("--repeats", type=int, help="measured runs of each contender (5)")
    parser.add_argument("--seconds", type=float, help=f"that each run measures ({PLAY_S})")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (QUICK_ROWS if options.quick else list(ROWS))
    options.repeats = options.repeats or (3 if options.quick else 5)
    options.play_s = options.seconds or (0.4 if options.quick else PLAY_S)
    options.warm_s, options.pilot_s = (0.1, 0.1) if options.quick else (WARM_S, PILOT_S)
    return options


if __name__ == "__main__":
    sys.exit(main())
