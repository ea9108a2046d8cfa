"""Contenders in separate processes, measured in interleaved runs at their best settings of a grid."""

import argparse
import itertools
import json
import os
import select
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from scripts.bench.contenders.vectors import Setting
from scripts.bench.harness import ROOT, Report, positive_float, positive_int

START_S, ANSWER_S = 60.0, 60.0  # slower libraries are skipped
Grids = Mapping[str, Sequence[Setting]]  # by contender


class Player:
    """Process that runs one library's contenders, one request at a time."""

    def __init__(self, library: str, python: str, script: str) -> None:
        """Start the process; after `greet`, `missing` is the reason why it is unusable, if any."""
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
        """Wait until the library is imported."""
        greeting = self._answer(START_S)
        self.missing = greeting.get("missing") or greeting.get("error")
        self.versions = greeting.get("versions", {})

    def play(self, **request: Any) -> Report:
        """Return steps and seconds, or an error."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
        except (BrokenPipeError, ValueError):  # ValueError: closed
            return {"error": "its process has exited"}
        return self._answer(ANSWER_S + request["warm_s"] + request["seconds"])

    def close(self) -> None:
        """Kill the process and its children."""
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
        reason = f"exit code {self._process.poll()}" if readable else f"no answer in {timeout_s:.0f} s"
        self.close()
        return {"error": reason}


@contextmanager
def players(
    libraries: set[str], interpreters: Mapping[str, str], script: str = "vectors.py"
) -> Iterator[dict[str, Player]]:
    """Start a process that runs the script for each library, by its interpreter if one is given, and end them."""
    with ExitStack() as stack:
        started = {}
        for library in sorted(libraries):
            started[library] = Player(library, interpreters.get(library, sys.executable), script)
            stack.callback(started[library].close)
        for library, player in started.items():
            player.greet()
            if player.missing:
                print(f"{library} is skipped: {player.missing}", flush=True)
        yield started


def play_row(
    row: str, grids: Grids, player_of: Mapping[str, Player], clocks: Mapping[str, str], options: argparse.Namespace
) -> Report:
    """Measure the rates of all contenders in one environment, each at the best setting of its grid.

    `clocks` has the denominator of a contender's rate: `seconds` (default) or `cpu_s`.
    """
    best: dict[str, Setting] = {}
    errors: dict[str, str] = {}
    rates: dict[str, list[float]] = {}

    def rate(name: str, setting: Setting, seconds: float) -> float:
        answer = player_of[name].play(
            contender=name, row_name=row, setting=setting, warm_s=options.warm_s, seconds=seconds
        )
        if "error" in answer:
            errors[name] = answer["error"]
            return 0.0
        return answer["steps"] / answer[clocks.get(name, "seconds")]

    for name, settings in grids.items():
        pilot = [rate(name, setting, options.pilot_s) if len(settings) > 1 else 1.0 for setting in settings]
        if max(pilot) > 0:
            best[name] = settings[pilot.index(max(pilot))]
            rates[name] = []
    for _, name in itertools.product(range(options.repeats), list(best)):
        rates[name].append(rate(name, best[name], options.play_s))
    sides = {
        name: {"median": statistics.median(runs), "min": min(runs), "max": max(runs), "rates": runs}
        | {"setting": best[name]}
        for name, runs in rates.items()
        if min(runs) > 0
    }
    return {"sides": sides, "errors": {name: errors[name] for name in errors if name not in sides}}


def library_versions(present: Mapping[str, Player]) -> dict[str, str]:
    """Return the versions of the players' libraries."""
    return {name: number for player in present.values() for name, number in player.versions.items()}


def add_options(parser: argparse.ArgumentParser, rows: Sequence[str], play_s: float) -> None:
    """Add the options for rows, repeats and seconds."""
    parser.add_argument("--rows", nargs="+", choices=rows, metavar="ROW", help=f"of {', '.join(rows)} (all)")
    parser.add_argument("--repeats", type=positive_int, help="measured runs of each contender (5)")
    parser.add_argument("--seconds", type=positive_float, help=f"duration of each run ({play_s})")
