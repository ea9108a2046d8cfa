"""Trials of a running sweep: requested when a slot is free, started, recorded, and taken over from dead processes.

Several processes may share a study. The sweep's folder holds a lock for choosing a trial, and for each process a file
that it keeps locked while it lives, so that trials of dead processes can be found.
"""

import contextlib
import fcntl
import math
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from paddock.envs.errors import PaddockError, nearest
from paddock.envs.process import keep_from_forks

from ..config.command import display_path
from ..runs.folder import has_ended, read_end
from ..runs.state import is_held, last_metrics
from .placement import End, LaunchTarget, Plan, Running, supervise
from .study import SweepSettings, open_trial, parse_objectives
from .trial import PRUNED, SHARED_FAILURES, Note

OWNERS = ".owners"  # in the sweep's folder: one file per process
WITH_VALUES = (TrialState.COMPLETE, TrialState.PRUNED)
BAD_INPUT = PaddockError.exit_code
STOPPED = (-2, -15, 130, 143)  # exit codes after SIGINT and SIGTERM
TAKE_OVER_S = 5.0  # between checks for trials of dead processes


class SweepSession:
    """One process's share of a sweep; trial n has the subfolder n.

    `plan` samples the missing parameters of a trial, and returns its overrides and how to start it.
    """

    def __init__(
        self,
        study: optuna.Study,
        folder: Path,
        settings: SweepSettings,
        target: LaunchTarget,
        plan: Callable[[Trial, Path], tuple[list[str], Plan]],
    ) -> None:
        """Set the sweep; nothing is started before `run`."""
        self.ended_by: str | None = None  # the failure that ends the sweep
        self._study, self._folder, self._settings, self._target = study, folder, settings, target
        self._plan = plan
        self._running: dict[int, Running] = {}
        self._in_flight: dict[int, Trial] = {}
        self._owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self._next_check = 0.0
        self._waiting = False

    def run(self) -> int | None:
        """Run until all trials have finished; return the signal that stopped this, if any."""
        with _owning(self._folder, self._owner):
            steps = self._fill, self._conclude, self._is_over, lambda: self.ended_by is not None
            return supervise("trials", self._target, self._running, *steps)

    def _is_over(self) -> bool:
        finished = [trial.state.is_finished() for trial in self._trials()]
        if sum(finished) >= self._settings.n_trials:
            return True
        if not self._waiting:
            self._waiting = True
            print("waiting for trials of other processes", flush=True)
        return False

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _fill(self) -> None:
        slots = self._settings.parallel or self._target.slots
        while self.ended_by is None and len(self._running) < slots:
            with locked(self._folder):
                found = self._take_over() or self._next()
            if found is None:
                return
            trial, note = found
            self._start(trial, note)

    def _next(self) -> tuple[Trial, Note] | None:
        trials = self._trials()
        expected = sum(trial.state.is_finished() or trial.state == TrialState.RUNNING for trial in trials)
        if expected >= self._settings.n_trials:
            return None
        self._study.sampler = self._settings.make_sampler(len(trials))
        trial = self._study.ask()
        note = Note(trial.number, self._owner)
        note.write(self._folder / str(trial.number))
        return trial, note

    def _take_over(self) -> tuple[Trial, Note] | None:
        if time.monotonic() < self._next_check:
            return None
        living: dict[str, bool] = {}
        for frozen in self._trials():
            if frozen.state != TrialState.RUNNING or frozen.number in self._running:
                continue
            run = self._folder / str(frozen.number)
            note = Note.read(run) or Note(frozen.number, "")
            if note.owner not in living:
                living[note.owner] = note.owner != self._owner and is_held(self._folder / OWNERS / note.owner)
            if not living[note.owner]:
                note = replace(note, owner=self._owner)
                note.write(run)
                # Sampled values are kept.
                sampled = bool(note.overrides)
                make = self._settings.make_sampler
                self._study.sampler = optuna.samplers.RandomSampler() if sampled else make(frozen.number)
                return open_trial(self._study, frozen), note
        self._next_check = time.monotonic() + TAKE_OVER_S
        return None

    def _start(self, trial: Trial, note: Note) -> None:
        run = self._folder / str(trial.number)
        sampled, plan = self._plan(trial, run)
        if has_ended(run):
            # It finished after its owner died.
            self._record(trial, run, str(read_end(run)))
            return
        # Written before the start, since the run may outlive this process.
        replace(note, overrides=sampled, starts=note.starts + 1).write(run)
        running = self._target.start(plan)
        if running is None:
            self._next_check = time.monotonic() + TAKE_OVER_S
            return
        verb = "resumed" if note.starts else "started"
        print(f"trial {trial.number} {verb}: {' '.join(sampled)}", flush=True)
        self._running[trial.number], self._in_flight[trial.number] = running, trial

    def _conclude(self, number: int, end: End, stopping: bool) -> None:
        """Record the end of a trial in the study, or restart it if its process was lost."""
        trial, run = self._in_flight.pop(number), self._folder / str(number)
        if end.code == 0 and (reason := read_end(run)) is not None:
            self._record(trial, run, reason)
        elif stopping and end.code in STOPPED:
            print(f"trial {trial.number} saved", flush=True)
        elif end.code in SHARED_FAILURES:
            remedy = "fix this, then run the same command to resume the trial"
            self.ended_by = f"{SHARED_FAILURES[end.code].format(number)}; {remedy}"
            print("".join(f"    | {line}\n" for line in end.output), end="", file=sys.stderr, flush=True)
        elif end.code in (1, BAD_INPUT):
            self._fail(trial, f"exit code {end.code}", end.output)
        else:
            note = Note.read(run) or Note(trial.number, self._owner)
            note = replace(note, losses=note.losses + 1)
            note.write(run)
            lost = f"its process was lost ({end.code})"
            if note.losses > self._settings.retries:
                self._fail(trial, f"{lost} {note.losses} times", end.output)
            elif not stopping:
                print(f"trial {trial.number}: {lost}; resuming from its checkpoint", flush=True)
                self._start(trial, note)

    def _record(self, trial: Trial, run: Path, reason: str) -> None:
        metrics = last_metrics(run)[0]
        names = list(parse_objectives(self._settings.objectives))
        values = [metrics.get(name, math.nan) for name in names]
        missing = [name for name, value in zip(names, values, strict=True) if math.isnan(value)]
        trial.set_user_attr("run", run.name)
        trial.set_user_attr("steps", metrics.get("step", 0))
        trial.set_user_attr("seconds", metrics.get("system/seconds", 0.0))
        pruned = reason.startswith(PRUNED)
        if missing and not pruned:
            name = missing[0]
            hint = (
                "its value was not finite" if name in metrics else f"hydra.sweeper.objectives: {nearest(name, metrics)}"
            )
            why = f"its run in {display_path(run)} ended without {name}; {hint}"
            # Until a trial has values, a missing metric is treated as a misspelled name.
            return self._fail(trial, why, [], shared=name not in metrics and not self._has_values())
        state = TrialState.PRUNED if pruned else TrialState.COMPLETE
        self._study.tell(trial, None if pruned else values, state, skip_if_finished=True)
        listed = ", ".join(f"{name} {value:.6g}" for name, value in zip(names, values, strict=True))
        ended = sum(other.state.is_finished() for other in self._trials())
        how = reason if pruned else "ended"
        print(f"trial {trial.number} {how}: {listed}  ({ended} of {self._settings.n_trials})", flush=True)
        return None

    def _has_values(self) -> bool:
        return any(trial.state in WITH_VALUES for trial in self._trials())

    def _fail(self, trial: Trial, why: str, output: Sequence[str], shared: bool = False) -> None:
        trial.set_user_attr("run", str(trial.number))
        trial.set_user_attr("failure", why)
        self._study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        if shared:
            self.ended_by = self.ended_by or f"trial {trial.number} failed, as all trials would: {why}"
            return
        lines = "".join(f"\n    | {line}" for line in output)
        print(f"trial {trial.number} failed: {why}{lines}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a sweep's folder."""
    with open(folder / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _owning(folder: Path, name: str) -> Iterator[None]:
    path = folder / OWNERS / name
    path.parent.mkdir(exist_ok=True)
    with keep_from_forks(open(path, "w")) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    path.unlink(missing_ok=True)
