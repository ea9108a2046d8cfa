"""TensorBoard and W&B: they hold the rows and resume with the run, and say so where they cannot."""

import io
import json
import pkgutil
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from conftest import TINY, call_main, wait_until
from hydra import compose, initialize_config_dir
from mirrored import history, mlflow, quiet, records, row, rows_of, run_code, tensorboard, wandb, wandb_home_fixture  # noqa: F401
from omegaconf import OmegaConf

import paddock
from paddock.envs.errors import ConfigError
from paddock.tracking.console import Console
from paddock.tracking.mirrors import Wandb
from paddock.tracking.tracker import Tracker

TRACKS = sorted(path.stem for path in (Path(paddock.CONF) / "track").glob("*.yaml"))


# TensorBoard


def test_tensorboard_reads_back_each_row_once_also_after_a_resume(tmp_path: Path) -> None:
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


def test_tensorboard_files_are_named_in_the_order_of_writing_whatever_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for now in (2000.0, 1000.0):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        mirror = tensorboard(tmp_path)
        mirror.open(0, print)
        mirror.close()
    assert [p.name.split(".")[3] for p in sorted((tmp_path / "tensorboard").iterdir())] == ["0000002000", "0000002001"]


# Weights & Biases


def children_of(mirror: Wandb) -> list[psutil.Process]:
    assert mirror._process is not None
    child = psutil.Process(mirror._process.child.popen.pid)
    return [child, *child.children(recursive=True)]


def test_wandb_offline_holds_the_rows_and_the_config_and_a_resume_continues_the_same_run(
    tmp_path: Path, wandb_home: Path
) -> None:
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


def test_evaluations_that_a_runs_end_adds_are_rows_of_their_own_also_when_they_come_again(
    tmp_path: Path, wandb_home: Path
) -> None:
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


def test_wandb_steps_are_environment_steps(tmp_path: Path, wandb_home: Path) -> None:
    tracker = Tracker(tmp_path, [wandb(tmp_path)], 0, quiet())
    tracker.log(row(1))
    tracker.close()
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    metrics = [record.metric for record in records(file) if record.WhichOneof("record_type") == "metric"]
    assert [(m.name, m.glob_name, m.step_metric) for m in metrics][:2] == [("step", "", ""), ("", "*", "step")]


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "No API key configured"),
        ({"WANDB_API_KEY": "short"}, "API key"),
        ({"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}, ""),  # a port nobody listens on
    ],
    ids=["no key", "bad key", "no network"],
)
def test_wandb_online_that_cannot_be_turns_offline_and_says_so(
    tmp_path: Path, wandb_home: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], says: str
) -> None:
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    run_dir, out, err = tmp_path / "run", io.StringIO(), io.StringIO()
    tracker = Tracker(run_dir, [wandb(run_dir, "online")], 0, Console(out, err, {}))
    tracker.log(row(1))
    tracker.close()
    line = next(line for line in out.getvalue().splitlines() if line.startswith("W&B"))
    assert re.fullmatch(r"W&B is offline \(.+\); upload later: wandb sync \S+", line) and says in line
    assert err.getvalue() == ""
    ((_, rows),) = history(run_dir)
    assert [got["train/return_mean"] for got in rows] == [1 / 3]


def test_wandb_that_hangs_is_left_behind_and_no_process_stays(tmp_path: Path, wandb_home: Path) -> None:
    offline = threading.Event()

    class Watch(io.StringIO):
        def write(self, text: str) -> int:
            if text.startswith("W&B is offline"):
                offline.set()
            return super().write(text)

    mirror, err = wandb(tmp_path, close_timeout_s=0.2), io.StringIO()
    tracker = Tracker(tmp_path, [mirror], 0, Console(Watch(), err, {}))
    tracker.log(row(1))
    assert offline.wait(60)
    processes = children_of(mirror)
    assert len(processes) >= 2  # wandb's service is there
    processes[0].send_signal(signal.SIGSTOP)
    tracker.log(row(2))
    tracker.close()
    assert "W&B did not close within 0.2 s" in err.getvalue()
    assert psutil.wait_procs(processes, timeout=60)[1] == []
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 2


