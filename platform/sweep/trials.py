"""The trials of a running sweep: asked for as there is room, started, told, and taken over from dead processes.

Several processes may share a study. In the sweep's folder are a lock that is held while a trial is chosen, and for each
process a file that it keeps locked while it lives, so that trials without a living owner can be found.
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
from .study import Constraint, SweepSettings, open_trial, parse_objectives
from .trial import LACKS, PRUNED, Note

OWNERS = ".owners"  # in the sweep's folder: a file for each process at it
HAVING = (TrialState.COMPLETE, TrialState.PRUNED)  # states of trials that had their objectives
REFUSED = PaddockError.exit_code
STOPPED = (-2, -15, 130, 143)  # exit codes of a run that was asked to end
WAITS_S = 5.0  # between two looks at trials of others
FAR = 1e300  # beyond a bound


class SweepSession:
    """One process's part in a sweep.

    Args:
        study: as it is stored.
        folder: the sweep's, in which trial n has the folder n.
        plan: draws what is not drawn yet of a trial, and returns how to start it.
    """

    def __init__(
        self,
        study: optuna.Study,
        folder: Path,
        settings: SweepSettings,
        target: LaunchTarget,
        plan: Callable[[Trial, Path], tuple[list[str], Plan]],
    ) -> None:
        self.ended_by: str | None = None  # the failure that ends the sweep, and what to do
        self._study, self._folder, self._settings, self._target = study, folder, settings, target
        self._plan = plan
        self._running: dict[int, Running] = {}
        self._in_flight: dict[int, Trial] = {}  # the trials of those
        self._mine = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self._look_at = 0.0
        self._waiting = False

    def run(self) -> int | None:
        """Run until all trials have finished; return the signal that ended this, if any."""
        with _owning(self._folder, self._mine):
            steps = self._fill, self._conclude, self._is_over, lambda: self.ended_by is not None
            return supervise("trials", self._target, self._running, *steps)

    def _is_over(self) -> bool:
        if sum(trial.state.is_finished() for trial in self._trials()) >= self._settings.n_trials:
            return True
        if not self._waiting:
            self._waiting = True
            print("the trials that are left are another process's; waiting for them", flush=True)
        return False

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _fill(self) -> None:
        """Start trials while there is room."""
        room = self._settings.parallel or self._target.slots
        while self.ended_by is None and len(self._running) < room:
            with locked(self._folder):
                found = self._take_over() or self._next()
            if found is None:
                return
            trial, note = found
            self._start(trial, note)

    def _next(self) -> tuple[Trial, Note] | None:
        """Ask for a new trial if more are needed."""
        trials = self._trials()
        expected = sum(trial.state.is_finished() or trial.state == TrialState.RUNNING for trial in trials)
        if expected >= self._settings.n_trials:
            return None
        self._study.sampler = self._settings.make_sampler(len(trials))
        trial = self._study.ask()
        note = Note(trial.number, self._mine)
        note.write(self._folder / str(trial.number))
        return trial, note

    def _take_over(self) -> tuple[Trial, Note] | None:
        """Take over a trial whose owner has gone."""
        if time.monotonic() < self._look_at:
            return None
        living: dict[str, bool] = {}
        for frozen in self._trials():
            if frozen.state != TrialState.RUNNING or frozen.number in self._running:
                continue
            run = self._folder / str(frozen.number)
            note = Note.read(run) or Note(frozen.number, "")
            if note.owner not in living:
                living[note.owner] = note.owner != self._mine and is_held(self._folder / OWNERS / note.owner)
            if not living[note.owner]:
                note = replace(note, owner=self._mine)
                note.write(run)
                # Values that were drawn stay.
                drawn = bool(note.overrides)
                make = self._settings.make_sampler
                self._study.sampler = optuna.samplers.RandomSampler() if drawn else make(frozen.number)
                return open_trial(self._study, frozen), note
        self._look_at = time.monotonic() + WAITS_S
        return None

    def _start(self, trial: Trial, note: Note) -> None:
        run = self._folder / str(trial.number)
        drawn, plan = self._plan(trial, run)
        if has_ended(run):
            # It ended after its owner had gone.
            self._tell(trial, run, str(read_end(run)))
            return
        # Before it starts, as it may outlive this process.
        replace(note, overrides=drawn, starts=note.starts + 1).write(run)
        running = self._target.start(plan)
        if running is None:
            self._look_at = time.monotonic() + WAITS_S
            return
        verb = "goes on" if note.starts else "starts"
        print(f"trial {trial.number} {verb}: {' '.join(drawn)}", flush=True)
        self._running[trial.number], self._in_flight[trial.number] = running, trial

    def _conclude(self, number: int, end: End, stopping: bool) -> None:
        """Tell the study how a trial ended, or start it again if it was its process that got lost."""
        trial, run = self._in_flight.pop(number), self._folder / str(number)
        if end.code == 0 and (reason := read_end(run)) is not None:
            self._tell(trial, run, reason)
        elif stopping and end.code in STOPPED:
            print(f"trial {trial.number} has saved", flush=True)
        elif end.code in LACKS:
            self.ended_by = (
                f"{LACKS[end.code].format(number)}; the trial is kept; mend that, and the same command goes on"
            )
            print("".join(f"    | {line}\n" for line in end.said), end="", file=sys.stderr, flush=True)
        elif end.code in (1, REFUSED):
            self._fail(trial, f"exit code {end.code}", end.said)
        else:
            note = Note.read(run) or Note(trial.number, self._mine)
            note = replace(note, losses=note.losses + 1)
            note.write(run)
            lost = f"its process was lost ({end.code})"
            if note.losses > self._settings.retries:
                self._fail(trial, f"{lost}, {note.losses} times in all", end.said)
            elif not stopping:
                print(f"trial {trial.number}: {lost}; it goes on from its checkpoint", flush=True)
                self._start(trial, note)

    def _tell(self, trial: Trial, run: Path, reason: str) -> None:
        metrics = last_metrics(run)[0]
        names = list(parse_objectives(self._settings.objectives))
        values = [metrics.get(name, math.nan) for name in names]
        missing = [name for name, value in zip(names, values, strict=True) if math.isnan(value)]
        trial.set_user_attr("run", run.name)
        trial.set_user_attr("steps", metrics.get("step", 0))
        trial.set_user_attr("seconds", metrics.get("system/seconds", 0.0))
        pruned = reason.startswith(PRUNED)
        constraints = {} if pruned else {text: Constraint.parse(text) for text in self._settings.constraints}
        lacking = ["objectives", missing[0]] if missing and not pruned else None
        if lacking is None and not self._has_had_metrics():
            unknown = [one.metric for one in constraints.values() if one.metric not in metrics]
            lacking = ["constraints", unknown[0]] if unknown else None
        if lacking is not None:
            key, name = lacking
            like = "it was no number" if name in metrics else f"hydra.sweeper.{key}: {nearest(name, metrics)}"
            why = f"its run in {display_path(run)} ended without {name}; {like}"
            # As long as no trial has had its metrics, the name is taken for wrong.
            return self._fail(trial, why, [], others_too=name not in metrics and not self._has_had_metrics())
        for text, constraint in constraints.items():
            excess = constraint.excess(metrics.get(constraint.metric, math.nan))
            # A missing value is out of bounds.
            trial.set_constraint(text, FAR if math.isnan(excess) else excess)
        state = TrialState.PRUNED if pruned else TrialState.COMPLETE
        self._study.tell(trial, None if pruned else values, state, skip_if_finished=True)
        said = ", ".join(f"{name} {value:.6g}" for name, value in zip(names, values, strict=True))
        ended = sum(other.state.is_finished() for other in self._trials())
        how = reason if pruned else "ended"
        print(f"trial {trial.number} {how}: {said}  ({ended} of {self._settings.n_trials})", flush=True)
        return None

    def _has_had_metrics(self) -> bool:
        return any(trial.state in HAVING for trial in self._trials())

    def _fail(self, trial: Trial, why: str, said: Sequence[str], others_too: bool = False) -> None:
        trial.set_user_attr("run", str(trial.number))
        trial.set_user_attr("failure", why)
        self._study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        if others_too:
            self.ended_by = self.ended_by or f"trial {trial.number} failed, as all would: {why}"
            return
        lines = "".join(f"\n    | {line}" for line in said)
        print(f"trial {trial.number} failed: {why}{lines}", file=sys.stderr, flush=True)
        if self._settings.on_failure == "stop":
            remedy = "hydra.sweeper.on_failure=continue would have gone on"
            self.ended_by = f"trial {trial.number} failed: {why}; {remedy}"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a sweep's folder."""
    with open(folder / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _owning(folder: Path, name: str) -> Iterator[None]:
    """Keep the file of this process locked."""
    path = folder / OWNERS / name
    path.parent.mkdir(exist_ok=True)
    with keep_from_forks(open(path, "w")) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    path.unlink(missing_ok=True)
