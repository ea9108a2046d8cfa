"""What all benchmarks share: the command line, the machine, rounds in which sides take turns, report and exit code.

Whoever imports it is started by its path, where Python looks in scripts/ alone, and so puts ROOT on sys.path before.
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
BUSY = 1.0  # load average above which rates say little

Report = dict[str, Any]
T = TypeVar("T")


def command_line(doc: str | None, quick: str) -> argparse.ArgumentParser:
    """Return a parser of what every benchmark takes.

    Args:
        doc: the benchmark's own docstring.
        quick: what `--quick` does.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=output_file, metavar="PATH", help="write the figures there")
    return parser


def output_file(text: str) -> Path:
    """Read from the command line where figures are written, which is long after."""
    path = Path(text)
    try:
        check_output("PATH", path, (path.suffix,))
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return path


def positive_int(text: str) -> int:
    """Read a positive whole number from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def positive_float(text: str) -> float:
    """Read a positive number from the command line."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def interpreter(text: str) -> str:
    """Read a Python from the command line; returns its path from any folder."""
    found = shutil.which(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is no program that can be run; name a Python, as PATH/bin/python")
    return os.path.abspath(found)


def require_package(module: str, extra: str) -> None:
    """End the script in one line where a module is missing, which an extra of ours installs; before it is imported."""
    if find_spec(module) is None:
        sys.exit(print_error(ConfigError(f"{module} is not installed; {install(extra)}"), 2))


def run_script(main: Callable[[], int | None]) -> int:
    """Run a script's main to its end, with mistakes told in one line.

    Returns:
        The exit code: what main says, which is 1 below a target; 2 for a mistake, or that of `run_and_flush`.
    """
    try:
        return run_and_flush(main)
    except PaddockError as error:
        return print_error(error, 2)
    except (HydraException, OmegaConfBaseException, OSError) as error:
        return print_error(ConfigError(one_line(error)), 2)


def describe_machine() -> str:
    """Processor, cores, and how many processes wanted them lately."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.system()} {platform.release()}"


def versions(*packages: str) -> dict[str, str]:
    """Those of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def list_versions(report: Report) -> str:
    """A report's versions in one line."""
    return ", ".join(f"{name} {number}" for name, number in report["versions"].items())


def in_turns(rounds: int, sides: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """What each side gave in each round; all sides play once before any plays again."""
    runs = [{name: play() for name, play in sides.items()} for _ in range(rounds)]
    return {name: [run[name] for run in runs] for name in sides}


def seconds_of(call: Callable[[], Any]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def medians(runs: Sequence[Report]) -> Report:
    """The median of every figure of some runs."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def read_kept(path: Path | None) -> Report:
    """Return the report that a benchmark goes on with, which has `rows` by their names; there may be none yet.

    Raises:
        ConfigError: the file has something else.
    """
    if path is None or not path.exists():
        return {"rows": {}}
    try:
        kept = json.loads(path.read_text())
    except ValueError:
        kept = None
    rows = kept.get("rows") if isinstance(kept, dict) else None
    known = isinstance(rows, dict) and all(isinstance(row, dict) for row in rows.values())
    require(known, f"--json {path} has no rows of a benchmark to go on with; name another file")
    report: Report = kept
    return report


def finish(report: Report, path: Path | None, reached: bool) -> int:
    """Write the report where that is asked for; the exit code, which is 1 below a target."""
    if path is not None:
        path.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if reached else 1
