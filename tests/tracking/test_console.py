"""What a run says on a terminal, into a pipe and into its log: a line now and then, whoever reads it or does not."""

import fcntl
import io
import logging
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from mirrored import rows_of, run_code

from paddock.tracking.console import Console, LiveLine
from paddock.tracking.messages import NAME, early_warnings, messages


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pipe_gets_plain_lines_and_always_the_last() -> None:
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
            "iteration 1 | 300.0k steps | 15.0k steps/s | return 211 (best 299) | eval return 1.2k | ETA 1m40s\n"
            "iteration 4 | 1.2M steps | 15.0k steps/s | return 214 (best 299) | eval return 1.2k | ETA 40s\n"
            "iteration 5 | 1.5M steps | 15.0k steps/s | return 215 (best 299) | eval return 1.2k | ETA 20s\n"
        )


def test_evaluation_of_an_earlier_iteration_names_it() -> None:
    out, clock = io.StringIO(), Clock()
    console = Console(out, io.StringIO(), {}, clock)
    told = [{"eval/return_mean": 7.0, "eval/of_iteration": 1}, {}, {"eval/return_mean": 8.0, "eval/of_iteration": 2}]
    for i, evaluation in enumerate(told, 1):
        clock.now = 2.0 * i
        console.log({"iteration": i, "step": 10 * i, **evaluation})
    console.close()
    shown = [line.split(" | ")[-1] for line in out.getvalue().splitlines()]
    assert shown == ["eval return 7", "eval return 7 (iteration 1)", "eval return 8 (iteration 2)"]


def test_time_left_follows_the_pace_of_the_session() -> None:
    console = Console(None, None, {"iterations": 1000, "steps": 2_000_000})
    console.begin(2000.0, {"iteration": 500, "step": 500_000})
    for i in (1, 2):
        console.log({"iteration": 500 + i, "step": 500_000 + 1000 * i, "system/seconds": 2000.0 + 0.4 * i})
    # 498 iterations of 0.4 s are left, and 1,498,000 steps at 2,500 a second.
    assert console._seconds_left() == pytest.approx(498 * 0.4)


def test_no_time_left_without_a_budget_or_a_time() -> None:
    for budget, extra in (({}, {"system/seconds": 3.0}), ({"steps": 100}, {})):
        out = io.StringIO()
        console = Console(out, io.StringIO(), budget)
        console.log({"iteration": 1, "step": 10, **extra})
        console.close()
        assert out.getvalue() == "iteration 1 | 10 steps\n"


def test_progress_is_one_line_on_a_terminal_that_is_cleared(
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


def test_terminal_has_one_live_line_below_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clear = "\r\x1b[K"
    # Drawn at 0.06 s, for the message, and at 0.18 s (0.1 s after the first); iteration 4 comes at the end.
    assert on_terminal(80, show_rows) == (
        f"{clear}iteration 1 | 100 steps | return 0.5 | ETA 9s"
        f"{clear}a worker was lost\r\n"
        f"{clear}iteration 2 | 200 steps | return 0.5 | ETA 8s"
        f"{clear}iteration 3 | 300 steps | return 0.5 | ETA 7s"
        f"{clear}iteration 4 | 400 steps | return 0.5 | ETA 6s\r\n"
    )


def test_live_line_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for columns, last in ((20, "iteration 4 | 400 s"), (6, "itera")):
        assert on_terminal(columns, show_rows).split("\x1b[K")[-1] == last + "\r\n"


def test_closed_pipe_neither_stops_the_run_nor_its_exit_code(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = run_code(tmp_path, "go([], 5).close(); print('bye')", stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 5


def test_unread_pipe_does_not_stop_the_run(tmp_path: Path) -> None:
    reader, writer = os.pipe()  # holds 64 KiB, and nobody reads
    code = """
tracker = go([], 2)
for _ in range(100):
    tracker._console.message("x" * 4096)
tracker.log({"iteration": 3, "step": 3})
tracker.close()
"""
    process = run_code(tmp_path, code, stdout=writer, stderr=subprocess.PIPE)
    assert process.wait(60) == 0
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 3
    os.close(writer)
    os.close(reader)


def test_loggers_are_restored_and_early_messages_kept(tmp_path: Path) -> None:
    """Or a program that builds runs by hand, or a test, would miss what is said later."""
    own = logging.getLogger(NAME)
    before = own.level, list(own.handlers)
    console = Console(io.StringIO(), io.StringIO(), {"iterations": 1, "steps": None, "minutes": None}, Clock())
    with messages(console) as record:
        own.info("before the folder is known")
        record(tmp_path / "log")
        own.info("after it")
        kept = (tmp_path / "log").read_text().splitlines()
        assert [line.partition(" INFO paddock: ")[2] for line in kept] == ["before the folder is known", "after it"]
        with early_warnings():
            assert own.getEffectiveLevel() == logging.WARNING
        assert own.getEffectiveLevel() == logging.INFO
    assert (own.level, list(own.handlers)) == before