def test_wandb_whose_process_dies_says_how_and_where_to_look(tmp_path: Path, wandb_home: Path) -> None:
    mirror = wandb(tmp_path)
    mirror.open(0, lambda text: None)
    assert mirror._process is not None
    mirror._process.child.popen.kill()
    mirror._process.child.popen.wait()
    with pytest.raises(RuntimeError, match=r"process ended with status -9, see .*mirror\.log"):
        wait_until(lambda: mirror.log(row(1)))  # its end of the connection is closed when its server of forks has gone


def test_wandb_keeps_the_rows_of_a_run_that_is_killed(tmp_path: Path, wandb_home: Path) -> None:
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
        ({"mode": "onlin"}, "mode='onlin' is unknown; allowed: online, offline, disabled; did you mean 'online'?"),
        ({"queue_rows": 0}, "queue_rows=0 must be positive"),
        ({"close_timeout_s": -1.0}, "close_timeout_s=-1.0 must be positive"),
        ({"close_timeout_s": 1e10}, "close_timeout_s=10000000000.0 must be positive, and at most 1e+06; try 30"),
        ({"init_timeout_s": 0}, "init_timeout_s=0 must be positive"),
    ],
)
def test_a_wrong_setting_ends_in_one_line(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        wandb(tmp_path, **changes)
    assert str(caught.value).startswith(says) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "installed"),
    [
        (tensorboard, "tensorboard"),
        (wandb, "wandb"),
        (mlflow, "'paddock[mlflow]'"),
    ],
    ids=["tensorboard", "wandb", "mlflow"],
)
def test_a_missing_package_is_said_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Any], installed: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda wanted: None)
    with pytest.raises(ConfigError, match=f"pip install {re.escape(installed)}$"):
        make(tmp_path)


# The choices


def test_the_end_of_a_run_names_what_shows_its_mirrors(
    tmp_path: Path, wandb_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "a run"
    track = ["track=all", "track.mirrors.wandb.mode=offline"]
    assert call_main(*TINY, "compute=serial", "budget.iterations=1", f"run.dir='{run}'", *track) == 0
    (session,) = (run / "wandb").glob("offline-run-*")
    lines = capfd.readouterr().out.splitlines()
    assert f"  tensorboard --logdir '{run}'" in lines
    assert f"  wandb sync '{session}'" in lines
    assert any(line.endswith(f"; upload later: wandb sync '{session}'") for line in lines)
    kept = [
        line
        for line in (run / "log.txt").read_text().splitlines()
        if "paddock.tracking.console: iteration 1 | " in line
    ]
    assert kept  # one, and one more where the run ends with an evaluation


@pytest.mark.parametrize("name", TRACKS)
def test_every_choice_composes_builds_and_mirrors(
    name: str, tmp_path: Path, wandb_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")  # the YAML decides, not the environment
    if name == "mlflow":
        pytest.importorskip("mlflow")  # an extra
    with initialize_config_dir(str(paddock.CONF), version_base=None):
        track: Any = OmegaConf.to_container(compose(overrides=[f"+track={name}"]).track)
    assert set(track) == {"mirrors"}
    mirrors = []
    for keys in track["mirrors"].values():
        if "mode" in keys:
            keys["mode"] = "offline"
        target = pkgutil.resolve_name(keys.pop("_target_"))
        mirrors.append(target(**keys, run_dir=tmp_path, run_name="r", config={"algo": {"name": "es"}}))
    err = io.StringIO()
    tracker = Tracker(tmp_path, mirrors, 0, Console(io.StringIO(), err, {}))
    for i in range(1, 4):
        tracker.log(row(i))
    tracker.close()
    assert err.getvalue() == ""
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 3
    folders = {"tensorboard", "wandb"} if name == "all" else {name} - {"none"}
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} - {"home"} == folders


@pytest.mark.parametrize("name", TRACKS)
def test_every_key_of_a_choice_says_what_it_is(name: str) -> None:
    first, *lines = (Path(paddock.CONF) / "track" / f"{name}.yaml").read_text().splitlines()
    assert first.startswith("# ")
    keys = [line for line in lines if re.match(r"\s*\w+:", line) and not line.startswith("defaults:")]
    assert all(" # " in line for line in keys)
