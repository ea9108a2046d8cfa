"""Stop and resume: a run that is killed at any moment and resumed is the run that was not."""

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TINY, Command, final_state, rows, wait_until

from paddock.checkpoint import CheckpointError, Checkpoints, check_fits, read
from paddock.folder import changed_keys

ITERATIONS = 30


def arguments(run: Path, iterations: int = ITERATIONS) -> list[str]:
    return [*TINY, "compute=serial", f"budget.iterations={iterations}", f"run.dir={run}"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    code, _, err = Command(*arguments(run)).wait()
    assert code == 0, err
    return run


def assert_same(run: Path, other: Path) -> None:
    assert (run / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert final_state(run) == final_state(other)


# Killed


@pytest.mark.parametrize("compute", ["serial", "local"])
def test_killed_and_resumed_equals_undisturbed(
    compute: str, undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    chance = random.Random(compute)
    reached = 0
    for _ in range(3):
        command = start(*arguments(run), f"compute={compute}")
        goal = reached + chance.randint(1, 8)
        command.wait_for(run, goal)
        command.kill()
        reached = len(rows(run))
    code, out, err = start(*arguments(run), f"compute={compute}").wait()
    assert code == 0, err
    assert "going on in" in out
    assert_same(undisturbed, run)


def test_killed_before_its_first_checkpoint_a_run_starts_again(
    undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    command = start(*arguments(run), "checkpoint.every_s=1000")
    wait_until(lambda: len(rows(run)) >= 3)
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait()
    assert not list(run.glob("checkpoints/*.npz"))
    code, _, err = start(*arguments(run)).wait()
    assert code == 0, err
    assert_same(undisturbed, run)


def test_resume_last_goes_on_with_the_newest_run(tmp_path: Path, start: Callable[..., Command]) -> None:
    root = [*TINY, "compute=serial", f"run.root={tmp_path}"]
    for seed in (1, 2):
        assert start(*root, f"seed={seed}", "budget.iterations=3").wait()[0] == 0
    code, out, err = start(*root, "seed=2", "budget.iterations=5", "resume=last").wait()
    assert code == 0, err
    (run,) = tmp_path.glob("*_seed2")
    assert f"going on in {run}" in out
    assert [row["iteration"] for row in rows(run)] == [1, 2, 3, 4, 5]


def test_a_finished_run_says_so_and_a_raised_budget_goes_on(
    undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    assert start(*arguments(run, 10)).wait()[0] == 0
    before = (run / "metrics.jsonl").read_bytes()
    code, out, _ = start(*arguments(run, 10)).wait()
    assert code == 0 and "has reached budget.iterations=10 before" in out
    assert (run / "metrics.jsonl").read_bytes() == before
    assert start(*arguments(run)).wait()[0] == 0
    assert_same(undisturbed, run)


def test_killed_while_its_folder_is_made_a_run_starts_again(
    undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    bare, described = tmp_path / "bare", tmp_path / "described"
    for run in (bare, described):
        run.mkdir()
        (run / "lock").touch()
        (run / ".config.yaml.tmp").write_text("algo:")  # cut off
    (described / "config.yaml").write_bytes((undisturbed / "config.yaml").read_bytes())
    for run in (bare, described):
        code, _, err = start(*arguments(run)).wait()
        assert code == 0, err
        assert_same(undisturbed, run)
        assert (run / "provenance.json").exists()


# Stopped


@pytest.mark.parametrize(
    ("number", "compute"), [(signal.SIGINT, "serial"), (signal.SIGTERM, "serial"), (signal.SIGINT, "local")]
)
def test_a_signal_finishes_the_iteration_saves_and_exits_with_its_code(
    number: signal.Signals, compute: str, undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    command = start(*arguments(run), f"compute={compute}", "checkpoint.every_s=1000")
    wait_until(lambda: len(rows(run)) >= 2)
    if number == signal.SIGINT:
        command.interrupt()
    else:
        os.kill(command.process.pid, number)
    code, out, err = command.wait()
    assert code == 128 + number, err
    assert f"stopped by {number.name}" in out
    assert "Traceback" not in err
    wait_until(lambda: not command.processes())
    saved = read(max((run / "checkpoints").glob("*.npz")))
    assert saved["algorithm"]["iteration"] == len(rows(run)) < ITERATIONS
    assert start(*arguments(run), f"compute={compute}").wait()[0] == 0
    assert_same(undisturbed, run)


def test_a_second_interrupt_leaves_at_once_and_no_process(tmp_path: Path, start: Callable[..., Command]) -> None:
    run = tmp_path / "run"
    # An iteration of many minutes, so that only the second interrupt can end it.
    command = start(
        "algo=es",
        "env=pendulum",
        "algo.population=20000",
        "algo.pairs_per_task=500",
        "compute=local",
        "compute.workers=2",
        f"run.dir={run}",
    )
    wait_until(lambda: (run / "config.yaml").exists() and (run / "metrics.jsonl").exists())
    os.kill(command.process.pid, signal.SIGINT)
    assert command.process.stdout is not None
    for line in command.process.stdout:
        if "stopping after this iteration" in line:
            break
    os.kill(command.process.pid, signal.SIGINT)
    assert command.process.wait(60) == 130
    wait_until(lambda: not command.processes())


# Checkpoints


def state(iteration: int) -> dict[str, Any]:
    array = np.arange(5.0) * iteration
    return {"algorithm": {"mean": array, "deep": {"count": 3, "rate": 0.1}}, "loop": {"iteration": iteration}}


def test_a_checkpoint_goes_round_unchanged(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    path = checkpoints.save(7, state(7))
    loaded = read(path)
    np.testing.assert_array_equal(loaded["algorithm"]["mean"], state(7)["algorithm"]["mean"])
    assert loaded["algorithm"]["deep"] == {"count": 3, "rate": 0.1}
    with np.load(path) as archive:  # readable without this program
        assert json.loads(str(archive["plain"]))["loop"] == {"iteration": 7}


def test_a_checkpoint_cut_off_at_any_byte_never_loses_the_one_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    checkpoints.save(1, state(1))
    newest = checkpoints.save(2, state(2))
    whole = newest.read_bytes()
    for length in range(len(whole)):
        newest.write_bytes(whole[:length])
        loaded = checkpoints.load()
        assert loaded is not None and loaded["loop"]["iteration"] == 1, length
    newest.write_bytes(whole)
    loaded = checkpoints.load()
    assert loaded is not None and loaded["loop"]["iteration"] == 2


def test_a_flipped_byte_in_an_array_is_noticed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    path = checkpoints.save(1, state(1))
    content = bytearray(path.read_bytes())
    where = content.find(np.arange(5.0).tobytes())
    content[where + 9] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        read(path)


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for iteration in (1, 5, 9, 100):
        checkpoints.save(iteration, state(iteration))
    assert [path.name for path in checkpoints.paths()] == ["00000100.npz", "00000009.npz"]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_a_misfit_names_the_leaf_and_both_shapes() -> None:
    expected = {"a": {"mean": np.zeros((3, 2))}, "n": 1}
    with pytest.raises(CheckpointError, match=r"'a.mean' has shape \(4,\) in the checkpoint and \(3, 2\)"):
        check_fits({"a": {"mean": np.zeros(4)}, "n": 1}, expected)
    with pytest.raises(CheckpointError, match="lacks 'n'"):
        check_fits({"a": {"mean": np.zeros((3, 2))}}, expected)


def test_changed_keys_are_named_and_where_it_runs_may_change() -> None:
    old = {"algo": {"sigma": 0.1}, "seed": 1, "compute": {"workers": 2}}
    new = {"algo": {"sigma": 0.2}, "seed": 1, "compute": {"workers": 9}}
    assert changed_keys(old, new) == ["algo.sigma was 0.1 and is now 0.2"]


# The folder


def test_a_run_folder_describes_itself(undisturbed: Path) -> None:
    told = json.loads((undisturbed / "provenance.json").read_text())
    assert "platform" in told["command"] and f"run.dir={undisturbed}" in told["command"]
    assert told["packages"]["numpy"] == np.__version__
    for key in ("started", "commit", "python", "cpu", "cpus", "memory_gb", "gpus", "host"):
        assert key in told, key
    done = json.loads((undisturbed / "done.json").read_text())
    assert done["reason"] == f"budget.iterations={ITERATIONS}"
    assert done["metrics"]["iteration"] == ITERATIONS
    assert "seed: 0" in (undisturbed / "config.yaml").read_text()
    system = rows(undisturbed, "system.jsonl")
    assert len(system) == ITERATIONS and system[-1]["system/steps_per_s"] > 0
