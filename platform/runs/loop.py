"""Training loop: pull metrics from an algorithm, log them, save checkpoints, and stop at the budget."""

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import psutil

from paddock.algos.protocol import (
    Algorithm,
    Evaluates,
    Interrupted,
    Metrics,
    RecordsEvents,
    Unfinished,
    WaitsForEvaluations,
)
from paddock.envs.errors import PaddockError
from paddock.envs.parent import handle_here
from paddock.envs.ranges import Range, check_fields

from .checkpoint import Checkpoints, check_fits

if TYPE_CHECKING:
    from ..tracking.tracker import Tracker

BOUND = Range("must be positive and below 1e300, or null for no limit", above=0, high=1e300)
RATE_S = 1.0  # shortest span over which steps per second are measured
ECHO_S = 5.0  # within which a second SIGTERM counts as the first one


class StepRate:
    """Steps per second over at least one second, since some algorithms yield many rows at once."""

    def __init__(self, now: float, step: float) -> None:
        """Start at a time in seconds and a step."""
        self._rows = deque([(now, step)])  # the first is at least RATE_S old, if any is

    def at(self, now: float, step: float) -> float:
        """Add a row and return the rate up to it."""
        while len(self._rows) > 1 and now - self._rows[1][0] >= RATE_S:
            self._rows.popleft()
        then, before = self._rows[0]
        self._rows.append((now, step))
        return (step - before) / max(now - then, 1e-9)


class RunFailed(PaddockError):
    """An error that ended a run after its start."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of a run, which ends at the first one it reaches; None is unlimited."""

    iterations: Annotated[int | None, BOUND]
    steps: Annotated[int | None, BOUND]  # environment steps
    minutes: Annotated[float | None, BOUND]  # wall-clock time over all sessions
    return_: float | None  # mean return of an evaluation

    def __post_init__(self) -> None:
        check_fields(self)

    def spent(self, metrics: Metrics, elapsed_s: float) -> str | None:
        """Return the limit that was reached as `budget.KEY=VALUE`, or None."""
        if self.iterations is not None and metrics["iteration"] >= self.iterations:
            return f"budget.iterations={self.iterations}"
        if self.steps is not None and metrics["step"] >= self.steps:
            return f"budget.steps={self.steps}"
        if self.return_ is not None and metrics.get("eval/return_mean", float("-inf")) >= self.return_:
            return f"budget.return={self.return_}"
        if self.minutes is not None and elapsed_s >= 60 * self.minutes:
            return f"budget.minutes={self.minutes}"
        return None

    def share(self, metrics: Metrics, elapsed_s: float) -> float | None:
        """Return the spent share of the nearest limit, 0 to 1; None if only `return` or nothing is limited."""
        reached = {
            "iterations": metrics.get("iteration", 0),
            "steps": metrics.get("step", 0),
            "minutes": elapsed_s / 60,
        }
        shares = [value / getattr(self, name) for name, value in reached.items() if getattr(self, name) is not None]
        return min(1.0, max(shares)) if shares else None


@dataclass(frozen=True)
class Outcome:
    """End of a session: the reason, the last metrics, and a signal if one came."""

    reason: str
    metrics: dict[str, float]  # the last value of each
    signal: int | None  # SIGINT or SIGTERM if it ended the session
    caught: int | None = None  # the signal received, even if the run ended for another reason


@dataclass
class Progress:
    """Checkpointed state of the loop."""

    elapsed_s: float
    metrics: dict[str, float]  # the last value of each, without system/
    unfinished: dict[str, float] | None = None  # the next row, whose evaluation is pending
    events: Sequence[Mapping[str, Any]] = ()  # events of that row


def restore(algorithm: Algorithm, checkpoints: Checkpoints) -> Progress:
    """Load the newest checkpoint into the algorithm, if there is one."""
    state = checkpoints.load()
    if state is None:
        return Progress(0.0, {})
    check_fits(state["algorithm"], algorithm.state_dict())
    algorithm.load_state_dict(state["algorithm"])
    return Progress(**state["loop"])


