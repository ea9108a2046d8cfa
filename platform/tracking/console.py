"""Console progress of a run: one live line on a terminal, plain lines elsewhere.

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
from collections.abc import Callable, Mapping
from functools import partial
from typing import TextIO

from ..runs.units import duration, short
from .queue import WriteQueue

LIVE_INTERVAL_S = 0.1  # between updates of the live line
PLAIN_INTERVAL_S = 1.0  # between plain lines
NOTEBOOK_INTERVAL_S = 5.0  # between lines below a notebook cell, which keeps them
CLOSE_TIMEOUT_S = 5.0  # that a run waits at its end for a blocked stream
WAITING_LINES = 1000  # queue limit; further lines are dropped

LOG_INTERVAL_S = 10.0  # between progress lines without a terminal
CLEAR = "\r\x1b[K"


class Console:
    """Console that shows rows of metrics, and messages between them.

    Args:
        out: for rows and messages; a terminal gets the live line.
        err: for warnings.
        budget: limits of the run, any of `iterations`, `steps` (environment steps) and `minutes`; None is no limit.
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
        self._known: dict[str, float] = {}  # the last finite value of each key
        self._start = {"system/seconds": 0.0, "iteration": 0.0, "step": 0.0}  # where this session started
        self._best = -math.inf
        self._drawn_at = -math.inf
        self._pending = False  # whether the last row is not shown yet
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
            self._known |= {key: value for key, value in metrics.items() if math.isfinite(value)}
            self._best = max(self._best, self._known.get("train/return_max", -math.inf))
            self._pending = True
            now = self._clock()
            if now - self._drawn_at >= self._interval_s:
                self._drawn_at = now
                self._draw()

    def message(self, text: str) -> None:
        """Show a message above the live line."""
        self._print(self._out, text)

    def warn(self, text: str) -> None:
        """Show a warning on the error stream."""
        self._print(self._err, f"warning: {text}")

    def close(self) -> None:
        """Show the last row, and wait briefly for queued output."""
        if self._closed:
            return
        with self._lock:
            self._closed = True
            if self._pending:
                self._draw()
            self._queue.close(partial(_write, self._out, "\n" if self._live and self._known else ""))
        self._stuck = not self._queue.wait(CLOSE_TIMEOUT_S)

    def _draw(self) -> None:
        self._pending = False
        if self._live:
            self._queue.offer(partial(_write, self._out, CLEAR + self._line(_columns(self._out) - 1)))
        else:
            self._queue.offer(partial(_write, self._out, self._line(None) + "\n"))

    def _print(self, stream: TextIO, text: str) -> None:
        show = partial(_write, stream, text + "\n")
        with self._lock:
            if self._closed:
                if not self._stuck:
                    show()
            elif self._live and self._known:
                self._queue.offer(partial(_write, self._out, CLEAR))
                self._queue.offer(show)
                self._draw()
            else:
                if self._pending:
                    self._draw()
                self._queue.offer(show)

    def _line(self, width: int | None) -> str:
        known = self._known
        fields = [f"iteration {known['iteration']:.0f}", f"{short(known['step'])} steps"]
        if "system/steps_per_s" in known:
            fields.append(f"{short(known['system/steps_per_s'])} steps/s")
        if "train/return_mean" in known:
            best = f" (best {short(self._best)})" if self._best > -math.inf else ""
            fields.append(f"return {short(known['train/return_mean'])}{best}")
        if "eval/return_mean" in known:
            of = known.get("eval/of_iteration", known["iteration"])
            at = "" if of == known["iteration"] else f" (iteration {of:.0f})"
            fields.append(f"eval return {short(known['eval/return_mean'])}{at}")
        if math.isfinite(left := self._seconds_left()):
            fields.append(f"ETA {duration(left)}")
        return " | ".join(fields)[:width]

    def _seconds_left(self) -> float:
        """Estimate the time until the budget is spent from this session's speed; infinity without a budget."""
        known, left = self._known, [math.inf]
        if "system/seconds" not in known:
            return math.inf
        passed = {key: known[key] - start for key, start in self._start.items()}
        for bound, key in (("iterations", "iteration"), ("steps", "step")):
            limit = self._budget.get(bound)
            if limit is not None and passed[key] > 0:
                left.append((limit - known[key]) * passed["system/seconds"] / passed[key])
        if (minutes := self._budget.get("minutes")) is not None:
            left.append(60 * minutes - known["system/seconds"])
        return min(left)


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
