"""Common parts of benchmarks: command line, machine description, interleaved rounds, report and exit code.

Scripts are started by path, so that Python adds only their own folder; they add ROOT to sys.path before this import.
"""

import argparse
import json
import math
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from paddock.config.command import check_output, print_error, run_and_flush
from paddock.envs.errors import ConfigError, PaddockError, install, one_line, require

ROOT = Path(__file__).resolve().parents[2]
BUSY = 1.0  # load average above which rates are unreliable

Report = dict[str, Any]
T = TypeVar("T")


def command_line(doc: str | None, quick: str) -> argparse.ArgumentParser:
    """Return a parser of the common options.

    Args:
        doc: the benchmark's docstring.
        quick: what `--quick` does.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=output_file, metavar="PATH", help="write the results to this file")
    return parser


def output_file(text: str) -> Path:
    """Parse the path of the results, and check early that it is writable."""
    path = Path(text)
    try:
        check_output("PATH", path, (path.suffix,))
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return path


def positive_int(text: str) -> int:
    """Parse a positive integer."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def positive_float(text: str) -> float:
    """Parse a positive number."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def interpreter(text: str) -> str:
    """Parse a Python interpreter, and return its absolute path."""
    found = shutil.which(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text} is not an executable; pass a Python interpreter, such as PATH/bin/python"
        )
    return os.path.abspath(found)


def require_package(module: str, extra: str) -> None:
    """Exit with one line if a module of an extra is not installed."""
    if find_spec(module) is None:
        sys.exit(print_error(ConfigError(f"{module} is not installed; {install(extra)}"), 2))


def run_script(main: Callable[[], int | None]) -> int:
    """Run a script's main, and report errors in one line.

    Returns:
        The exit code: main's, which is 1 below a target; 2 for an error, or that of `run_and_flush`.
    """
    try:
        return run_and_flush(main)
    except PaddockError as error:
        return print_error(error, 2)
    except (HydraException, OmegaConfBaseException, OSError) as error:
        return print_error(ConfigError(one_line(error)), 2)


def describe_machine() -> str:
    """Return processor, cores, load average and operating system."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.system()} {platform.release()}"


def warn_if_busy() -> None:
    """Print a warning if the load average is high."""
    if (load := os.getloadavg()[0]) > BUSY:
        print(f"the machine is busy (load {load:.1f}): ratios are more reliable than rates")


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of installed packages."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def list_versions(report: Report) -> str:
    """Return a report's versions in one line."""
    return ", ".join(f"{name} {number}" for name, number in report["versions"].items())


def in_turns(rounds: int, sides: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Return each side's results of interleaved rounds, in which every side runs once."""
    runs = [{name: play() for name, play in sides.items()} for _ in range(rounds)]
    return {name: [run[name] for run in runs] for name in sides}


def seconds_of(call: Callable[[], Any]) -> float:
    """Return the duration of a call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def medians(runs: Sequence[Report]) -> Report:
    """Return the median of every figure over runs."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def read_kept(path: Path | None) -> Report:
    """Return the report that a benchmark extends, with `rows` by name; empty if there is none yet.

    Raises:
        ConfigError: the file is not such a report.
    """
    if path is None or not path.exists():
        return {"rows": {}}
    try:
        kept = json.loads(path.read_text())
    except ValueError:
        kept = None
    rows = kept.get("rows") if isinstance(kept, dict) else None
    known = isinstance(rows, dict) and all(isinstance(row, dict) for row in rows.values())
    require(known, f"--json {path} is not a report of this benchmark; choose another file")
    report: Report = kept
    return report


def finish(report: Report, path: Path | None, reached: bool) -> int:
    """Write the report if requested, and return the exit code, which is 1 below a target."""
    if path is not None:
        path.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if reached else 1
