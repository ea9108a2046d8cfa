"""Random actions through every vector environment there is: Paddock's against its peers, environment steps per second.

    python scripts/bench/vec.py [--quick] [--json PATH] [--rows NAME ...] [--pufferlib PYTHON]

Each contender plays at its best setting of the same small grid, found by a short pilot; then all play in turn, again
and again. Actions are drawn beforehand, observations are not read, and batches are not copied where a contender can do
without. Episodes end and begin again in the measured time. The libraries play in processes of their own, one at a time
(scripts/bench/contenders.py); what is not installed is left out, and said so.

Ours is to lead every peer that runs the same Python environment, in every row; EnvPool runs other code, in C++, and is
there to look up to. On BipedalWalker ours is also to be 1.6 times as fast as one environment without any vector.
"""

import argparse
import itertools
import json
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from scripts.bench.contenders import BARE, CONTENDERS, OURS, PEERS, ROWS, Setting  # noqa: E402
from scripts.bench.es import describe_machine  # noqa: E402

TARGET = 1.0  # ours / best peer that runs the same Python environment
BARE_TARGET = {"BipedalWalker-v3": 1.6}  # ours / one environment
NUM_ENVS, WORKERS = (4, 16, 64, 256), (2, 4)  # the grid; EnvPool's workers are threads
QUICK_ROWS = ["CartPole-v1", "BipedalWalker-v3", "Uneven-v0"]
PILOT_S, WARM_S, PLAY_S = 0.3, 0.2, 1.0
BUSY = 1.0  # load average above which rates say little
START_S, ANSWER_S = 60.0, 60.0  # a library that needs longer is left out

