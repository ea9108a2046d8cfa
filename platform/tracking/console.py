"""Console progress of a run: a live display on a terminal, plain lines elsewhere.

The console writes through a queue, so that a stopped terminal or an unread pager never blocks a run. Output to a broken
stream is discarded.
"""

import contextlib
import errno
import io
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TextIO

from ..runs.units import duration, short
from .live import render
from .queue import WriteQueue

LIVE_INTERVAL_S = 0.2  # between updates of the live display
PLAIN_INTERVAL_S = 1.0  # between plain lines
NOTEBOOK_INTERVAL_S = 5.0  # between lines below a notebook cell, which keeps them
COLUMNS = {  # of the live display: metric, and its form in a plain line
    "iteration": ("iteration", "iteration {}"),
    "steps": ("step", "{} steps"),
    "steps/s": ("system/steps_per_s", "{} steps/s"),
    "return": ("train/return_mean", "return {}"),
    "best": ("train/return_max", "(best {})"),
    "eval return": ("eval/return_mean", "eval return {}"),
    "at iter.": ("eval/of_iteration", "(iteration {})"),
}
CLOSE_TIMEOUT_S = 5.0  # that a run waits at its end for a blocked stream
WAITING_LINES = 1000  # queue limit; further lines are dropped

LOG_INTERVAL_S = 10.0  # between progress lines without a terminal
CLEAR = "\r\x1b[J"  # from the line of the cursor down
UP = "\x1b[A"


