"""Metrics tracking: two journals on disk, then the console and the mirrors.

`metrics.jsonl` holds the algorithm's metrics, which do not depend on timing or the backend: a run that was killed and
resumed ends with the same bytes as an uninterrupted one. Metrics of the group `system/` (seconds, steps/s) go to
`system.jsonl`. In both, a row is one line of strict JSON: `iteration`, `step`, then the metrics; NaN and infinity are
null. The end of a run may add evaluation rows, which repeat the iteration and step of its last row and are dropped on
resume. Events of an algorithm (POET's births and transfers) go to `events.jsonl`.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from paddock.algos.common.disk import sync

from ..runs.checkpoint import storing
from ..runs.folder import finite
from ..runs.journal import parse_row
from .console import Console
from .queue import WriteQueue

Metrics = Mapping[str, float]  # "group/name" -> number, with "iteration" (from 1) and "step" (environment steps)


_ENCODER = json.JSONEncoder(allow_nan=False)


class Mirror(Protocol):
    """Copy of the metrics elsewhere. All methods except `abandon` run on a separate thread and may be slow."""

    name: str  # for messages
    queue_rows: int  # limit of waiting rows; further ones are dropped and counted
    close_timeout_s: float  # that a run waits for it at the end

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        """Start before the rows from `first_step` on; `say` shows a line on the console."""

    def log(self, metrics: Metrics) -> None:
        """Record a row."""

    def close(self) -> None:
        """Write all rows and close."""

    def abandon(self) -> None:
        """Give up after a failure or timeout; called from any thread, must not block."""


@runtime_checkable
class HasCommands(Protocol):
    """Mirror with commands to show or upload it."""

    def commands(self) -> list[str]:
        """Return the commands, printed at the end of a run."""


class Journal:
    """Append-only file of rows, one line of JSON each.

    Opening truncates it to `start_iteration`: rows after the restored checkpoint and an incomplete last line are
    dropped. Earlier damaged lines are kept.

    Attributes:
        last: iteration and step of the last row kept, or None.

    Args:
        path: the file; created if missing.
        start_iteration: the restored iteration; 0 for a fresh run.
        single: keep one row per iteration; further ones were added at the run's end.
    """

    def __init__(self, path: Path, start_iteration: int, *, single: bool = True) -> None:
        self._single = single
        self.last: tuple[int, int] | None = None
        self.path = path
        with storing(path):
            # Unbuffered, so that written rows survive a kill.
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
            self._file.truncate(self._end_of(start_iteration))

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row; raise StorageError if writing fails."""
        line = memoryview(_ENCODER.encode(row).encode() + b"\n")
        with storing(self.path):
            while line:
                line = line[self._file.write(line) :]

    def sync(self) -> None:
        """Flush all rows to the disk."""
        with storing(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close the file."""
        if not self._file.closed:
            try:
                self.sync()
            finally:
                with storing(self.path):
                    self._file.close()

    def _end_of(self, iteration: int) -> int:
        end, at = 0, 0
        # Rows are ordered by iteration, so everything after the first row to drop is dropped.
        with open(self.path, "rb") as lines:
            for line in lines:
                row = parse_row(line)
                at += len(line)
                if row is None or "step" not in row:
                    continue
                again = self._single and self.last is not None and row["iteration"] == self.last[0]
                if row["iteration"] > iteration or again:
                    break
                end = at
                self.last = row["iteration"], row["step"]
        return end


class Tracker:
    """Tracker that writes each row to the journals, then passes it to the console and the mirrors without waiting."""

    def __init__(self, run_dir: Path, mirrors: Sequence[Mirror], start_iteration: int, console: Console) -> None:
        self._metrics = Journal(run_dir / "metrics.jsonl", start_iteration)
        self._system = Journal(run_dir / "system.jsonl", start_iteration)
        with storing(run_dir):
            sync(run_dir)
        self._events_path = run_dir / "events.jsonl"
        self._events = Journal(self._events_path, start_iteration, single=False) if self._events_path.exists() else None
        last = self._metrics.last
        self._iteration, self._step = start_iteration, last[1] if last else 0
        self._console = console
        self._closed = False
        first_step = last[1] + 1 if last else 0
        self._queues = [(mirror, self._start(mirror, first_step)) for mirror in mirrors]

    def log(self, metrics: Metrics, events: Sequence[Mapping[str, Any]] = ()) -> None:
        """Record one row.

        Args:
            metrics: numbers (Python's, NumPy's or torch's) with `step`, and `iteration` above the last row's.
            events: plain data, each with `iteration` and `step`.

        Raises:
            ValueError: `iteration` is not above the last one.
            TypeError: a value is not a number.
            StorageError: writing fails.
        """
        head = {key: _whole(key, metrics[key]) for key in ("iteration", "step")}
        if head["iteration"] <= self._iteration:
            raise ValueError(f"metrics of iteration {head['iteration']} follow those of {self._iteration}")
        self._iteration, self._step = head["iteration"], head["step"]
        row = head | {key: _number(key, value) for key, value in metrics.items() if key not in head}

        for event in events:
            if self._events is None:
                self._events = Journal(self._events_path, self._iteration - 1, single=False)
                with storing(self._events_path):
                    sync(self._events_path.parent)
            self._events.write(finite(event))
        plain = finite(row)
        system = {key: value for key, value in plain.items() if key.startswith("system/")}
        self._metrics.write({key: value for key, value in plain.items() if key not in system})
        if system:
            self._system.write(head | system)

        self._show(row)

    def log_end(self, metrics: Metrics) -> None:
        """Record an evaluation after the last iteration, without `iteration` and `step`, as a further row of it."""
        head = {"iteration": self._iteration, "step": self._step}
        row = head | {key: _number(key, value) for key, value in metrics.items()}
        self._metrics.write(finite(row))
        self._show(row)

    def status(self, text: str) -> None:
        """Show on a terminal what the run waits for, until the next row."""
        self._console.status(text)

    def _show(self, row: Metrics) -> None:
        self._console.log(row)
        for mirror, queue in self._queues:
            queue.offer(partial(mirror.log, row))

    def sync(self) -> None:
        """Flush all rows to the disk; call it before saving a checkpoint, which must never be ahead of them."""
        for journal in self._journals():
            journal.sync()

    def close(self) -> None:
        """Close the journals, then all mirrors within their `close_timeout_s`, then the console."""
        if self._closed:
            return
        self._closed = True
        with contextlib.ExitStack() as closing:  # in reverse order, even after errors
            closing.callback(self._console.close)
            closing.callback(self._close_mirrors)
            for journal in self._journals():
                closing.callback(journal.close)

    def _journals(self) -> list[Journal]:
        return [self._metrics, self._system, *([] if self._events is None else [self._events])]

    def _close_mirrors(self) -> None:
        start = time.monotonic()
        for mirror, queue in self._queues:
            queue.close(mirror.close)
        for mirror, queue in self._queues:
            name = mirror.name
            if not queue.wait(start + 1 - time.monotonic()) and mirror.close_timeout_s > 1:
                self._console.message(f"waiting for {name}, at most {mirror.close_timeout_s:g} s")
            if not queue.wait(start + mirror.close_timeout_s - time.monotonic()):
                queue.silence()
                mirror.abandon()
                self._console.warn(
                    f"{name} did not close within {mirror.close_timeout_s:g} s and was abandoned; "
                    "metrics.jsonl has every row"
                )
            if queue.dropped:
                self._console.warn(f"{name} was too slow and missed {queue.dropped} rows; metrics.jsonl has every row")

    def _start(self, mirror: Mirror, first_step: int) -> WriteQueue:
        def switch_off(error: Exception) -> None:
            mirror.abandon()
            what = " ".join(f"{type(error).__name__}: {error}".split())
            self._console.warn(f"{mirror.name} failed and is off ({what}); metrics.jsonl still gets every row")

        queue = WriteQueue(mirror.name, mirror.queue_rows, switch_off)
        queue.offer(partial(mirror.open, first_step, self._console.message))
        return queue


def _whole(key: str, value: Any) -> int:
    number = _number(key, value)
    if number != int(number):
        raise TypeError(f"metric {key!r} is {number}, not an integer")
    return int(number)


def _number(key: str, value: Any) -> int | float:
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, (int, float)):
        raise TypeError(f"metric {key!r} is a {type(value).__name__}, not a number")
    return value
