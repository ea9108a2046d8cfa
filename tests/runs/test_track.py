"""The journals are the truth; TensorBoard, W&B and the console mirror them and can neither slow nor stop a run."""

import fcntl
import io
import json
import logging
import os
import pkgutil
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from conftest import TINY, call_main, wait_until
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import paddock
from envs.errors import ConfigError
from paddock.tracking.console import LEGEND, Console, LiveLine
from paddock.tracking.mirrors import TensorBoard, Wandb
from paddock.tracking.tracker import Journal, Tracker

ROOT = Path(__file__).resolve().parents[2]
TRACKS = sorted(path.stem for path in (Path(paddock.CONF) / "track").glob("*.yaml"))


def row(iteration: int) -> dict[str, float]:
    return {
        "train/return_mean": iteration / 3,
        "iteration": iteration,
        "step": 100 * iteration,
        "system/seconds": 0.5 * iteration,
    }


def quiet() -> Console:
    return Console(io.StringIO(), io.StringIO(), {})


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# The journals


def test_a_row_is_one_flushed_line_of_strict_json_with_iteration_and_step_first(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path, [], 0, quiet())
    metrics: dict[str, Any] = {
        "b/x": np.float32(0.1),
        "step": np.int64(7),
        "a/nan": float("nan"),
        "a/inf": -float("inf"),
        "iteration": 1,
        "a/flag": True,
        "system/seconds": 1.5,
    }
    tracker.log(metrics)
    # Read before any close or sync. float32(0.1) is 0.100000001490116119384765625; repr of that double:
    assert (tmp_path / "metrics.jsonl").read_bytes() == (
        b'{"iteration": 1, "step": 7, "b/x": 0.10000000149011612, "a/nan": null, "a/inf": null, "a/flag": 1}\n'
    )
    assert (tmp_path / "system.jsonl").read_bytes() == b'{"iteration": 1, "step": 7, "system/seconds": 1.5}\n'
    tracker.close()


def test_metrics_of_a_killed_and_resumed_run_are_byte_identical_wherever_the_file_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [{"iteration": i, "step": 10 * i, "a/b": i / 7} for i in range(1, 4)]
    ends = [0]
    whole = Journal(path, 0)
    for each in rows:
        whole.write(each)
        ends.append(path.stat().st_size)
    whole.close()
    expected = path.read_bytes()
    for restored, end in enumerate(ends):
        for cut in range(end, len(expected) + 1):
            path.write_bytes(expected[:cut])
            resumed = Journal(path, restored)
            assert resumed.last == ((restored, 10 * restored) if restored else None)
            for each in rows[restored:]:
                resumed.write(each)
            resumed.close()
            assert path.read_bytes() == expected, (restored, cut)


def test_wall_time_stays_out_of_metrics_so_two_runs_have_the_same_bytes(tmp_path: Path) -> None:
    for name, seconds in (("a", 1.0), ("b", 2.0)):
        (tmp_path / name).mkdir()
        tracker = Tracker(tmp_path / name, [], 0, quiet())
        tracker.log(row(1) | {"system/seconds": seconds})
        tracker.close()
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == (tmp_path / "b/metrics.jsonl").read_bytes()
    assert (tmp_path / "a/system.jsonl").read_bytes() != (tmp_path / "b/system.jsonl").read_bytes()


