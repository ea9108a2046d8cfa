"""Submitted runs: whether their jobs are in the queue, and how they ended."""

import contextlib
import dataclasses
import math
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from ..runs.state import (
    ALIVE,
    RUNNING,
    WAITING,
    RunState,
    ask_exit_code,
    ask_queue,
    log_tail,
    read_run_states,
    read_submission,
)
from ..sweep.placement import SHOWN, End
from ..sweep.trial import LACKS

LOOK_S = (1.0, 15.0)  # between looks at the jobs while waiting for them: at first, and after a while
NFS_DELAY_S = 60.0  # until NFS shows what another machine has written
SILENT = "not known to have ended, as squeue does not answer"


class Queued:
    """A run in the queue; see `placement.Running`."""

    def __init__(self, run: Path) -> None:
        """Follow the run in a folder."""
        self._run = run
        self._pause_s = LOOK_S[0]
        self._look_at = time.monotonic() + self._pause_s
        self._lost: dict[Path, float] = {}

    def ended(self) -> End | None:
        """Return how it ended; Slurm is asked now and then."""
        if time.monotonic() < self._look_at:
            return None
        self._pause_s = min(1.2 * self._pause_s, LOOK_S[1])
        self._look_at = time.monotonic() + self._pause_s
        [run_state] = read_states_after_delay([self._run], self._lost)
        if run_state.state in ALIVE:
            return None
        submission, code = run_state.submission, {"done": 0, "failed": 1}.get(run_state.state, -1)
        said = log_tail(submission, SHOWN) if submission else []
        if code and submission and (told := ask_exit_code(submission.job)) in LACKS:  # which its folder cannot say
            code = told
        return End(code, said or [run_state.why])

    def stop(self) -> None:
        """Cancel its job, which lets it save."""
        submission = read_submission(self._run)
        if submission is not None:
            subprocess.run(["scancel", submission.job], capture_output=True)


def find_active_job(run: Path) -> tuple[str, str] | None:
    """Return the run's job and its state if it is, or may be, in the queue."""
    before = read_submission(run)
    if before is None:
        return None
    queue = ask_queue([before.job])
    if queue is None:
        return before.job, SILENT
    state, _, name = queue.get(before.job, ("", "", ""))
    return (before.job, state) if name == before.name and state in (*WAITING, *RUNNING) else None


def read_states_after_delay(runs: Sequence[Path], lost: dict[Path, float]) -> list[RunState]:
    """Read the states of runs; one is lost only after a while, as its end may not show yet on this machine.

    Args:
        lost: since when each is lost; kept from call to call.
    """
    for run in runs:
        with contextlib.suppress(OSError):
            os.listdir(run)  # has NFS ask what is there
    run_states, now = read_run_states(runs), time.monotonic()
    since = {one.run: lost.get(one.run, now) for one in run_states if one.state == "lost"}
    lost.clear()
    lost.update(since)
    return [
        dataclasses.replace(one, state="unknown") if now < since.get(one.run, -math.inf) + NFS_DELAY_S else one
        for one in run_states
    ]
