"""How pytest-xdist spreads the suite over processes: what stays together, the longest first, and what is left out.

Slurm's tests are one lane, since there is one cluster, and it begins at once, since it waits more than it computes.
A file stays in one process for its fixtures' sake, unless it takes so long that its tests are dealt out one by one;
those that share a fixture of the module or of a class stay together all the same, since another file's test in between
would have it made anew. durations.txt, which scripts/durations.py makes, tells how long a file takes; one that it lacks
begins before all others, lest it be a long one that a single process is left with at the end.
"""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

DURATIONS = Path(__file__).with_name("durations.txt")
LONG_S = 45.0  # a file that takes longer is dealt out
UNKNOWN_S = 1000.0  # a test of a file that the table lacks, for all that is known
FAST_S = 0.2  # a test that takes longer is no part of `--fast`
LEFT_OUT = ("nightly", "slow", "slurm", "real_start")  # of `--fast`, whatever they take


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what scripts/check hands on."""
    parser.addoption("--nightly", action="store_true", help="also tests marked nightly: more seeds, more combinations")
    parser.addoption("--fast", action="store_true", help=f"only tests that take less than {FAST_S} s")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, and under pytest-xdist group and sort."""
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (kept if _wanted(config, item) else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept
    if not hasattr(config, "workerinput"):
        return
    lanes: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        lanes[_lane(item)].append(item)
    for name, members in lanes.items():
        for item in members:
            item.add_marker(pytest.mark.xdist_group(name))
            # pytest-xdist 3.8 tells its scheduler the group in a field that pytest 9.2 no longer reads.
            if hasattr(item, "_id") and not item.nodeid.endswith(f"@{name}"):
                item._id = type(item._id).parse(f"{item.nodeid}@{name}")

    def weight(name: str) -> float:
        if name == "slurm":
            return float("inf")
        return sum(duration(_name(item)) if item.path.stem in durations() else UNKNOWN_S for item in lanes[name])

    items[:] = [item for name in sorted(lanes, key=lambda name: (-weight(name), name)) for item in lanes[name]]


@cache
def durations() -> dict[str, float]:
    """Seconds of files, of their longer tests, and under `file::` of each other test of a file, as they once were."""
    text = DURATIONS.read_text() if DURATIONS.exists() else ""
    of_files = re.findall(r"^ *([\d.]+) +[\d.]+ +(\d+) +(test_\w+)$", text, re.M)
    of_tests = re.findall(r"^ *([\d.]+) +[\d.]+ +(test_\w+)(::.*)$", text, re.M)
    found: dict[str, float] = {}
    longer: dict[str, list[float]] = defaultdict(list)
    for seconds, file, test in of_tests:
        found[file + test] = float(seconds)
        longer[file].append(float(seconds))
    for seconds, count, file in of_files:
        found[file] = float(seconds)
        found[f"{file}::"] = max(float(seconds) - sum(longer[file]), 0.0) / max(int(count) - len(longer[file]), 1)
    return found


def duration(name: str) -> float:
    """Seconds of a test; of one that the table lacks, what the shorter ones of its file took, or little."""
    return durations().get(name, durations().get(f"{name.partition('::')[0]}::", 0.05))


def _wanted(config: pytest.Config, item: pytest.Item) -> bool:
    if config.getoption("fast"):
        left_out = any(item.get_closest_marker(mark) for mark in LEFT_OUT)
        return not left_out and duration(_name(item)) < FAST_S
    return config.getoption("nightly") or item.get_closest_marker("nightly") is None


def _name(item: pytest.Item) -> str:
    return f"{item.path.stem}::{item.name}"


def _lane(item: pytest.Item) -> str:
    if item.get_closest_marker("slurm"):
        return "slurm"
    if group := item.get_closest_marker("xdist_group"):
        return str(group.args[0])
    file = item.path.stem
    return _name(item) if durations().get(file, 0.0) > LONG_S and not _shares(item) else file


def _shares(item: pytest.Item) -> bool:
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009, it is pytest's own
    return any(fixture.scope in ("module", "class") for *_, fixture in fixtures.values())
