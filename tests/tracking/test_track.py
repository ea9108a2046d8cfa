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


def test_a_journal_of_events_is_found_again_after_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("paddock.tracking.tracker.sync", synced.append)
    tracker = Tracker(tmp_path, [], 0, quiet())
    for iteration in (1, 2, 3):
        head = {"iteration": iteration, "step": iteration}
        tracker.log(head, [{**head, "event": "birth"}] if iteration > 1 else [])
    tracker.close()
    assert synced == [tmp_path] * 2  # at first, and with the first event


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


def test_the_interpreter_exits_although_a_mirror_hangs(tmp_path: Path) -> None:
    process = run_code(tmp_path, "go([Hanging()], 5).close()", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
    process = run_code(tmp_path, code, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.communicate(timeout=60)[1] == b"[]\n"
    assert not (tmp_path / "wandb").exists()
