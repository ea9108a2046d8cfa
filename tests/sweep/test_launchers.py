"""Where runs of sweeps and grids are launched: side by side on this machine, on Dask's workers, in Slurm's queue."""

import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from conftest import TINY, call_main, command_line, rows, wait_until
from optuna.trial import TrialState
from run_folders import write
from slurm_cluster import Slurm, slurm  # noqa: F401, a fixture
from sweep_commands import FINISHED, PACED, PRUNED, SPACE, Desk, desk_fixture  # noqa: F401

from paddock.runs.loop import RunFailed
from paddock.sweep.launchers import LocalKeys, LocalLauncher, _run_all
from paddock.sweep.placement import End, Plan


def test_parallel_grid_equals_a_serial_one(desk: Desk) -> None:
    base = [sys.executable, "-m", "paddock", *TINY, "compute=serial", "budget.iterations=2", "--multirun", "seed=1,2,3"]
    outs = {}
    here = desk.here / "schön"  # of which each run is told the path
    here.mkdir()
    for folder, launcher in {"beside": "local", "after": "basic"}.items():
        command = [*base, f"hydra/launcher={launcher}", f"hydra.sweep.dir={folder}"]
        done = subprocess.run(command, cwd=here, env=desk.environment, check=True, capture_output=True, text=True)
        outs[folder] = done.stdout
    assert all(out.endswith("3 done\n") for out in outs.values())
    for number in "012":
        one, other = (here / folder / number / "metrics.jsonl" for folder in outs)
        assert one.read_bytes() == other.read_bytes()


def test_end_of_each_run_of_a_grid_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Ended:
        def __init__(self, run: Path) -> None:
            self.run = run

        def ended(self) -> End:
            if self.run.name == "wrong":
                return End(1, ["it burned"])
            write(self.run, [{"eval/return_mean": 7.0}])
            return End(0, [])

        def stop(self) -> None:
            raise AssertionError

    class OneByOne:
        stays, slots = False, 1

        def start(self, plan: Plan) -> Ended:
            return Ended(plan.run)

        def close(self) -> None:
            pass

    plans = [Plan([f"seed={name}"], tmp_path / name, []) for name in ("a", "b", "wrong")]
    with pytest.raises(RunFailed):
        _run_all(OneByOne(), plans, tmp_path)
    out, err = capsys.readouterr()
    assert f"ended {tmp_path / 'a'}: budget.iterations=2, return 7  (1 of 3)" in out.splitlines()
    assert f"ended {tmp_path / 'b'}: budget.iterations=2, return 7  (2 of 3)" in out.splitlines()
    assert err.splitlines() == [f"{tmp_path / 'wrong'} ended with exit code 1  (3 of 3)", "    | it burned"]


def test_interrupted_grid_prints_the_command_that_resumes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise SystemExit(130)  # as a run does that a signal ends

    (tmp_path / "own groups").mkdir()
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("paddock.launch.run_experiment", interrupt)
        line = ["-m", *TINY, "compute=serial", "budget.iterations=1", "seed=1,2", "--config-dir", "own groups"]
        assert call_main(*line) == 130
    [folder] = (tmp_path / "multirun").iterdir()
    command, _, what = capfd.readouterr().out.splitlines()[-1].partition("  # ")
    assert what == "resumes the grid" and command.startswith("  python -m platform ")
    assert call_main(*shlex.split(command)[3:]) == 0
    assert [*(tmp_path / "multirun").iterdir()] == [folder]
    assert all((folder / number / "done.json").exists() for number in "01")


def test_full_disk_ends_a_grid_in_a_line(tmp_path: Path) -> None:
    class Full:
        stays, slots = False, 1

        def start(self, plan: Plan) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None:
            pass

    launcher = LocalLauncher()
    launcher._config = SimpleNamespace(hydra=SimpleNamespace(sweep=SimpleNamespace(dir=tmp_path)))  # type: ignore[assignment]
    launcher._keys = SimpleNamespace(open=Full)
    with pytest.raises(RunFailed, match=r"stopped \(No space left on device\); .*hydra.sweep.dir=\S+"):
        launcher._run([Plan([], tmp_path / "0", [])])


