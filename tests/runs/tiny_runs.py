"""Runs of a second or less for several test files, which nothing disturbs."""

from pathlib import Path

import pytest
from conftest import TINY, call_main

ITERATIONS = 60  # three quarters of a second, in which a kill comes early enough
FEW = 20  # where nothing is killed


def arguments(run: Path, iterations: int = ITERATIONS) -> list[str]:
    return [*TINY, "compute=serial", f"budget.iterations={iterations}", f"run.dir={run}"]


@pytest.fixture(name="undisturbed", scope="module")
def undisturbed_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert call_main(*arguments(run)) == 0
    return run


@pytest.fixture(name="short", scope="module")
def short_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("short") / "run"
    assert call_main(*arguments(run, FEW)) == 0
    return run
