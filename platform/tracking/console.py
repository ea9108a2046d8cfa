"""Progress of a run on the console: one live line on a terminal, plain lines anywhere else.

The console is a mirror too: it writes through a queue, so that a stopped terminal or an unread pager never stops a run.
A stream that breaks is given up.
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

LIVE_INTERVAL_S = 0.1  # between two states of the live line
PLAIN_INTERVAL_S = 1.0  # between two plain lines
NOTEBOOK_INTERVAL_S = 5.0  # between two below a notebook's cell, which keeps them
CLOSE_TIMEOUT_S = 5.0  # that the end of a run waits for a stream which takes nothing
WAITING_LINES = 1000  # that may wait for the stream; further ones are dropped

LOG_INTERVAL_S = 10.0  # between two lines of progress where there is no terminal
CLEAR = "\r\x1b[K"
LEGEND = (
    "mean, best: return of episodes in training, on average and the highest so far; "
    "eval: mean return of an evaluation, eval@N: of iteration N's policy"
)


class Console:
    """Shows rows of metrics and messages between them.

    Args:
        out: for rows and messages; a terminal gets the live line.
        err: for warnings.
        budget: what ends the run, any of `iterations`, `steps` (environment steps) and `minutes`; None is no limit.
        clock: seconds, to space the lines.
    """

    def __init__(
        self,
        out: TextIO | None,
        err: TextIO | None,
        budget: Mapping[str, float | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out, self._err = out or io.StringIO(), err or io.StringIO()
        self._budget, self._clock = budget, clock
        self._live = _is_terminal(self._out)
        plain_s = NOTEBOOK_INTERVAL_S if _is_notebook(self._out) else PLAIN_INTERVAL_S
        self._interval_s = LIVE_INTERVAL_S if self._live else plain_s
        self._known: dict[str, float] = {}  # the last finite value of each key
        self._start = {"system/seconds": 0.0, "iteration": 0.0, "step": 0.0}  # of this session
        self._best = -math.inf
        self._drawn_at = -math.inf
        self._pending = False  # the last row is not shown yet
        self._explained = False
        # Mirrors write from their threads, and a signal handler may interrupt `log`: hence re-entrant.
        self._lock = threading.RLock()
        self._closed = self._stuck = False
        for stream in (self._out, self._err):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()  # from here on the buffer is bypassed
        self._queue = WriteQueue("console", WAITING_LINES, on_error=lambda error: None)

    def begin(self, seconds: float, metrics: Mapping[str, float]) -> None:
        """Set where an earlier session ended: its seconds and last metrics."""
        self._start = {"system/seconds": seconds} | {key: metrics.get(key, 0.0) for key in ("iteration", "step")}

    def log(self, metrics: Mapping[str, float]) -> None:
        """Show a row, unless the last one was shown a moment ago; a missing or non-finite key shows its last value."""
        with self._lock:
            self._known |= {key: value for key, value in metrics.items() if math.isfinite(value)}
            self._best = max(self._best, self._known.get("train/return_max", -math.inf))
            self._pending = True
            now = self._clock()
            if now - self._drawn_at >= self._interval_s:
                self._drawn_at = now
                self._draw()

    def message(self, text: str) -> None:
        """Show a line on its own, above the live line."""
        self._print(self._out, text)

    def warn(self, text: str) -> None:
        """Show a line on the error stream."""
        self._print(self._err, f"warning: {text}")

    def close(self) -> None:
        """Show the last row if it was not, and wait a moment for what is still to be written."""
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
        if not self._explained and {"train/return_mean", "eval/return_mean"} & self._known.keys():
            self._explained = True
            self._queue.offer(partial(_write, self._out, (CLEAR if self._live else "") + LEGEND + "\n"))
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
            fields.append(f"mean {short(known['train/return_mean'])}")
        if self._best > -math.inf:
            fields.append(f"best {short(self._best)}")
        if "eval/return_mean" in known:
            of = known.get("eval/of_iteration", known["iteration"])
            at = "" if of == known["iteration"] else f"@{of:.0f}"
            fields.append(f"eval{at} {short(known['eval/return_mean'])}")
        if math.isfinite(left := self._seconds_left()):
            fields.append(f"{duration(left)} left")
        return " | ".join(fields)[:width]

    def _seconds_left(self) -> float:
        """Estimate the time until the budget is spent from the pace of this session; infinity if there is no budget."""
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
    """One line of progress on a terminal, which is cleared at the end; elsewhere a line now and then.

    Args:
        stream: where it is shown.
        clock: seconds, to space the lines.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._live = _is_terminal(stream)
        self._shown_at = -math.inf if self._live else clock()

    def show(self, text: str) -> None:
        """Show a text in place of the last one, unless that was shown a moment ago."""
        now = self._clock()
        if now - self._shown_at >= (LIVE_INTERVAL_S if self._live else LOG_INTERVAL_S):
            self._shown_at = now
            shown = CLEAR + text[: _columns(self._stream) - 1] if self._live else text + "\n"
            _write(self._stream, shown)

    def close(self) -> None:
        """Leave the terminal as it was."""
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
    # Straight to the descriptor: a thread stuck in Python's buffer would break the interpreter's exit.
    data = memoryview(text.encode(stream.encoding or "utf-8", errors="replace"))
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        # The reader has gone. Python's own flush at exit would turn the exit code into 120.
        if error.errno in (errno.EPIPE, errno.EIO):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _is_notebook(stream: TextIO) -> bool:
    """Return whether a stream is shown below a notebook's cell; its descriptor is that of the server's terminal."""
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
