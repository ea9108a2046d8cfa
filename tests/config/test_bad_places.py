"""Folders, schedulers and workers that a run cannot go on with: named in one line, and left as they were."""

import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TINY, Command, call_main
from refusals import Refused, refused_fixture  # noqa: F401

from paddock.runs.checkpoint import Checkpoints

# Folders that hold a run

RUN = [*TINY, "compute=serial", "algo.population=4", "checkpoint.keep=3", "run.dir=run"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        assert call_main(*RUN, "budget.iterations=3") == 0
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run of three iterations, in tmp_path."""
    subprocess.run(["cp", "-r", finished, tmp_path / "run"], check=True)
    return tmp_path / "run"


def test_a_run_does_not_go_on_with_another_configuration(run: Path, refused: Refused) -> None:
    line = refused(*RUN, "algo.strategy.sigma=0.3", "seed=4", "budget.iterations=5")
    assert "run holds a run with another configuration" in line
    assert "algo.strategy.sigma was 0.1 and is now 0.3" in line
    assert "seed was 0 and is now 4" in line
    assert "use the run's values, or another run.dir=" in line


def test_a_folder_is_one_process_at_a_time(run: Path, refused: Refused) -> None:
    with open(run / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "run is in use by another process" in refused(*RUN, "budget.iterations=5", code=75)


def test_a_configuration_that_cannot_be_read_is_named(run: Path, refused: Refused) -> None:
    (run / "config.yaml").write_text("algo: [")
    assert "config.yaml is damaged" in refused(*RUN, "budget.iterations=5")


def test_without_a_whole_checkpoint_a_run_does_not_go_on(run: Path, refused: Refused) -> None:
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    line = refused(*RUN, "budget.iterations=5")
    assert "all 3 checkpoints are damaged" in line and "to start again" in line


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(
    damage: str, run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    newest, before = Checkpoints(run / "checkpoints", keep=3).paths()[:2]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    newest.write_bytes(content[:-100] if damage == "cut" else content)
    monkeypatch.chdir(run.parent)
    assert call_main(*RUN, "budget.iterations=4") == 0
    out, err = capfd.readouterr()
    assert f"run/checkpoints/{newest.name} is damaged" in err
    assert f"run/checkpoints/{before.name}" in err.partition("resuming from")[2]
    assert "(4 iterations)" in out


# Schedulers and their workers


@pytest.fixture
def dask(scheduler: str, tmp_path: Path) -> list[str]:
    return [*TINY, "compute=dask", f"compute.address={scheduler}", "budget.iterations=1", f"run.dir={tmp_path}/run"]


def test_an_unreachable_scheduler_is_named(start: Callable[..., Command], tmp_path: Path) -> None:
    code, out, err = start("compute=dask", "compute.address=tcp://127.0.0.1:9", f"run.dir={tmp_path}/run").wait()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and "compute.address=tcp://127.0.0.1:9 does not respond" in err
    assert "`dask scheduler` prints its address" in err
    assert not any(tmp_path.iterdir())


def test_a_scheduler_without_workers_is_named_with_the_remedy(
    scheduler: str, dask: list[str], refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.compute.dask.cluster.WORKERS_S", 1.0)
    line = refused(*dask)
    assert f"the scheduler at {scheduler} has no workers; start one: dask worker {scheduler}" in line


def test_a_worker_with_another_version_of_a_package_is_named(
    worker: Callable[..., str], dask: list[str], refused: Refused
) -> None:
    worker()
    metadata = "Metadata-Version: 2.1\nName: gymnasium\nVersion: 0.0.1\n"
    odd = worker(**{"gymnasium-0.0.1.dist-info__METADATA": metadata})
    line = refused(*dask)
    assert f"worker {odd} has gymnasium 0.0.1, this process " in line
    assert "pip install gymnasium==" in line


def test_a_worker_with_another_python_is_named(
    worker: Callable[..., str], dask: list[str], start: Callable[..., Command]
) -> None:
    lie = "import platform; platform.python_version = lambda: '3.9.1'"
    odd = worker("--preload", "lie", **{"lie.py": lie})
    code, _, line = start(*dask).wait()
    assert code == 2 and line.count("\n") == 1
    assert f"worker {odd} has Python 3.9.1, this process 3." in line
    assert "use one environment everywhere" in line


def test_a_worker_that_cannot_import_the_project_is_named(
    worker: Callable[..., str], dask: list[str], refused: Refused
) -> None:
    odd = worker(**{"sitecustomize.py": "import sys\nsys.modules['paddock.algos'] = None\n"})
    line = refused(*dask)
    assert f"worker {odd} cannot import the project" in line
    assert "pip install -e ." in line
