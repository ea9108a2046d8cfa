"""Submitted runs: states of their jobs, and how they ended."""

import contextlib
import os
import subprocess
import time
from pathlib import Path

from ..runs.state import (
    ALIVE,
    RUNNING,
    WAITING,
    ask_exit_code,
    ask_queue,
    log_tail,
    read_run_states,
    read_submission,
)
from ..sweep.placement import SHOWN, End
from ..sweep.trial import SHARED_FAILURES

POLL_S = (1.0, 15.0)  # first and longest interval between queries of Slurm
NFS_DELAY_S = 60.0  # until NFS shows what another machine has written
NO_ANSWER = "in an unknown state: squeue does not respond"


class Queued:
    """Started run in Slurm's queue."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._pause_s = POLL_S[0]
        self._next_poll = time.monotonic() + self._pause_s
        self._lost_since: float | None = None

    def ended(self) -> End | None:
        """Return the end of the run, or None; Slurm is queried at increasing intervals."""
        if time.monotonic() < self._next_poll:
            return None
        self._pause_s = min(1.2 * self._pause_s, POLL_S[1])
        self._next_poll = time.monotonic() + self._pause_s
        with contextlib.suppress(OSError):
            os.listdir(self._run)  # refreshes the NFS cache
        [run_state] = read_run_states([self._run])
        if run_state.state in ALIVE:
            self._lost_since = None
            return None
        if run_state.state == "lost":  # unless NFS does not show its end yet
            self._lost_since = self._lost_since or time.monotonic()
            if time.monotonic() < self._lost_since + NFS_DELAY_S:
                return None
        submission, code = run_state.submission, {"done": 0, "failed": 1}.get(run_state.state, -1)
        output = log_tail(submission, SHOWN) if submission else []
        # The run folder does not record the exit code.
        if code and submission and (exit_code := ask_exit_code(submission.job)) in SHARED_FAILURES:
            code = exit_code
        return End(code, output or [run_state.why])

    def stop(self) -> None:
        """Cancel its job; the run saves before it exits."""
        submission = read_submission(self._run)
        if submission is not None:
            subprocess.run(["scancel", submission.job], capture_output=True)


def find_active_job(run: Path) -> tuple[str, str] | None:
    """Return the id and state of a run's job if it is, or may be, in the queue."""
    before = read_submission(run)
    if before is None:
        return None
    queue = ask_queue([before.job])
    if queue is None:
        return before.job, NO_ANSWER
    state, _, name = queue.get(before.job, ("", "", ""))
    return (before.job, state) if name == before.name and state in (*WAITING, *RUNNING) else None
