"""Commands that sweep, in a directory of their own, for several test files."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import optuna
import psutil
import pytest
from conftest import ROOT, TINY
from optuna.trial import TrialState
from own_package import write_package

from paddock.envs.errors import PaddockError
from paddock.sweep.study import open_study

QUICK = ["compute=serial"]
SWEEP = ["--multirun", "hydra/sweeper=optuna", "hydra.sweep.dir=sweep", "hydra.sweeper.sampler=random"]
SWEEP += ["hydra.sweeper.finals=0", "hydra.sweeper.held_out=0"]  # later arguments may set them
SPACE = "algo.strategy.learning_rate=tag(log, interval(1e-3, 0.3))"
PACED = ["env=gymnasium", "env.id=mine:Paced-v0"]  # an iteration takes most of a second while `Desk.slow` is there
PRUNED = ["hydra.sweeper.options.median.n_startup_trials=2", "hydra.sweeper.options.median.n_warmup_steps=10"]
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class Desk:
    """A working directory in which sweeps are run."""

    def __init__(self, here: Path) -> None:
        self.here = here
        self.sweep, self.slow = here / "sweep", here / "slow"
        write_package(here)
        self.environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self.started: list[psutil.Process] = []

    def begin(self, *arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "paddock", *TINY, *QUICK, *SWEEP, *arguments]
        process = subprocess.Popen(
            command,
            cwd=self.here,
            env=self.environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(psutil.Process(process.pid))
        return process

    def call(self, *arguments: str) -> tuple[int, str, str]:
        process = self.begin(*arguments)
        out, err = process.communicate(timeout=240)
        return process.returncode, out, err

    def trials(self) -> list[optuna.trial.FrozenTrial]:
        try:
            return open_study(self.sweep).get_trials(deepcopy=False)
        except PaddockError:  # it is just being made
            return []

    def count(self, *states: TrialState) -> int:
        return sum(trial.state in states for trial in self.trials())

    def kill(self, process: subprocess.Popen) -> list[psutil.Process]:
        """`kill -9` of the sweep and of all its trials, at once."""
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):  # a trial that has just ended
                member.kill()
        process.wait()
        psutil.wait_procs(family, 10)
        return family


@pytest.fixture(name="desk")
def desk_fixture(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    for process in desk.started:
        if process.is_running():
            for member in [*process.children(recursive=True), process]:
                member.kill()