@pytest.mark.parametrize("spoiled", [b"\0" * 40 + b"\n", b"3\n", b"{}\n", b"\xff\n", b'{"iteration": "2"}\n'])
def test_what_power_loss_spoiled_behind_the_last_row_is_dropped_and_all_before_it_is_kept(
    spoiled: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = (b'{"iteration": %d, "step": %d}\n' % (i, 10 * i) for i in (1, 2, 3))
    for journal in ("metrics.jsonl", "system.jsonl", "events.jsonl"):
        (tmp_path / journal).write_bytes(one + spoiled + two + spoiled + three + spoiled)
    said: list[str] = []
    console = quiet()
    monkeypatch.setattr(console, "warn", said.append)
    tracker = Tracker(tmp_path, [], 2, console)
    tracker.log(row(3), [{"iteration": 3, "step": 300}])
    tracker.close()
    assert (tmp_path / "metrics.jsonl").read_bytes().startswith(one + spoiled + two + b'{"iteration": 3, "step": 300')
    assert (tmp_path / "events.jsonl").read_bytes() == one + spoiled + two + b'{"iteration": 3, "step": 300}\n'
    assert (tmp_path / "system.jsonl").read_bytes().startswith(one + spoiled + two + b'{"iteration": 3')
    assert said == [
        f"{tmp_path / name}: line 2 is damaged, and stays so; all rows around it are kept"
        for name in ("metrics.jsonl", "system.jsonl", "events.jsonl")
    ]


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (
            [1, 3, 6, 7],
            None,
        ),  # an algorithm may write no row for an iteration, and those after the checkpoint come again
        ([1, 3, 5], "the rows of iteration 6 are missing"),
        ([1, 3, 9], "the rows of iterations 4 to 6 are missing"),
        ([], "the rows of iterations 1 to 6 are missing"),
    ],
)
def test_rows_that_the_end_of_a_journal_lacks_are_told_once_and_the_run_goes_on(
    kept: list[int], told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for journal in ("metrics.jsonl", "system.jsonl"):
        (tmp_path / journal).write_bytes(b"".join(b'{"iteration": %d, "step": %d}\n' % (i, i) for i in [1, 6]))
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(b'{"iteration": %d, "step": %d}\n' % (i, i) for i in kept))
    said: list[str] = []
    console = quiet()
    monkeypatch.setattr(console, "warn", said.append)
    for restored in (6, 7):  # later the run has rows of its own again
        tracker = Tracker(tmp_path, [], restored, console)
        tracker.log(row(restored + 1) | {"system/seconds": 1.0})
        tracker.close()
    assert said == ([] if told is None else [f"{path}: {told}; the run goes on without them"])
    assert [each["iteration"] for each in rows_of(path)] == [*(i for i in kept if i <= 6), 7, 8]


def test_events_are_lines_of_strict_json_and_cut_back_with_the_rows(tmp_path: Path) -> None:
    def told(iteration: int, **what: Any) -> dict[str, Any]:
        return {"iteration": iteration, "step": 100 * iteration, **what}

    tracker = Tracker(tmp_path, [], 0, quiet())
    tracker.log(row(1))
    assert not (tmp_path / "events.jsonl").exists()  # of an algorithm that tells nothing
    tracker.log(row(2), [told(2, score=float("-inf"), encoding={"low": [0.5, float("nan")]}), told(2, reason="new")])
    tracker.log(row(3), [told(3, reason="old")])
    first, second = told(2, score=None, encoding={"low": [0.5, None]}), told(2, reason="new")
    assert rows_of(tmp_path / "events.jsonl") == [first, second, told(3, reason="old")]
    tracker.close()
    resumed = Tracker(tmp_path, [], 2, quiet())
    resumed.log(row(3), [told(3, reason="again")])
    resumed.close()
    assert rows_of(tmp_path / "events.jsonl") == [first, second, told(3, reason="again")]


@pytest.mark.parametrize(
    ("metrics", "error", "says"),
    [
        (row(2), ValueError, "iteration 2 came after those of 2"),
        (row(3) | {"step": 0.5}, TypeError, "'step' is 0.5, not a whole number"),
        (row(3) | {"a/b": "high"}, TypeError, "'a/b' is a str, not a number"),
        (row(3) | {"a/b": np.zeros(2)}, TypeError, "'a/b' is a ndarray, not a number"),
    ],
)
def test_a_row_that_breaks_the_contract_is_refused(
    tmp_path: Path, metrics: dict[str, Any], error: type[Exception], says: str
) -> None:
    tracker = Tracker(tmp_path, [], 2, quiet())
    with pytest.raises(error, match=says):
        tracker.log(metrics)
    tracker.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


# Mirrors in general


class Recorder:
    queue_rows = 1000
    close_timeout_s = 30.0

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        self.calls.append(("open", first_step))
        say("here I am")

    def log(self, metrics: Any) -> None:
        self.calls.append(metrics)

    def close(self) -> None:
        self.calls.append("close")

    def abandon(self) -> None:
        self.calls.append("abandon")


class Failing(Recorder):
    def log(self, metrics: Any) -> None:
        raise OSError("disk\nquota")


class Hanging(Recorder):
    """Hangs in its first row until released; says when it got there."""

    queue_rows = 3
    close_timeout_s = 0.05

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.release = threading.Event(), threading.Event()

    def log(self, metrics: Any) -> None:
        self.entered.set()
        self.release.wait()


