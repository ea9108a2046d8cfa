"""The one loop: pull metrics out of an algorithm, track them, checkpoint, and stop when it is time."""

import contextlib
import os
import resource
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn, Protocol

from paddock.algos.pool.executor import NoForks
from paddock.algos.pool.protocol import Closes
from paddock.algos.protocol import (
    Algorithm,
    Evaluates,
    Interrupted,
    Metrics,
    TellsEvents,
    Unfinished,
    WaitsForEvaluations,
)
from paddock.envs.errors import PaddockError
from paddock.envs.ranges import Range, check_fields

from .checkpoint import Checkpoints, check_fits

BOUND = Range("must be positive and below 1e300, or null for no bound", above=0, high=1e300)
RATE_S = 1.0  # over which steps a second are counted, at least
NUDGE = signal.SIGURG  # which nobody sends, and is ignored where nothing handles it
NUDGES_S = (0.05, 0.2, 1.0)  # between a signal and the nudges that follow it
ECHO_S = 5.0  # within which SIGTERM comes again from others who tell all processes to end, such as a sweep that is busy


class StepRate:
    """Steps a second over the last second at least, as some algorithms give many rows at once."""

    def __init__(self, now: float, step: float) -> None:
        self._rows = deque([(now, step)])  # of which the first is as old as that, where any is

    def at(self, now: float, step: float) -> float:
        """Return the rate that a row of this moment shows."""
        while len(self._rows) > 1 and now - self._rows[1][0] >= RATE_S:
            self._rows.popleft()
        then, before = self._rows[0]
        self._rows.append((now, step))
        return (step - before) / max(now - then, 1e-9)


class RunFailed(PaddockError):
    """A run ended by an error of its own, after it had begun."""

    exit_code = 1


class MetricSink(Protocol):
    """Where metrics go."""

    def log(self, metrics: Metrics, events: Sequence[Mapping[str, Any]] = ()) -> None: ...
    def log_end(self, metrics: Metrics) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When a run ends: at whichever of these comes first; None for no such bound."""

    iterations: Annotated[int | None, BOUND]
    steps: Annotated[int | None, BOUND]  # environment steps
    minutes: Annotated[float | None, BOUND]  # by the clock, over all sessions of the run, also while they are stopped
    return_: float | None  # mean return of an evaluation

    def __post_init__(self) -> None:
        check_fields(self)

    def spent(self, metrics: Metrics, elapsed_s: float) -> str | None:
        """The bound that is reached, in words; None while there is some left."""
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
        """How much is spent of the bound that is nearest, 0 to 1; None without one that is sure to be reached."""
        reached = {
            "iterations": metrics.get("iteration", 0),
            "steps": metrics.get("step", 0),
            "minutes": elapsed_s / 60,
        }
        parts = [value / getattr(self, name) for name, value in reached.items() if getattr(self, name) is not None]
        return min(1.0, max(parts)) if parts else None


@dataclass(frozen=True)
class Outcome:
    """How a session of a run ended."""

    reason: str
    metrics: dict[str, float]  # the last value of each
    signal: int | None  # SIGINT or SIGTERM, where one ended it
    caught: int | None = None  # the one that came, though the run may have ended by itself


@dataclass
class Progress:
    """What the loop itself goes on from."""

    elapsed_s: float
    metrics: dict[str, float]  # the last value of each, system/ excepted
    unfinished: dict[str, float] | None = None  # the row that comes next, but for an evaluation
    events: Sequence[Mapping[str, Any]] = ()  # that led to it


def restore(algorithm: Algorithm, checkpoints: Checkpoints) -> Progress:
    """Bring the algorithm to the newest checkpoint, or leave it at the start where there is none.

    Raises:
        CheckpointError: no checkpoint is whole, or the state is of another shape.
    """
    state = checkpoints.load()
    if state is None:
        return Progress(0.0, {})
    check_fits(state["algorithm"], algorithm.state_dict())
    algorithm.load_state_dict(state["algorithm"])
    return Progress(**state["loop"])


def run(
    algorithm: Algorithm,
    tracker: MetricSink,
    checkpoints: Checkpoints,
    budget: Budget,
    progress: Progress,
    *,
    checkpoint_every_s: float,
    signals: "Signals",
    judge: Callable[[Metrics, float | None], str | None] | None = None,
    reached: str | None = None,
) -> Outcome:
    """Run until the budget is spent or a signal comes; the last iteration is on the disk when this returns.

    The policy that a run has at the end of its budget is evaluated, unless the last row has done so. A signal ends a
    wait for an evaluation, which is played once the run goes on.

    Args:
        progress: where to go on from, as `restore` returned it.
        signals: heard of from here on, until this returns.
        judge: shown every row, and how much of the budget is spent; says why the run should end early, if it should.
        reached: the bound that was reached before, in words, if one was: only the end is left to do.
    """
    resumed_s = progress.elapsed_s
    started = saved = time.monotonic()
    metrics = progress.metrics
    rate = StepRate(started, metrics.get("step", 0))
    spent, verdict, stopped = reached, None, None

    def save() -> None:
        # A checkpoint must never be ahead of the rows that lead to it.
        tracker.sync()
        checkpoints.save(int(metrics["iteration"]), {"algorithm": algorithm.state_dict(), "loop": vars(progress)})

    def stop(number: int) -> None:
        said(number)
        if metrics and isinstance(algorithm, WaitsForEvaluations):  # else the first row and its state would be lost
            algorithm.interrupt()

    said, signals.stopping = signals.stopping, stop
    with signals, contextlib.closing(_rows(algorithm, progress.unfinished)) as rows:
        for row in rows if reached is None else ():
            now = time.monotonic()
            progress.elapsed_s = resumed_s + now - started
            events = (*progress.events, *(algorithm.drain_events() if isinstance(algorithm, TellsEvents) else ()))
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
                    "system/memory_gb": memory_gb(),
                },
                events,
            )
            metrics |= {name: _plain(value) for name, value in row.items() if not name.startswith("system/")}
            verdict = judge(row, budget.share(row, progress.elapsed_s)) if judge is not None else None
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
    """Give the rows that come next: first the one that an earlier session left unfinished.

    A fork that an environment made here, and that goes on as if it were this process, ends: the run is not its own.
    """
    if unfinished is not None:
        assert isinstance(algorithm, WaitsForEvaluations)
        with NoForks():
            row = algorithm.complete(unfinished)
        yield row
    plan = iter(algorithm.plan())
    with contextlib.ExitStack() as stack:
        if isinstance(plan, Closes):
            stack.callback(plan.close)
        while True:
            with NoForks():
                following = next(plan, None)
            if following is None:
                return
            yield following


def _plain(value: Any) -> float:
    """A number as Python's own, of NumPy's or torch's."""
    return value.item() if hasattr(value, "item") else value