class Console:
    """Console that shows rows of metrics, and messages between them.

    Args:
        out: for rows and messages; a terminal gets the live display.
        err: for warnings.
        budget: limits of the run, any of `iterations`, `steps` (environment steps), `minutes` and `return` (of an
            evaluation); None is no limit.
        clock: current time in seconds.
    """

    def __init__(
        self,
        out: TextIO | None,
        err: TextIO | None,
        budget: Mapping[str, float | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the streams and start the writing thread."""
        self._out, self._err = out or io.StringIO(), err or io.StringIO()
        self._budget, self._clock = budget, clock
        self._live = _is_terminal(self._out)
        plain_s = NOTEBOOK_INTERVAL_S if _is_notebook(self._out) else PLAIN_INTERVAL_S
        self._interval_s = LIVE_INTERVAL_S if self._live else plain_s
        self._known: dict[str, float] = {}  # the last finite value of each key, the highest of train/return_max
        self._status = ""  # what the run waits for
        self._start = {"system/seconds": 0.0, "iteration": 0.0, "step": 0.0}  # where this session started
        self._drawn_at = -math.inf
        self._pending = False  # whether the last row is not shown yet
        self._queued = self._shown = False  # whether the live display will be redrawn, and is on the screen
        # Re-entrant, since mirrors write from their threads and a signal handler may interrupt `log`.
        self._lock = threading.RLock()
        self._closed = self._stuck = False
        for stream in (self._out, self._err):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()  # later writes bypass the buffer
        self._queue = WriteQueue("console", WAITING_LINES, on_error=lambda error: None)

    def begin(self, seconds: float, metrics: Mapping[str, float]) -> None:
        """Set the elapsed seconds and the last metrics of the previous session."""
        self._start = {"system/seconds": seconds} | {key: metrics.get(key, 0.0) for key in ("iteration", "step")}

    def log(self, metrics: Mapping[str, float]) -> None:
        """Show a row, at most one per interval; a missing or non-finite value is replaced by the last finite one."""
        with self._lock:
            best = self._known.get("train/return_max", -math.inf)
            self._known |= {key: value for key, value in metrics.items() if math.isfinite(value)}
            if "train/return_max" in self._known:
                self._known["train/return_max"] = max(best, self._known["train/return_max"])
            self._status, self._pending = "", True
            now = self._clock()
            if now - self._drawn_at >= self._interval_s:
                self._drawn_at = now
                self._draw()

    def status(self, text: str) -> None:
        """Show on a terminal what the run waits for, until the next row."""
        with self._lock:
            self._status = text
            if self._live and not self._closed:
                self._draw()

    def message(self, text: str) -> None:
        """Show a message above the live display."""
        self._print(self._out, text)

    def warn(self, text: str) -> None:
        """Show a warning on the error stream."""
        self._print(self._err, f"warning: {text}")

    def close(self) -> None:
        """Show the last row, and wait briefly for queued output."""
        if self._closed:
            return
        with self._lock:
            self._closed, self._status = True, ""
            if self._pending and not self._live:
                self._draw()
            self._queue.close(partial(self._redraw, last=True) if self._live else lambda: None)
        self._stuck = not self._queue.wait(CLOSE_TIMEOUT_S)

    def _draw(self) -> None:
        if not self._live:
            self._pending = False
            self._queue.offer(partial(_write, self._out, self._line() + "\n"))
        elif not self._queued:
            self._queued = self._queue.offer(self._redraw)

    def _redraw(self, last: bool = False) -> None:
        """Draw the live display below the cursor; the writing thread calls it, so a stopped terminal skips rows.

        The cursor stays on an empty line above it. An environment may print there, and a resized window moves no text.
        """
        with self._lock:
            self._queued = False
            cells = self._cells() if self._known else {}
            share, _, caption = max(self._limits() if cells else (), default=(None, 0.0, ""))
            if cells and self._budget.get("return") is not None:
                caption += f"{', or ' if caption else ''}until eval return >= {self._budget['return']:g}"
            status = self._status
        text = render(cells, share, caption, status, _columns(self._out) - 1) if cells or status else ""
        end = "" if last else "\r" + UP * (1 + text.count("\n"))
        if text or self._shown:
            _write(self._out, f"{CLEAR}\n{text}{end}" if text else CLEAR)
        self._shown = bool(text) and not last

    def _print(self, stream: TextIO, text: str) -> None:
        def show() -> None:
            if shown := self._shown:
                _write(self._out, CLEAR)
            _write(stream, text + "\n")
            if shown:
                self._redraw()

        with self._lock:
            if not self._closed:
                if self._pending and not self._live:
                    self._draw()
                self._queue.offer(show)
            elif not self._stuck:
                show()

    def _line(self) -> str:
        cells = self._cells()
        if cells["at iter."] == cells["iteration"]:
            del cells["at iter."]
        fields = [COLUMNS.get(name, ("", name + " {}"))[1].format(cell) for name, cell in cells.items() if cell]
        return " | ".join(fields).replace(" | (", " (")

    def _cells(self) -> dict[str, str]:
        """Return the columns of the last row; a value is empty where it is unknown."""
        known = self._known
        cells = {name: short(known[key]) if key in known else "" for name, (key, _) in COLUMNS.items()}
        for name, key in (("iteration", "iteration"), ("at iter.", "eval/of_iteration")):
            cells[name] = f"{known[key]:.0f}" if key in known else ""
        limits = [left for _, left, _ in self._limits() if math.isfinite(left)]
        eta = "ETA" if self._budget.get("return") is None else "ETA <="  # the run may end earlier
        return cells | ({eta: duration(min(limits))} if limits else {})

    def _limits(self) -> Iterator[tuple[float, float, str]]:
        """Yield the spent share of each limit, the seconds left at this session's speed, and a description."""
        known, elapsed_s = self._known, self._known.get("system/seconds", 0.0)
        for name, key, unit in (
            ("iterations", "iteration", 1),
            ("steps", "step", 1),
            ("minutes", "system/seconds", 60),
        ):
            if (limit := self._budget.get(name)) is not None and key in known:
                passed, limit = known[key] - self._start[key], limit * unit
                seconds = elapsed_s - self._start["system/seconds"]
                left = (limit - known[key]) * seconds / passed if passed > 0 and seconds > 0 else math.inf
                of = duration(limit) if name == "minutes" else f"{short(limit)} {name}"
                yield min(1.0, known[key] / limit), left, f"of {of}"


class LiveLine:
    """Progress line on a terminal, cleared at the end; occasional lines elsewhere. `clock` returns seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """Set the stream."""
        self._stream, self._clock = stream, clock
        self._live = _is_terminal(stream)
        self._shown_at = -math.inf if self._live else clock()

    def show(self, text: str) -> None:
        """Replace the line, at most once per interval."""
        now = self._clock()
        if now - self._shown_at >= (LIVE_INTERVAL_S if self._live else LOG_INTERVAL_S):
            self._shown_at = now
            shown = CLEAR + text[: _columns(self._stream) - 1] if self._live else text + "\n"
            _write(self._stream, shown)

    def close(self) -> None:
        """Clear the line."""
        if self._live:
            _write(self._stream, CLEAR)


def _write(stream: TextIO, text: str) -> None:
    try:
        descriptor = None if _is_notebook(stream) else stream.fileno()
    except (OSError, ValueError):  # a test's StringIO
        descriptor = None
    if descriptor is None:
        with contextlib.suppress(OSError, ValueError):
            stream.write(text)
            stream.flush()
        return
    # Write to the descriptor: a thread blocked in Python's buffer would break the interpreter's exit.
    data = memoryview(text.encode(stream.encoding or "utf-8", errors="replace"))
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        # The reader has closed the pipe, and Python's flush at exit would set exit code 120.
        if error.errno in (errno.EPIPE, errno.EIO):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _is_notebook(stream: TextIO) -> bool:
    """Return whether a stream is a notebook cell's output, whose descriptor is the server's terminal."""
    return type(stream).__module__.partition(".")[0] == "ipykernel"


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