def test_a_mirror_gets_every_row_in_order_and_is_told_where_a_resumed_run_starts(tmp_path: Path) -> None:
    for start, first_step in ((0, 0), (2, 201)):
        mirror, out = Recorder(), io.StringIO()
        tracker = Tracker(tmp_path, [mirror], start, Console(out, io.StringIO(), {}))
        for i in range(start + 1, 5):
            tracker.log(row(i))
        tracker.close()
        tracker.close()  # a second time changes nothing
        assert mirror.calls == [("open", first_step), *(row(i) for i in range(start + 1, 5)), "close"]
        assert "here I am\n" in out.getvalue()


def test_a_mirror_that_fails_is_off_after_one_warning_and_the_run_and_the_others_go_on(tmp_path: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    failing, other = Failing(), Recorder()
    tracker = Tracker(tmp_path, [failing, other], 0, Console(out, err, {}))
    for i in range(1, 6):
        tracker.log(row(i))
    tracker.close()
    assert err.getvalue() == "warning: Failing failed and is off (OSError: disk quota); metrics.jsonl goes on\n"
    assert failing.calls == [("open", 0), "abandon"]
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 5
    assert other.calls[-1] == "close" and len(other.calls) == 7


def test_a_mirror_that_hangs_neither_slows_nor_stops_the_run(tmp_path: Path) -> None:
    err = io.StringIO()
    mirror = Hanging()
    tracker = Tracker(tmp_path, [mirror], 0, Console(io.StringIO(), err, {}))
    tracker.log(row(1))
    assert mirror.entered.wait(30)
    for i in range(2, 11):  # three of these nine find a place in the queue
        tracker.log(row(i))
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 10
    tracker.close()  # returns although the mirror never does
    assert "abandon" in mirror.calls and "close" not in mirror.calls
    assert err.getvalue() == (
        "warning: Hanging did not close within 0.05 s and was left behind; metrics.jsonl has every row\n"
        "warning: Hanging was too slow and missed 6 rows; metrics.jsonl has every row\n"
    )
    mirror.release.set()


PRELUDE = """
import sys, threading
from pathlib import Path
from paddock.tracking.console import Console
from paddock.tracking.mirrors import TensorBoard, Wandb
from paddock.tracking.tracker import Tracker
RUN = Path(sys.argv[1])
class Hanging:
    queue_rows, close_timeout_s = 3, 0.05
    def open(self, first_step, say): threading.Event().wait()
    def log(self, metrics): pass
    def close(self): pass
    def abandon(self): pass
def go(mirrors, rows, name="a/b"):
    tracker = Tracker(RUN, mirrors, 0, Console(sys.stdout, sys.stderr, {}))
    for i in range(1, rows + 1):
        tracker.log({"iteration": i, "step": i, name: 1.0})
    return tracker
"""


def start(tmp_path: Path, code: str, **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PRELUDE + code, str(tmp_path)], cwd=ROOT, **streams)