def test_parallel_runs_have_their_cores_and_a_gpu_each(tmp_path: Path) -> None:
    target = LocalKeys(jobs=None, cpus=3, gpus=(4, 7)).open()
    code = "import os; print(*(os.environ[k] for k in ('CUDA_VISIBLE_DEVICES', 'OMP_NUM_THREADS', 'PYTHON_CPU_COUNT')))"
    plans = [Plan([], tmp_path / name, ["python", "-c", code]) for name in "abc"]
    assert target.slots == 2
    running = [target.start(plan) for plan in plans[:2]]
    ends = [wait_until(run.ended) for run in running if run is not None]
    running = [target.start(plans[2])]
    ends += [wait_until(run.ended) for run in running if run is not None]
    assert [(end.code, end.output) for end in ends] == [(0, ["4 3 3"]), (0, ["7 3 3"]), (0, ["4 3 3"])]


def test_trials_on_dask_survive_a_dead_worker(desk: Desk, scheduler: str, worker: Callable[..., str]) -> None:
    for _ in range(2):
        worker()
    line = [*PACED, SPACE, "budget.iterations=6", "hydra.sweeper.n_trials=3", "hydra.sweeper.pruner=none"]
    desk.slow.touch()
    process = desk.begin(*line, "hydra/launcher=dask", f"hydra.launcher.address={scheduler}")
    wait_until(lambda: rows(desk.sweep / "0"), 120)
    [victim] = [p for p in psutil.process_iter() if f"run.dir={desk.sweep}/0" in command_line(p)]
    parent = victim.parent()
    assert parent is not None
    parent.kill()
    assert len(rows(desk.sweep / "0")) < 6
    desk.slow.unlink()
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert desk.count(TrialState.COMPLETE) == 3
    assert [row["iteration"] for row in rows(desk.sweep / "0")] == [*range(1, 7)]


def test_trials_on_dask_end_with_their_sweep_and_resume(desk: Desk, scheduler: str, worker: Callable[..., str]) -> None:
    worker()
    line = [*PACED, "budget.iterations=20", "hydra/launcher=dask", f"hydra.launcher.address={scheduler}"]
    desk.slow.touch()
    process = desk.begin(*line, SPACE, "hydra.sweeper.n_trials=1", "hydra.sweeper.pruner=none")
    run = desk.sweep / "0"
    wait_until(lambda: rows(run), 120)
    process.kill()
    process.wait()
    wait_until(lambda: not [p for p in psutil.process_iter() if f"run.dir={run}" in command_line(p)], 60)
    assert 0 < len(rows(run)) < 20
    desk.slow.unlink()
    code, _, err = desk.call(*line, SPACE, "hydra.sweeper.n_trials=1", "hydra.sweeper.pruner=none")
    assert (code, err) == (0, "")
    assert [row["iteration"] for row in rows(run)] == [*range(1, 21)]


@pytest.mark.slurm
def test_trials_in_slurm_outlive_their_sweep(desk: Desk, slurm: Slurm) -> None:  # noqa: F811
    desk.environment |= slurm.environment
    line = [*PACED, SPACE, "budget.iterations=6", "hydra.sweeper.n_trials=3", "hydra/launcher=slurm", *PRUNED]
    line += ["hydra.launcher.max_parallel=2"]
    desk.slow.touch()
    process = desk.begin(*line)
    wait_until(lambda: rows(desk.sweep / "0"))
    desk.kill(process)
    assert len(rows(desk.sweep / "0")) < 6
    desk.slow.unlink()
    submitted = json.loads((desk.sweep / "0" / "submission.json").read_text())["job"]
    code, _, err = desk.call(*line)
    assert (code, err) == (0, "")
    assert desk.count(*FINISHED) == 3
    assert json.loads((desk.sweep / "0" / "submission.json").read_text())["job"] == submitted  # not a second one