def run(
    algorithm: Algorithm,
    tracker: "Tracker",
    checkpoints: Checkpoints,
    budget: Budget,
    progress: Progress,
    *,
    checkpoint_every_s: float,
    signals: "Signals",
    find_stop_reason: Callable[[Metrics, float | None], str | None] | None = None,
    reached: str | None = None,
) -> Outcome:
    """Run until the budget is spent or a signal arrives; the last iteration is saved when this returns.

    The final policy is evaluated unless the last row contains its evaluation. A signal ends the wait for a pending
    evaluation, which is completed when the run resumes.

    Args:
        algorithm: yields the metrics.
        tracker: logs them.
        checkpoints: where the state is saved.
        budget: limits of the run.
        progress: where to resume, as returned by `restore`.
        checkpoint_every_s: interval between checkpoints in seconds.
        signals: entered while this runs.
        find_stop_reason: maps each row and the spent share of the budget to a reason to stop early, or None.
        reached: the limit that an earlier session reached; only the final evaluation is left to run.
    """
    resumed_s = progress.elapsed_s
    started = saved = time.monotonic()
    metrics = progress.metrics
    process, rate = psutil.Process(), StepRate(started, metrics.get("step", 0))
    spent, verdict, stopped = reached, None, None

    def save() -> None:
        # A checkpoint must never be ahead of the journals.
        tracker.sync()
        checkpoints.save(int(metrics["iteration"]), {"algorithm": algorithm.state_dict(), "loop": vars(progress)})

    def stop(number: int) -> None:
        notify(number)
        if metrics and isinstance(algorithm, WaitsForEvaluations):  # else the first row would be lost
            algorithm.interrupt()

    notify, signals.on_first = signals.on_first, stop
    with signals, contextlib.closing(_rows(algorithm, progress.unfinished)) as rows:
        for row in rows if reached is None else ():
            now = time.monotonic()
            progress.elapsed_s = resumed_s + now - started
            events = (*progress.events, *(algorithm.drain_events() if isinstance(algorithm, RecordsEvents) else ()))
            if isinstance(row, Unfinished):
                progress.unfinished, progress.events = {name: _plain(row[name]) for name in row}, events
                stopped = signals.caught
                break
            progress.unfinished, progress.events = None, ()
            tracker.log(
                {
                    **row,
                    "system/seconds": progress.elapsed_s,
                    "system/steps_per_s": rate.at(now, row["step"]),
                    "system/memory_gb": process.memory_info().rss / 2**30,
                },
                events,
            )
            metrics |= {name: _plain(value) for name, value in row.items() if not name.startswith("system/")}
            verdict = find_stop_reason(row, budget.share(row, progress.elapsed_s)) if find_stop_reason else None
            spent, stopped = budget.spent(row, progress.elapsed_s), signals.caught
            if spent or verdict or stopped:
                break
            if now - saved >= checkpoint_every_s:
                save()
                saved = time.monotonic()
        else:
            spent = reached or "the algorithm's plan ended"
        if metrics and reached is None:
            save()
        last = dict(metrics)
        if spent and metrics and metrics.get("eval/of_iteration") != metrics["iteration"]:
            tracker.status("evaluating the final policy ...")
            try:
                evaluations = algorithm.evaluate_last() if isinstance(algorithm, Evaluates) else ()
            except Interrupted:
                spent, stopped, evaluations = None, signals.caught, ()
            for evaluation in evaluations:
                tracker.log_end(evaluation)
                last |= {name: _plain(value) for name, value in evaluation.items()}
    if spent or verdict:
        return Outcome(str(spent or verdict), last, None, signals.caught)
    assert stopped is not None
    return Outcome(signal.Signals(stopped).name, last, stopped, stopped)


def _rows(algorithm: Algorithm, unfinished: Metrics | None) -> Generator[Metrics, None, None]:
    """Yield the next rows, starting with the one whose evaluation was pending."""
    if unfinished is not None:
        assert isinstance(algorithm, WaitsForEvaluations)
        yield algorithm.complete(unfinished)
    yield from algorithm.plan()


def _plain(value: Any) -> float:
    return value.item() if hasattr(value, "item") else value


def exit_at_once(number: int) -> NoReturn:
    """End the process with a signal's exit code; workers watch their parent and exit too."""
    os._exit(128 + number)


class Signals:
    """Context that records the first SIGINT or SIGTERM, and ends the process on the second one.

    Service managers signal every process of a run and sweeps forward SIGTERM, so SIGTERM twice within `ECHO_S` counts
    as one signal. Python handles signals in the main thread only; in other threads this does nothing.

    Attributes:
        caught: the first signal, or None.
        on_first: called with the first signal, from its handler.
        on_second: called with the second signal, from its handler.
    """

    def __init__(self, on_first: Callable[[int], None], on_second: Callable[[int], NoReturn] | None = None) -> None:
        """Set the callbacks; a second signal exits by default."""
        self.caught: int | None = None
        self._caught_at = 0.0
        self.on_first = on_first
        self.on_second = on_second or exit_at_once

    def __enter__(self) -> "Signals":
        numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        self._before = {}
        for number in numbers:
            self._before[number] = handle_here(number, self._handle, signal.getsignal(number))
        return self

    def __exit__(self, *_: object) -> None:
        for number, (handler, in_forks) in self._before.items():
            handle_here(number, handler, in_forks)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.caught is None:
            self._caught_at, self.caught = time.monotonic(), number
            self.on_first(number)
        elif not number == self.caught == signal.SIGTERM or time.monotonic() > self._caught_at + ECHO_S:
            self.on_second(number)
