"""How pytest-xdist spreads the suite over processes: what stays together, and the longest files first.

Slurm's tests are one group, since there is one cluster; it begins at once, since it waits more than it computes. A file
stays in one process for its fixtures' sake, unless it takes long: then its tests are dealt out one by one, but for those
that share a fixture of the module or class. durations.txt, which scripts/durations.py makes, says how long a file takes.
"""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

DURATIONS = Path(__file__).with_name("durations.txt")
LONG_S = 45.0  # a file that takes longer is dealt out
UNKNOWN_S = 1000.0  # a file that the table lacks begins first, lest it be a long one at the end
FAST_S = 10.0  # a file that takes longer is no part of `--fast`
LEFT_OUT = ("nightly", "slow", "slurm", "real_start")  # of `--fast`, whatever they take


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what scripts/check hands on."""
    parser.addoption("--nightly", action="store_true", help="also tests marked nightly: more seeds, more combinations")
    parser.addoption("--fast", action="store_true", help=f"only files that take less than {FAST_S:g} s")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests, and under pytest-xdist group and sort them."""
    config.hook.pytest_deselected(items=[item for item in items if not _wanted(config, item)])
    items[:] = [item for item in items if _wanted(config, item)]
    if not hasattr(config, "workerinput"):
        return
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[_group(item)].append(item)
    for name, members in groups.items():
        for item in members:
            item.add_marker(pytest.mark.xdist_group(name))
            # pytest-xdist 3.8 tells its scheduler the group in a field that pytest 9.2 no longer reads.
            if hasattr(item, "_id") and not item.nodeid.endswith(f"@{name}"):
                item._id = type(item._id).parse(f"{item.nodeid}@{name}")

    def weight(name: str) -> float:
        return float("inf") if name == "slurm" else durations().get(groups[name][0].path.stem, UNKNOWN_S)

    items[:] = [item for name in sorted(groups, key=lambda name: (-weight(name), name)) for item in groups[name]]


@cache
def durations() -> dict[str, float]:
    """Return the seconds that each file took."""
    text = DURATIONS.read_text() if DURATIONS.exists() else ""
    return {file: float(seconds) for seconds, file in re.findall(r"^ *([\d.]+) .* (test_\w+)$", text, re.M)}


def _wanted(config: pytest.Config, item: pytest.Item) -> bool:
    if config.getoption("fast"):
        left_out = any(item.get_closest_marker(mark) for mark in LEFT_OUT)
        return not left_out and durations().get(item.path.stem, 0.0) < FAST_S
    return config.getoption("nightly") or item.get_closest_marker("nightly") is None


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("slurm"):
        return "slurm"
    if group := item.get_closest_marker("xdist_group"):
        return str(group.args[0])
    file = item.path.stem
    return f"{file}::{item.name}" if durations().get(file, 0.0) > LONG_S and not _shares(item) else file


def _shares(item: pytest.Item) -> bool:
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009, it is pytest's own
    return any(fixture.scope in ("module", "class") for *_, fixture in fixtures.values())
