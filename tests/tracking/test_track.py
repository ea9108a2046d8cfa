"""The journals are the truth; TensorBoard, W&B and the console mirror them and can neither slow nor stop a run."""

import io
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirrored import quiet, row, rows_of, run_code

from paddock.tracking.console import Console
from paddock.tracking.tracker import Journal, Tracker

# The journals


def test_row_is_one_flushed_line_of_strict_json(tmp_path: Path) -> None:
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


def test_journal_cut_off_anywhere_resumes_to_the_same_bytes(tmp_path: Path) -> None:
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


def test_wall_time_stays_out_of_metrics(tmp_path: Path) -> None:
    for name, seconds in (("a", 1.0), ("b", 2.0)):
        (tmp_path / name).mkdir()
        tracker = Tracker(tmp_path / name, [], 0, quiet())
        tracker.log(row(1) | {"system/seconds": seconds})
        tracker.close()
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == (tmp_path / "b/metrics.jsonl").read_bytes()
    assert (tmp_path / "a/system.jsonl").read_bytes() != (tmp_path / "b/system.jsonl").read_bytes()


def test_events_are_strict_json_and_cut_back_with_the_rows(tmp_path: Path) -> None:
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
        (row(2), ValueError, "iteration 2 follow those of 2"),
        (row(3) | {"step": 0.5}, TypeError, "'step' is 0.5, not an integer"),
        (row(3) | {"a/b": "high"}, TypeError, "'a/b' is a str, not a number"),
        (row(3) | {"a/b": np.zeros(2)}, TypeError, "'a/b' is a ndarray, not a number"),
    ],
)
def test_row_that_breaks_the_contract_is_refused(
    tmp_path: Path, metrics: dict[str, Any], error: type[Exception], says: str
) -> None:
    tracker = Tracker(tmp_path, [], 2, quiet())
    with pytest.raises(error, match=says):
        tracker.log(metrics)
    tracker.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


# Mirrors in general


class Recorder:
    name = "the recorder"
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
    name = "Failing"

    def log(self, metrics: Any) -> None:
        raise OSError("disk\nquota")


class Hanging(Recorder):
    """Hangs in its first row until released; says when it got there."""

    name = "Hanging"
    queue_rows = 3
    close_timeout_s = 0.05

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.release = threading.Event(), threading.Event()

    def log(self, metrics: Any) -> None:
        self.entered.set()
        self.release.wait()


def test_mirror_gets_every_row_in_order(tmp_path: Path) -> None:
    for start, first_step in ((0, 0), (2, 201)):
        mirror, out = Recorder(), io.StringIO()
        tracker = Tracker(tmp_path, [mirror], start, Console(out, io.StringIO(), {}))
        for i in range(start + 1, 5):
            tracker.log(row(i))
        tracker.close()
        tracker.close()  # a second time changes nothing
        assert mirror.calls == [("open", first_step), *(row(i) for i in range(start + 1, 5)), "close"]
        assert "here I am\n" in out.getvalue()


def test_failing_mirror_is_off_after_one_warning(tmp_path: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    failing, other = Failing(), Recorder()
    tracker = Tracker(tmp_path, [failing, other], 0, Console(out, err, {}))
    for i in range(1, 6):
        tracker.log(row(i))
    tracker.close()
    assert (
        err.getvalue()
        == "warning: Failing failed and is off (OSError: disk quota); metrics.jsonl still gets every row\n"
    )
    assert failing.calls == [("open", 0), "abandon"]
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 5
    assert other.calls[-1] == "close" and len(other.calls) == 7


def test_hanging_mirror_neither_slows_nor_stops_the_run(tmp_path: Path) -> None:
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
        "warning: Hanging did not close within 0.05 s and was abandoned; metrics.jsonl has every row\n"
        "warning: Hanging was too slow and missed 6 rows; metrics.jsonl has every row\n"
    )
    mirror.release.set()


def test_interpreter_exits_although_a_mirror_hangs(tmp_path: Path) -> None:
    process = run_code(tmp_path, "go([Hanging()], 5).close()", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.wait(60) == 0
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 5


@pytest.mark.real_start
def test_mirrors_import_no_heavy_library_into_the_run(tmp_path: Path) -> None:
    code = """
limits = {"queue_rows": 9, "close_timeout_s": 30, "run_dir": RUN, "run_name": "r", "config": {}}
off = {"mode": "disabled", "project": "p", "entity": None, "group": None, "job_type": None, "tags": []}
go([TensorBoard(**limits), Wandb(init_timeout_s=1, **off, **limits)], 3).close()
print(sorted({"wandb", "torch", "tensorflow"} & set(sys.modules)), file=sys.stderr)
"""
    process = run_code(tmp_path, code, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.communicate(timeout=60)[1] == b"[]\n"
    assert not (tmp_path / "wandb").exists()
