"""Timing metrics of an iteration, `system/...`, the same for every algorithm; docs/reference/metrics.md lists them."""

import time
from typing import Protocol


class Clock:
    """Stopwatch that divides an iteration's time among consecutive activities."""

    def __init__(self) -> None:
        self._begun = self._last = time.perf_counter()
        self._spent: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Add the time since the last lap to an activity."""
        now = time.perf_counter()
        self._spent[name] = self._spent.get(name, 0.0) + now - self._last
        self._last = now

    def read(self) -> dict[str, float]:
        """Return the metrics of the iteration that ended with the last lap, and start the next one."""
        times = {"system/iteration_s": self._last - self._begun}
        times |= {f"system/{name}_s": spent for name, spent in self._spent.items()}
        self._begun, self._spent = self._last, {}
        return with_shares(times)


class Work(Protocol):
    """Work that a pool has computed so far."""

    worker_s: float  # summed over workers
    retries: int


class WorkClock:
    """Stopwatch of overlapping iterations, which learn while tasks of others are running."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._then = self._start = self._now()

    def read(self, workers: int) -> dict[str, float]:
        """Return the metrics of the iteration that ends now, and the workers' idle share since this clock started."""
        now = self._now()
        seconds, learn_s, worker_s, retries = (after - before for after, before in zip(now, self._then, strict=True))
        self._then = now
        # Learning is this thread's CPU time, and the rest is waiting; the two clocks may differ slightly.
        learn_s = min(learn_s, seconds)
        times = {"system/iteration_s": seconds, "system/learn_s": learn_s, "system/wait_s": seconds - learn_s}
        # Measured since the start, because workers may compute tasks ahead of their iteration.
        idle = worker_times(now[2] - self._start[2], now[0] - self._start[0], workers)
        return with_shares(times) | idle | {"system/worker_s": worker_s, "system/retries": retries}

    def _now(self) -> tuple[float, float, float, int]:
        return time.perf_counter(), time.thread_time(), self._work.worker_s, self._work.retries


def with_shares(times: dict[str, float]) -> dict[str, float]:
    """Add the shares of learning and waiting to times."""
    total, waited = times["system/iteration_s"], times["system/wait_s"] + times.get("system/eval_wait_s", 0.0)
    return {**times, "system/learn_share": times["system/learn_s"] / total, "system/wait_share": waited / total}


def worker_times(worker_s: float, seconds: float, threads: int) -> dict[str, float]:
    """Return metrics of the workers' computing time, summed over workers, in `seconds` of elapsed time."""
    idle = 1 - worker_s / (max(threads, 1) * seconds)
    return {"system/worker_s": worker_s, "system/idle_share": max(0.0, idle)}
