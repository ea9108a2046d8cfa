"""TensorBoard and W&B: they hold the rows and resume with the run, and say so where they cannot."""

import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from conftest import TINY, call_main
from mirrored import history, quiet, records, row, rows_of, run_code, tensorboard, wandb, wandb_home_fixture  # noqa: F401

from paddock.envs.errors import ConfigError
from paddock.tracking.console import Console
from paddock.tracking.tracker import Tracker
from paddock.tracking.wandb import Wandb

# TensorBoard


def test_tensorboard_has_each_row_once_after_a_resume(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

    for restored, last in ((0, 4), (2, 5)):
        tracker = Tracker(tmp_path, [tensorboard(tmp_path)], restored, quiet())
        for i in range(restored + 1, last + 1):
            tracker.log(row(i) | {"a/session": restored})
        tracker.close()
    folder = str(tmp_path / "tensorboard")
    events = EventAccumulator(folder, {"scalars": 0}).Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/return_mean")] == [
        (100 * i, float(np.float32(i / 3))) for i in range(1, 6)
    ]
    assert [e.value for e in events.Scalars("a/session")] == [0, 0, 2, 2, 2]
    # The loader behind TensorBoard's page takes only a second START for a restart.
    loader = EventMultiplexer().AddRun(folder, "r").Reload()
    assert [e.step for e in loader.Tensors("r", "a/session")] == [100, 200, 300, 400, 500]


# Weights & Biases


def children_of(mirror: Wandb) -> list[psutil.Process]:
    assert mirror._process is not None
    child = psutil.Process(mirror._process.child.popen.pid)
    return [child, *child.children(recursive=True)]


def test_wandb_offline_holds_the_rows_and_continues_its_run(tmp_path: Path, wandb_home: Path) -> None:
    run_dir = tmp_path / "run"
    ids = []
    for restored, last in ((0, 4), (2, 5)):
        mirror, out, err = wandb(run_dir), io.StringIO(), io.StringIO()
        tracker = Tracker(run_dir, [mirror], restored, Console(out, err, {}))
        for i in range(restored + 1, last + 1):
            tracker.log(row(i))
        tracker.close()
        tracker.close()
        assert err.getvalue() == ""
        folder = re.search(r"W&B is offline \(as configured\); upload later: wandb sync (\S+)", out.getvalue())
        assert folder and Path(folder.group(1)).is_dir()
        assert mirror._process is not None and mirror._process.child.popen.poll() == 0
        ids.append((run_dir / "wandb" / "run_id").read_text())
        assert mirror.commands() == [
            f"wandb sync {folder.group(1) if restored == 0 else run_dir / 'wandb/offline-run-*'}"
        ]
    first, second = history(run_dir)
    assert ids[0] == ids[1] == first[0].run_id == second[0].run_id
    for (run, rows), iterations in ((first, range(1, 5)), (second, range(3, 6))):
        assert (run.project, run.run_group, run.display_name, list(run.tags)) == ("farm", "seeds", "a name", ["tagged"])
        config = {item.key: json.loads(item.value_json) for item in run.config.update}
        assert config["algo"] == {"sigma": 0.1}
        assert [{key: got[key] for key in row(1)} for got in rows] == [row(i) for i in iterations]
        assert [got["_step"] for got in rows] == [
            10 * i for i in iterations
        ]  # so that W&B knows a row that comes again
    assert not list(wandb_home.glob("wandb"))


def test_final_evaluations_are_rows_of_their_own(tmp_path: Path, wandb_home: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def evaluation(of: int) -> dict[str, float]:
        return {"eval/return_mean": 10.0 * of, "eval/of_iteration": of}

    for restored in (0, 3):  # the second time only its end is left to do
        tracker = Tracker(tmp_path, [wandb(tmp_path), tensorboard(tmp_path)], restored, quiet())
        for i in range(restored + 1, 4):
            tracker.log(row(i) | evaluation(i - 1))
        for of in (2, 3):
            tracker.log_end(evaluation(of))
        tracker.close()
    (_, rows), (_, again) = history(tmp_path)
    assert [got["eval/of_iteration"] for got in rows] == [0, 1, 2, 2, 3]
    assert [{key: got[key] for key in (*row(1), "eval/return_mean")} for got in rows[:3]] == [
        row(i) | {"eval/return_mean": 10.0 * (i - 1)} for i in range(1, 4)
    ]
    assert [(got["iteration"], got["eval/return_mean"]) for got in rows[3:]] == [(3, 20.0), (3, 30.0)]
    assert [got["_step"] for got in again] == [got["_step"] for got in rows[3:]] == [31, 32]
    events = EventAccumulator(str(tmp_path / "tensorboard"), {"scalars": 0}).Reload()
    assert [e.value for e in events.Scalars("eval/return_mean")][:5] == [0, 10, 20, 20, 30]


def test_wandb_goes_offline_without_a_key(tmp_path: Path, wandb_home: Path) -> None:
    run_dir, out, err = tmp_path / "run", io.StringIO(), io.StringIO()
    tracker = Tracker(run_dir, [wandb(run_dir, "online")], 0, Console(out, err, {}))
    tracker.log(row(1))
    tracker.close()
    line = next(line for line in out.getvalue().splitlines() if line.startswith("W&B"))
    assert (
        re.fullmatch(r"W&B is offline \(.+\); upload later: wandb sync \S+", line) and "No API key configured" in line
    )
    assert err.getvalue() == ""
    ((_, rows),) = history(run_dir)
    assert [got["train/return_mean"] for got in rows] == [1 / 3]


def test_wandb_keeps_the_rows_of_a_killed_run(tmp_path: Path, wandb_home: Path) -> None:
    code = """
mirror = Wandb(mode="offline", project="p", entity=None, group=None, job_type=None, tags=[], init_timeout_s=5,
               queue_rows=99, close_timeout_s=30, run_dir=RUN, run_name="r", config={"algo": {"name": "es"}})
tracker = go([mirror], 3)
tracker._queues[0][1].offer(lambda: print("fed", mirror._process.child.popen.pid, file=sys.stderr, flush=True))
threading.Event().wait()
"""
    process = run_code(tmp_path, code, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    fed, pid = process.stderr.readline().split()
    child = psutil.Process(int(pid))
    process.kill()
    process.communicate()
    assert fed == b"fed" and psutil.wait_procs([child], timeout=60)[1] == []
    ((_, rows),) = history(tmp_path)
    assert [got["iteration"] for got in rows] == [1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mode": "onlin"}, "mode=onlin must be one of online, offline, disabled"),
        ({"close_timeout_s": -1.0}, "close_timeout_s=-1.0 must be positive"),
    ],
)
def test_wrong_setting_is_one_line(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        wandb(tmp_path, **changes)
    assert str(caught.value).startswith(says) and "\n" not in str(caught.value)


# The choices


def test_end_of_a_run_shows_the_commands_of_its_mirrors(
    tmp_path: Path, wandb_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "a run"
    track = ["track=all", "track.wandb.mode=offline"]
    assert call_main(*TINY, "compute=serial", "budget.iterations=1", f"run.dir='{run}'", *track) == 0
    (session,) = (run / "wandb").glob("offline-run-*")
    lines = capfd.readouterr().out.splitlines()
    assert f"  tensorboard --logdir '{run}'" in lines
    assert f"  wandb sync '{session}'" in lines
    assert any(line.endswith(f"; upload later: wandb sync '{session}'") for line in lines)
