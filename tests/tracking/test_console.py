"""What a run says on a terminal, into a pipe and into its log: a line now and then, whoever reads it or does not."""

import fcntl
import io
import logging
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mirrored import rows_of, run_code

from paddock.tracking.console import CLEAR, Console, LiveLine
from paddock.tracking.messages import NAME, early_warnings, messages

Numbers = Mapping[str, float]


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


def last_line(budget: Numbers, start: Numbers, *metrics: Numbers) -> str:
    out = io.StringIO()
    console = Console(out, io.StringIO(), budget)
    console.begin(start.get("seconds", 0.0), start)
    for row in metrics:
        console.log(row)
    console.close()
    return out.getvalue().splitlines()[-1]


def test_eta_follows_the_speed_of_the_session() -> None:
    start = {"seconds": 2000.0, "iteration": 500, "step": 500_000}
    rows = [{"iteration": 500 + i, "step": 500_000 + 1000 * i, "system/seconds": 2000.0 + 0.4 * i} for i in (1, 2)]
    # 498 iterations of 0.4 s are left, and 1,498,000 steps at 2,500 a second.
    assert last_line({"iterations": 1000, "steps": 2_000_000}, start, *rows).endswith("| ETA 3m19s")


def test_no_eta_without_a_limit_and_a_time() -> None:
    for budget, extra in (
        ({}, {"system/seconds": 3.0}),
        ({"return": 9}, {"system/seconds": 3.0}),
        ({"steps": 100}, {}),
    ):
        assert last_line(budget, {}, {"iteration": 1, "step": 10, **extra}) == "iteration 1 | 10 steps"


def test_target_return_makes_the_eta_an_upper_bound() -> None:
    line = last_line({"return": 9, "steps": 100}, {}, {"iteration": 1, "step": 10, "system/seconds": 3.0})
    assert line == "iteration 1 | 10 steps | ETA <= 27s"


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
    assert shown.startswith(f"{CLEAR}frame 0{CLEAR}frame 4") and shown.endswith(f"{CLEAR}END") and "\n" not in shown
    assert out.getvalue() == "frame 200\n"


def on_terminal(use: Callable[[Console, Clock], None], budget: Numbers, columns: int = 80) -> list[str]:
    """Return the texts written to a terminal, which reads only after the end, between the clearings of the display."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    reader = ThreadPoolExecutor(1)
    with open(side, "w") as out:
        clock = Clock()
        console = Console(out, io.StringIO(), budget, clock)
        use(console, clock)
        read = reader.submit(read_until_end, main)
        console.close()
        out.write("END")
        out.flush()
        text = read.result()
    os.close(main)
    return text.removesuffix("END").replace("\r\n", "\n").split(CLEAR)[1:]


def read_until_end(terminal: int) -> str:
    text = b""
    while not text.endswith(b"END"):
        text += os.read(terminal, 65536)
    return text.decode()


def plain(text: str) -> list[str]:
    return re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()


def show_rows(console: Console, clock: Clock) -> None:
    console.message("starting")
    for i in range(1, 1001):
        clock.now += 0.06
        console.log({"iteration": i, "step": 100 * i, "system/seconds": i / 10, "train/return_mean": 0.5})
        if i == 500:
            console.message("a worker was lost")


@pytest.fixture
def xterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.usefixtures("xterm")
def test_terminal_shows_the_newest_row_below_the_messages() -> None:
    texts = on_terminal(show_rows, {"steps": 200_000})
    assert texts.count("a worker was lost\n") == 1
    header, row, bar = plain(texts[-1])[1:]
    assert header.split() == ["iteration", "steps", "steps/s", "return", "best", "eval", "return", "at", "iter.", "ETA"]
    assert row.split() == ["1000", "100.0k", "0.5", "1m40s"]
    assert bar.startswith("━━━━━━━━━━") and bar.endswith(" 50% of 200.0k steps")


@pytest.mark.usefixtures("xterm")
def test_stopped_terminal_gets_no_outdated_rows() -> None:
    frames = [text for text in on_terminal(show_rows, {"steps": 200_000}) if "iteration" in text]
    assert 1 < len(frames) < 100  # of 250 that were due; the kernel buffers some


@pytest.mark.usefixtures("xterm")
def test_display_keeps_what_environments_print() -> None:
    def use(console: Console, clock: Clock) -> None:
        console.status("starting workers")
        show_rows(console, clock)

    for text in on_terminal(use, {})[:-1]:  # redrawing clears from the cursor down, which stays above the display
        assert text.count("\x1b[A") in (0, text.count("\n")) and text.startswith("\n") == text.endswith("\x1b[A")


@pytest.mark.usefixtures("xterm")
@pytest.mark.parametrize("columns", [60, 25, 6])
def test_display_fits_a_narrow_terminal(columns: int) -> None:
    last = plain(on_terminal(show_rows, {"steps": 200_000}, columns)[-1])
    assert len(last) == 4 and max(map(len, last)) < columns


@pytest.mark.usefixtures("xterm")
@pytest.mark.parametrize("budget", [{"iterations": 1000}, {"steps": 100_000}, {"minutes": 100 / 60}])
def test_progress_bar_reaches_100_percent_at_the_budget(budget: dict[str, float]) -> None:
    bar = plain(on_terminal(show_rows, {**budget, "return": 7})[-1])[-1]
    assert "━  100% of " in bar and bar.endswith(", or until eval return >= 7")


@pytest.mark.usefixtures("xterm")
def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[32m" in on_terminal(show_rows, {"iterations": 2000})[-1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in on_terminal(show_rows, {"iterations": 2000})[-1]


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