def test_the_interpreter_exits_although_a_mirror_hangs(tmp_path: Path) -> None:
    process = start(tmp_path, "go([Hanging()], 5).close()", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.wait(60) == 0
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 5


@pytest.mark.real_start
def test_mirrors_bring_no_heavy_library_into_the_run(tmp_path: Path) -> None:
    code = """
limits = {"queue_rows": 9, "close_timeout_s": 30, "run_dir": RUN, "run_name": "r", "config": {}}
off = {"mode": "disabled", "project": "p", "entity": None, "group": None, "job_type": None, "tags": []}
go([TensorBoard(**limits), Wandb(init_timeout_s=1, **off, **limits)], 3).close()
print(sorted({"wandb", "torch", "tensorflow"} & set(sys.modules)), file=sys.stderr)
"""
    process = start(tmp_path, code, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.communicate(timeout=60)[1] == b"[]\n"
    assert not (tmp_path / "wandb").exists()


# The console


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_pipe_gets_plain_lines_at_most_one_a_second_and_always_the_last() -> None:
    reader, writer = os.pipe()
    clock = Clock()
    with open(writer, "w") as out:
        console = Console(out, io.StringIO(), {"iterations": 10, "steps": None, "minutes": 2}, clock)
        for i in range(1, 6):
            clock.now = 0.4 * i
            console.log(
                {
                    "iteration": i,
                    "step": 300_000 * i,
                    "system/seconds": 20.0 * i,
                    "system/steps_per_s": 15_000.0,
                    "train/return_mean": 210.0 + i,
                    "train/return_max": 300.0 - i if i != 4 else float("nan"),
                }
                | ({"eval/return_mean": 1234.5} if i == 1 else {})
            )
        console.close()
        console.close()
    with open(reader) as text:
        # Shown at 0.4 s, 1.6 s (the first a second later) and the last. 20 s an iteration: nine more are 180 s, but
        # the two minutes end after 100 s; after iteration 5, both have 100 s and 20 s left.
        assert text.read() == (
            f"{LEGEND}\n"
            "iteration 1 | 300.0k steps | 15.0k steps/s | mean 211 | best 299 | eval 1.2k | 1m40s left\n"
            "iteration 4 | 1.2M steps | 15.0k steps/s | mean 214 | best 299 | eval 1.2k | 40s left\n"
            "iteration 5 | 1.5M steps | 15.0k steps/s | mean 215 | best 299 | eval 1.2k | 20s left\n"
        )


def test_no_time_left_is_said_without_a_budget_or_an_elapsed_time() -> None:
    for budget, extra in (({}, {"system/seconds": 3.0}), ({"steps": 100}, {})):
        out = io.StringIO()
        console = Console(out, io.StringIO(), budget)
        console.log({"iteration": 1, "step": 10, **extra})
        console.close()
        assert out.getvalue() == "iteration 1 | 10 steps\n"


def test_what_rows_say_is_explained_once_before_the_first_that_says_it() -> None:
    out, clock = io.StringIO(), Clock()
    console = Console(out, io.StringIO(), {}, clock)
    for i in range(1, 5):
        clock.now = 2.0 * i
        console.log({"iteration": i, "step": 10 * i} | ({"train/return_mean": 5.0} if i > 2 else {}))
    console.close()
    explained = [line == LEGEND for line in out.getvalue().splitlines()]
    assert explained == [False, False, True, False, False]


def test_a_log_file_keeps_a_row_every_ten_seconds_and_the_last(tmp_path: Path) -> None:
    clock = Clock()
    console = Console(io.StringIO(), io.StringIO(), {}, clock)
    console.log({"iteration": 1, "step": 10})
    handler = logging.FileHandler(tmp_path / "log.txt")
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    console.keep(handler)
    for i in range(2, 26):
        clock.now = float(i)
        console.log({"iteration": i, "step": 10 * i})
    console.close()
    console.close()
    handler.close()
    kept = [f"INFO paddock.tracking.console: iteration {i} | {10 * i} steps" for i in (2, 12, 22, 25)]
    assert (tmp_path / "log.txt").read_text().splitlines() == kept


def test_progress_is_one_line_on_a_terminal_which_goes_and_elsewhere_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    main, side = pty.openpty()
    out, clock = io.StringIO(), Clock()
    with open(side, "w") as terminal:
        lines = [LiveLine(terminal, clock), LiveLine(out, clock)]
        for k in range(300):
            clock.now = k / 20
            for line in lines:
                line.show(f"frame {k}")
        for line in lines:
            line.close()
        terminal.write("END")
    shown = ""
    while not shown.endswith("END"):  # the kernel passes it on in pieces
        shown += os.read(main, 65536).decode()
    os.close(main)
    assert shown.startswith("\r\x1b[Kframe 0\r\x1b[Kframe 2") and shown.endswith("\r\x1b[KEND") and "\n" not in shown
    assert out.getvalue() == "frame 200\n"


def test_a_signal_handler_may_speak_in_the_midst_of_a_row() -> None:
    out = io.StringIO()

    def interrupted() -> float:
        console.message("stopping")
        return 0.0

    console = Console(out, io.StringIO(), {}, interrupted)
    console.log({"iteration": 1, "step": 10})
    console.close()
    assert out.getvalue() == "iteration 1 | 10 steps\nstopping\niteration 1 | 10 steps\n"


def on_terminal(columns: int, use: Callable[[Console, Clock], None]) -> str:
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clock = Clock()
    with open(side, "w") as out:
        console = Console(out, io.StringIO(), {"steps": 1000}, clock)
        use(console, clock)
        console.close()
        out.write("END")
        out.flush()
        text = b""
        while not text.endswith(b"END"):
            text += os.read(main, 65536)
    os.close(main)
    return text.decode().removesuffix("END")


def show_rows(console: Console, clock: Clock) -> None:
    for i in range(1, 5):
        clock.now += 0.06
        console.log({"iteration": i, "step": 100 * i, "system/seconds": float(i), "train/return_mean": 0.5})
        if i == 2:
            console.message("a worker was lost")


def test_a_terminal_has_one_live_line_and_messages_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clear = "\r\x1b[K"
    # Drawn at 0.06 s, for the message, and at 0.18 s (0.1 s after the first); iteration 4 comes at the end.
    assert on_terminal(80, show_rows) == (
        f"{clear}{LEGEND}\r\n"
        f"{clear}iteration 1 | 100 steps | mean 0.5 | 9s left"
        f"{clear}a worker was lost\r\n"
        f"{clear}iteration 2 | 200 steps | mean 0.5 | 8s left"
        f"{clear}iteration 3 | 300 steps | mean 0.5 | 7s left"
        f"{clear}iteration 4 | 400 steps | mean 0.5 | 6s left\r\n"
    )


def test_the_live_line_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for columns, last in ((42, "iteration 4 | 400 steps | mean 0.5"), (20, "iteration 4"), (6, "itera")):
        assert on_terminal(columns, show_rows).split("\x1b[K")[-1] == last + "\r\n"


def test_a_reader_that_goes_away_does_not_stop_the_run_nor_spoil_its_exit_status(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = start(tmp_path, "go([], 5).close(); print('bye')", stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 5


def test_a_reader_that_stops_reading_does_not_stop_the_run(tmp_path: Path) -> None:
    reader, writer = os.pipe()  # holds 64 KiB, and nobody reads
    code = """
tracker = go([], 2)
for _ in range(100):
    tracker._console.message("x" * 4096)
tracker.log({"iteration": 3, "step": 3})
tracker.close()
"""
    process = start(tmp_path, code, stdout=writer, stderr=subprocess.PIPE)
    assert process.wait(60) == 0
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 3
    os.close(writer)
    os.close(reader)


# TensorBoard


def tensorboard(run_dir: Path) -> TensorBoard:
    return TensorBoard(queue_rows=1000, close_timeout_s=30, run_dir=run_dir, run_name="r", config={})


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


@pytest.fixture
def wandb_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    for name in [key for key in os.environ if key.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("HOME", str(home))
    for name in ("DIR", "CONFIG_DIR", "CACHE_DIR", "DATA_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(home / name))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    return home


def wandb(run_dir: Path, mode: str = "offline", **changes: Any) -> Wandb:
    run_dir.mkdir(exist_ok=True)
    keys: dict[str, Any] = {
        "project": "farm",
        "entity": None,
        "group": "seeds",
        "job_type": None,
        "tags": ["tagged"],
        "init_timeout_s": 2.0,
        "queue_rows": 1000,
        "close_timeout_s": 60.0,
        "run_name": "a name",
        "config": {"algo": {"sigma": 0.1}},
    }
    return Wandb(mode=mode, run_dir=run_dir, **(keys | changes))


def records(file: Path) -> Iterator[Any]:
    """The records of a .wandb file: LevelDB's log format after a header of 7 bytes, checksums not looked at."""
    from wandb.proto import wandb_internal_pb2

    data = file.read_bytes()
    assert data[:4] == b":W&B"
    at, parts = 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()  # type: ignore[attr-defined]
            record.ParseFromString(parts)
            yield record
            parts = b""


def history(run_dir: Path) -> list[tuple[Any, list[dict[str, Any]]]]:
    """(run record, rows) of each offline session, oldest first."""
    sessions = []
    for file in sorted((run_dir / "wandb").glob("offline-run-*/*.wandb")):
        found = list(records(file))
        run = next(record.run for record in found if record.WhichOneof("record_type") == "run")
        rows = [
            {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            for record in found
            if record.WhichOneof("record_type") == "history"
        ]
        sessions.append((run, rows))
    return sessions


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
        assert [got["_step"] for got in rows] == list(iterations)  # so that W&B knows a row that comes again
    assert not list(wandb_home.glob("wandb"))


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
    assert "Wandb did not close within 0.2 s" in err.getvalue()
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
    process = start(tmp_path, code, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
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


@pytest.mark.parametrize(("make", "name"), [(tensorboard, "tensorboard"), (wandb, "wandb")])
def test_a_missing_package_is_said_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Any], name: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda wanted: None)
    with pytest.raises(ConfigError, match=f"pip install {name}$"):
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
