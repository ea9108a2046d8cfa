"""Where the time of an iteration goes: the keys of the group `system/`, the same for every algorithm.

iteration_s    from one row to the next; what follows the dash below is seconds of it, spent in this process
loop_s         - in the loop that tracks, saves checkpoints and stops
wait_s         - until what is learned from was there: played here, or waited for
learn_s        - updating
replay_s       - storing what was played, and drawing what is learned from
eval_wait_s    - until an evaluation was there
ahead_wait_s   who plays ahead (staleness above 0, or threads) waiting for weights that had yet to be learned
queue_wait_s   who plays ahead waiting for room between them and who learns; both summed over all of them
env_s          waiting for environments, summed over all who play a rollout
policy_s       choosing actions, summed likewise
worker_s       computing tasks, summed over the pool's workers
*_share        of the iteration: env and policy, on average over those who play; learn; wait, for anything. Where this
               process plays and learns in turn, the four and loop_s are all of the time
idle_share     of the pool's workers: 1 - worker_s / (workers x iteration_s)
retries        tasks started again after a lost worker; env_restarts: processes of environments replaced so far
seconds        over all sessions; steps_per_s, memory_gb of this process: added by the loop
"""

import time
from typing import Protocol


class Clock:
    """Splits the time of an iteration among what it is told of, in the order of the program."""

    def __init__(self) -> None:
        self._begun = self._last = time.perf_counter()
        self._spent: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """What has passed since the last lap was spent on this."""
        now = time.perf_counter()
        self._spent[name] = self._spent.get(name, 0.0) + now - self._last
        self._last = now

    def read(self) -> dict[str, float]:
        """The metrics of the iteration that ends with the last lap; the next one begins there."""
        times = {"system/iteration_s": self._last - self._begun}
        times |= {f"system/{name}_s": spent for name, spent in self._spent.items()}
        self._begun, self._spent = self._last, {}
        return with_shares(times)


class Work(Protocol):
    """What a pool has computed so far."""

    worker_s: float  # summed over workers
    retries: int


class WorkClock:
    """Splits the time of iterations that overlap: learning goes on between ends of tasks that come in."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._then = self._met = self._now()

    def read(self, workers: int) -> dict[str, float]:
        """The metrics of the iteration that ends now, and how busy the workers have been since this clock began."""
        now = self._now()
        seconds, learn_s, worker_s, retries = (after - before for after, before in zip(now, self._then, strict=True))
        self._then = now
        # Learning is what this thread computed, and the rest is waiting. The two clocks tick apart.
        learn_s = min(learn_s, seconds)
        times = {"system/iteration_s": seconds, "system/learn_s": learn_s, "system/wait_s": seconds - learn_s}
        # Work ahead of this iteration makes it look too short or too busy alone.
        idle = worker_times(now[2] - self._met[2], now[0] - self._met[0], workers)
        return with_shares(times) | idle | {"system/worker_s": worker_s, "system/retries": retries}

    def _now(self) -> tuple[float, float, float, int]:
        return time.perf_counter(), time.thread_time(), self._work.worker_s, self._work.retries


def with_shares(times: dict[str, float]) -> dict[str, float]:
    """Times, and what learning and waiting are of the whole."""
    total, waited = times["system/iteration_s"], times["system/wait_s"] + times.get("system/eval_wait_s", 0.0)
    return {**times, "system/learn_share": times["system/learn_s"] / total, "system/wait_share": waited / total}


def worker_times(worker_s: float, seconds: float, threads: int) -> dict[str, float]:
    """How busy the threads of a pool's workers were in so many seconds.

    Args:
        worker_s: their computing, summed over them.
    """
    idle = 1 - worker_s / (max(threads, 1) * seconds)
    return {"system/worker_s": worker_s, "system/idle_share": max(0.0, idle)}
