"""Finals of a running sweep: runs are started while slots are free, and rounds decided as runs end.

Runs are in `finals/<trial>_seed<seed>` in the sweep's folder; several processes may share them.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paddock.envs.errors import IN_USE

from ..config.command import display_path
from ..reports.statistics import interquartile_mean, interval
from ..runs.checkpoint import write_atomically
from ..runs.folder import has_ended
from ..runs.loop import RunFailed
from ..runs.state import last_metrics, read_run_states
from .finals import FOLDER, HELD_OUT, RESULT, Final, Standing, compute_standing
from .placement import End, LaunchTarget, Plan, Running, supervise
from .study import SweepSettings, parse_objectives
from .trial import SHARED_FAILURES
from .trials import BAD_INPUT, STOPPED

RETRY_S = 5.0  # between attempts to start a run that another process is running


class FinalsSession:
    """Run the finals of a sweep, or one process's share of them."""

    def __init__(
        self,
        folder: Path,
        settings: SweepSettings,
        target: LaunchTarget,
        plan: Callable[[int, int, Path], Plan],
        finalists: Sequence[int],
        seed: int,
    ) -> None:
        """Read the runs that have ended; nothing is started before `run`."""
        self._folder, self._settings, self._target, self._plan = folder, settings, target, plan
        self._finalists, self._seed = list(finalists), seed
        [(self._metric, direction)] = parse_objectives(settings.objectives).items()
        self._sign = 1 if direction == "maximize" else -1
        self._scores: dict[Final, float] = {}
        self._running: dict[Final, Running] = {}
        self._lost: dict[Final, int] = {}
        self._next_try: dict[Final, float] = {}
        self._failure: str | None = None  # that ends the sweep
        self._announced = 0

    def run(self) -> int | None:
        """Run until the winner is measured; return the signal that stopped this, if any.

        Raises:
            RunFailed: every finalist failed, or a failure that all runs would share.
        """
        caught = supervise(
            "finals",
            self._target,
            self._running,
            self._fill,
            self._conclude,
            lambda: not self._standing().missing,
            lambda: self._failure is not None,
        )
        if self._failure is not None:
            raise RunFailed(self._failure)
        if caught is None:
            self._announce()
            write_atomically(self._folder / RESULT, json.dumps(self.result(), indent=2).encode())
        return caught

    def result(self) -> dict[str, Any]:
        """Return the content of `finals.json`."""
        standing, seed = self._standing(), self._seed + HELD_OUT
        rounds = [
            {"seeds": one.seeds, "means": {k: self._value(mean) for k, mean in one.means.items()}, "stay": one.stay}
            for one in standing.rounds
        ]
        assert standing.winner is not None
        held_out = {
            one: self._value(self._scores[standing.winner, one])
            for one in range(seed, seed + self._settings.count_held_out())
        }
        values = np.array([value for value in held_out.values() if value is not None])[:, None]
        return {
            "metric": self._metric,
            "finalists": self._finalists,
            "rounds": rounds,
            "winner": standing.winner,
            "held_out": held_out,
            "iqm": float(interquartile_mean(values)) if len(values) else None,
            "interval": [float(bound) for bound in interval(values)] if len(values) > 1 else None,
        }

    def _standing(self) -> Standing:
        return compute_standing(self._finalists, self._scores, self._seed, self._settings.count_held_out())

    def _value(self, score: float) -> float | None:
        return self._sign * score if math.isfinite(score) else None

    def _path(self, final: Final) -> Path:
        return self._folder / FOLDER / "{}_seed{}".format(*final)

    def _fill(self) -> None:
        """Start missing runs while slots are free; record those that another process or command has ended."""
        self._announce()
        slots = self._settings.parallel or self._target.slots
        for final in self._standing().missing:
            if final in self._running:
                continue
            if has_ended(run := self._path(final)):
                self._record(final)
            elif len(self._running) < slots and time.monotonic() >= self._next_try.get(final, 0):
                [state] = read_run_states([run]) if (run / "config.yaml").exists() else [None]
                if state is not None and state.state == "failed":
                    self._fail(final, state.why)
                elif (running := self._target.start(self._plan(*final, run))) is not None:
                    self._running[final] = running
                else:
                    self._next_try[final] = time.monotonic() + RETRY_S

    def _conclude(self, final: Final, end: End, stopping: bool) -> None:
        if has_ended(self._path(final)):
            self._record(final)
            rounds = len(self._finalists).bit_length() - 1
            total = len(self._finalists) * rounds + self._settings.count_held_out()
            value, count = self._sign * self._scores[final], f"{len(self._scores)} of {total}"
            if math.isfinite(value):
                print(f"trial {final[0]} with seed {final[1]}: {self._metric} {value:.6g}  ({count})", flush=True)
        elif stopping and end.code in STOPPED:
            return
        elif end.code in SHARED_FAILURES:
            remedy = "fix this, then run the same command to resume"
            self._failure = f"{SHARED_FAILURES[end.code].format(final[0])}; {remedy}"
        elif end.code == IN_USE:  # by another process
            self._next_try[final] = time.monotonic() + RETRY_S
        elif end.code in (1, BAD_INPUT) or self._lost.get(final, 0) >= self._settings.retries:
            self._fail(final, f"exit code {end.code}", end.output)
        else:
            self._lost[final] = self._lost.get(final, 0) + 1

    def _record(self, final: Final) -> None:
        value = last_metrics(self._path(final))[0].get(self._metric, math.nan)
        if math.isnan(value):
            self._fail(final, f"it ended without {self._metric}")
        else:
            self._scores[final] = self._sign * value

    def _fail(self, final: Final, why: str, output: Sequence[str] = ()) -> None:
        """Rank a run last."""
        self._scores[final] = -math.inf
        lines = "".join(f"\n    | {line}" for line in output)
        print(f"trial {final[0]} with seed {final[1]} failed: {why}{lines}", file=sys.stderr, flush=True)
        first = self._standing().rounds[:1]
        if first and not any(math.isfinite(mean) for mean in first[0].means.values()):
            remedy = f"fix this and delete {display_path(self._folder / FOLDER)}, then run the same command"
            self._failure = f"every finalist failed ({why}); {remedy}"

    def _announce(self) -> None:
        standing = self._standing()
        total = len(self._finalists).bit_length() - 1
        for number, one in enumerate(standing.rounds[self._announced :], self._announced + 1):
            shown = {trial: f"{trial} ({self._sign * mean:.6g})" for trial, mean in one.means.items()}
            stay = ", ".join(shown[trial] for trial in one.stay)
            leave = ", ".join(text for trial, text in shown.items() if trial not in one.stay)
            print(f"finals, round {number} of {total}: {stay} advance; {leave} out", flush=True)
        self._announced = len(standing.rounds)