def memory_gb() -> float:
    """What this process holds in memory now."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:  # not Linux: the most it has held
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**30
    return pages * resource.getpagesize() / 2**30


def exit_at_once(number: int) -> NoReturn:
    """End the process, by a signal's number; workers watch their parent and end with it."""
    os._exit(128 + number)


class Signals:
    """Remembers the first SIGINT or SIGTERM; by the second one the process leaves, as a rule by ending at once.

    Where a service or a job is ended, all its processes have SIGTERM, and a sweep among them passes it on: that is one.
    In another thread than the main one, which alone can be told of signals, it remembers none. It may be entered again,
    and then knows what it was told before.

    Attributes:
        caught: the first one; None: none came.
        stopping: told of the first one at once, in whatever it interrupts.
        leave: called by a second one.
    """

    def __init__(self, stopping: Callable[[int], None], leave: Callable[[int], NoReturn] | None = None) -> None:
        self.caught: int | None = None
        self._caught_at = 0.0
        self.stopping = stopping
        self.leave = leave or exit_at_once

    def __enter__(self) -> "Signals":
        told = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if told else ()
        self._before = {number: signal.signal(number, self._handle) for number in numbers}
        self._nudged = _nudged(numbers) if told else contextlib.nullcontext()
        self._nudged.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._nudged.__exit__(None, None, None)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.caught is None:
            self._caught_at, self.caught = time.monotonic(), number
            self.stopping(number)
        elif not number == self.caught == signal.SIGTERM or time.monotonic() > self._caught_at + ECHO_S:
            self.leave(number)


@contextlib.contextmanager
def _nudged(numbers: Collection[int]) -> Iterator[None]:
    """Have signals handled soon though the main thread, which calls this, waits for something else.

    Python's handlers run once the main thread comes to them, and a signal ends its wait; but one that comes just as a
    wait begins does not, and is heard of when that ends by itself. So a thread, which Python tells at once, ends the
    wait by another signal that means nothing.
    """
    others, handler = signal.set_wakeup_fd(-1), signal.getsignal(NUDGE)
    signal.set_wakeup_fd(others)
    free = others == -1 and handler is not None  # else an event loop in this thread has them, or what is not Python's
    tell = _start_nudging(numbers) if free else None
    if tell is None:
        yield
        return
    signal.signal(NUDGE, lambda number, frame: None)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(NUDGE, handler)
        os.write(tell, bytes([0]))  # the number of no signal; not by closing alone, as forks have the pipe open, too
        os.close(tell)


def _start_nudging(numbers: Collection[int]) -> int | None:
    """Start the thread and return where it is told, by a signal's number or 0 to end; None where none can be had."""
    try:
        told, tell = os.pipe()
    except OSError:
        return None
    os.set_blocking(tell, False)
    try:
        threading.Thread(target=_nudge, args=(told, numbers), name="signals", daemon=True).start()
    except RuntimeError:  # as many as may be
        os.close(told)
        os.close(tell)
        return None
    return tell


def _nudge(told: int, numbers: Collection[int]) -> None:
    main = threading.main_thread().ident
    assert main is not None
    while 0 not in (come := os.read(told, 64)):
        for pause_s in NUDGES_S if not set(come).isdisjoint(numbers) else ():
            time.sleep(pause_s)
            signal.pthread_kill(main, NUDGE)
    os.close(told)