Report = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run all contenders in turn, print medians and ratios; returns 1 if ours is below a target, else 0."""
    options = read_options(arguments)
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"others are at work here (load {load:.1f}): who has most processes then gets most, so trust no ratio")
    names = [name for name in CONTENDERS if name in options.contenders]
    with players({CONTENDERS[name].library for name in names}, options.pufferlib) as present:
        for library, player in present.items():
            if player.missing:
                print(f"{library} is left out: {player.missing}", flush=True)
        playing = [name for name in names if not present[CONTENDERS[name].library].missing]
        rows = {}
        for row in options.rows:
            rows[row] = play_row(row, playing, present, options)
            print(render_row(row, rows[row]), flush=True)
    report = {
        "machine": describe_machine(),
        "versions": {"python": platform.python_version()}
        | {name: number for player in present.values() for name, number in player.versions.items()},
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
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(row["reached"] for row in rows.values()) else 1


class Player:
    """A process that plays one library's contenders, one request at a time."""

    def __init__(self, library: str, python: str, script: str) -> None:
        """Start it; `missing` then says why it cannot play, if so."""
        self._process = subprocess.Popen(
            [python, "-W", "ignore", str(Path(__file__).with_name(script)), library],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self._closed = False
        self.missing: str | None = None
        self.versions: dict[str, str] = {}

    def greet(self) -> None:
        """Wait until it has imported its library."""
        greeting = self._answer(START_S)
        self.missing = greeting.get("missing") or greeting.get("error")
        self.versions = greeting.get("versions", {})

    def play(self, **request: Any) -> Report:
        """Steps and seconds, or an error."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
        except (BrokenPipeError, ValueError):  # the latter when it is closed
            return {"error": "its process has ended"}
        return self._answer(ANSWER_S + request["warm_s"] + request["seconds"])

    def close(self) -> None:
        """End it, and whatever it has started."""
        if not self._closed:
            self._closed = True
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()

    def _answer(self, timeout_s: float) -> Report:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if readable else ""
        if line:
            return json.loads(line)
        reason = f"it ended with exit code {self._process.poll()}" if readable else f"no answer in {timeout_s:.0f} s"
        self.close()
        return {"error": reason}


@contextmanager
def players(libraries: set[str], pufferlib: str, script: str = "contenders.py") -> Iterator[dict[str, Player]]:
    """Players of these libraries, in processes that run the script; they are gone afterwards."""
    with ExitStack() as stack:
        started = {}
        for library in sorted(libraries):
            started[library] = Player(library, pufferlib if library == "pufferlib" else sys.executable, script)
            stack.callback(started[library].close)
        for player in started.values():
            player.greet()
        yield started


def play_row(row: str, names: list[str], present: dict[str, Player], options: argparse.Namespace) -> Report:
    """Every contender's rates in one environment, and what they say."""
    best: dict[str, Setting] = {}
    errors: dict[str, str] = {}
    rates: dict[str, list[float]] = {}

    def rate(name: str, setting: Setting, seconds: float) -> float:
        player = present[CONTENDERS[name].library]
        answer = player.play(contender=name, row_name=row, setting=setting, warm_s=options.warm_s, seconds=seconds)
        if "error" in answer:
            errors[name] = answer["error"]
            return 0.0
        return answer["steps"] / answer["seconds"]

    for name in names:
        settings = CONTENDERS[name].settings(options.num_envs, options.workers)
        pilot = [rate(name, setting, options.pilot_s) if len(settings) > 1 else 1.0 for setting in settings]
        if max(pilot) > 0:
            best[name] = settings[pilot.index(max(pilot))]
            rates[name] = []
    for _, name in itertools.product(range(options.repeats), list(best)):
        rates[name].append(rate(name, best[name], options.play_s))
    rates = {name: runs for name, runs in rates.items() if min(runs) > 0}
    sides = {name: summary(runs, best[name]) for name, runs in rates.items()}
    return {"sides": sides, "errors": {name: errors[name] for name in errors if name not in sides}} | verdict(
        row, rates
    )


def summary(rates: list[float], setting: Setting) -> Report:
    return {
        "median": statistics.median(rates),
        "min": min(rates),
        "max": max(rates),
        "rates": rates,
        "setting": setting,
    }


def verdict(row: str, rates: dict[str, list[float]]) -> Report:
    """Ratios of our best contender's rates to those of the best peer and of one environment, and whether they suffice.

    Best is who has the highest median. A ratio is the median of those of the single repetitions; None where a side is
    not there, and a target that cannot be measured is not missed.
    """

    def best(names: list[str]) -> str | None:
        present = [name for name in names if name in rates]
        return max(present, key=lambda name: statistics.median(rates[name])) if present else None

    def ratio(ours: str | None, other: str | None) -> float | None:
        if ours is None or other is None:
            return None
        return statistics.median(a / b for a, b in zip(rates[ours], rates[other], strict=True))

    ours, peer = best(OURS), best(PEERS)
    to_peer, to_bare = ratio(ours, peer), ratio(ours, best([BARE]))
    enough = [(to_peer, TARGET), (to_bare, BARE_TARGET.get(row, 0.0))]
    reached = ours is not None and all(measured is None or measured >= target for measured, target in enough)
    return {"ours": ours, "peer": peer, "ratio": to_peer, "ratio_to_bare": to_bare, "reached": reached}


def render_row(row: str, result: Report) -> str:
    """One environment's contenders: medians, and between what they lay."""
    lines = ["", f"{row:26}{'steps/s':>12}{'min':>12}{'max':>12}   setting"]
    for name, side in result["sides"].items():
        setting = " ".join(f"{key}={value}" for key, value in side["setting"].items())
        other = "" if CONTENDERS[name].python else "  (other code, C++)"
        lines.append(f"  {name:24}{side['median']:12,.0f}{side['min']:12,.0f}{side['max']:12,.0f}   {setting}{other}")
    lines += [f"  {name:24}left out: {error}" for name, error in result["errors"].items()]
    return "\n".join(lines)


def render(report: Report) -> str:
    """Machine, versions and the ratios of all rows."""
    settings = report["settings"]
    lines = [
        "",
        report["machine"],
        ", ".join(f"{name} {number}" for name, number in report["versions"].items()),
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
        bare = f" and {BARE_TARGET[row]:.2f} to one" if row in BARE_TARGET else ""
        names = f"{row:26}{result['ours'] or '-':20}{result['peer'] or '-':22}"
        lines.append(f"{names}{ratios}  target {report['target']:.2f}{bare} {word}")
    return "\n".join(lines)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; --quick changes what is not given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: three rows, one setting, 2 short repeats")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), metavar="ROW", help=f"of {', '.join(ROWS)} (all)")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), metavar="NAME", help="some of them (all)")
    parser.add_argument(
        "--pufferlib", metavar="PYTHON", default=sys.executable, help="an interpreter that has PufferLib"
    )
    parser.add_argument("--repeats", type=int, help="measured runs of each contender (5)")
    parser.add_argument("--seconds", type=float, help=f"that each run measures ({PLAY_S})")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (QUICK_ROWS if options.quick else list(ROWS))
    options.contenders = options.contenders or list(CONTENDERS)
    options.repeats = options.repeats or (2 if options.quick else 5)
    options.play_s = options.seconds or (0.2 if options.quick else PLAY_S)
    options.warm_s, options.pilot_s = (0.1, 0.1) if options.quick else (WARM_S, PILOT_S)
    options.num_envs, options.workers = ((8,), (2,)) if options.quick else (NUM_ENVS, WORKERS)
    return options


if __name__ == "__main__":
    sys.exit(main())
