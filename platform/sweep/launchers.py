"""Hydra launchers that run the jobs of a sweep in parallel, on this machine or on Dask workers."""

import contextlib
import itertools
import re
import shlex
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from paddock.algos.pool.protocol import Needs, PoolError
from paddock.envs.errors import require
from paddock.envs.machine import usable_cores
from paddock.envs.ranges import PositiveInt, Range, check_fields

from ..compute.recipes import Dask
from ..config.build import call_checked
from ..config.command import display_path
from ..runs.loop import RunFailed
from ..runs.state import WRONG, last_metrics, read_end, read_run_states
from ..runs.table import print_table
from ..runs.units import short
from .placement import DaskTarget, End, LaunchTarget, LocalTarget, Plan, Running, plan_job, supervise


@dataclass(frozen=True, kw_only=True)
class LocalKeys:
    """Keys of conf/hydra/launcher/local.yaml, which documents them."""

    jobs: Annotated[int | None, Range("must be at least 1, or null", low=1)]
    cpus: PositiveInt
    gpus: Sequence[int | str]

    def __post_init__(self) -> None:
        check_fields(self)
        known = all(gpu != "" if isinstance(gpu, str) else gpu >= 0 for gpu in self.gpus)
        require(known, f"gpus={list(self.gpus)} must be GPU numbers (from 0) or names; [] assigns no GPUs")

    def open(self) -> LocalTarget:
        """Return the launch target."""
        slots = len(self.gpus) or max(1, usable_cores() // self.cpus)
        return LocalTarget(self.jobs or slots, self.cpus, self.gpus)


@dataclass(frozen=True, kw_only=True)
class DaskKeys:
    """Keys of conf/hydra/launcher/dask.yaml, which documents them."""

    address: str | None
    scheduler_file: str | None
    workers: int | None
    cpus: int
    memory_gb: float
    gpus: int
    retries: int
    tls: Mapping[str, str | None] | None

    def __post_init__(self) -> None:
        Needs(cpu=self.cpus, memory_gb=self.memory_gb, gpu=self.gpus)
        self._recipe()

    def open(self) -> DaskTarget:
        """Connect to the workers.

        Raises:
            PoolError: they cannot be reached, or do not match this process.
        """
        needs = Needs(cpu=self.cpus, memory_gb=self.memory_gb, gpu=self.gpus)
        try:
            pool = self._recipe().open({"paddock"})
        except PoolError as error:  # its message names keys of `compute`
            raise PoolError(re.sub(r"(?<![\w=/.-])compute\.", "hydra.launcher.", str(error))) from error
        return DaskTarget(pool, needs)

    def _recipe(self) -> Dask:
        return Dask(
            address=self.address,
            scheduler_file=self.scheduler_file,
            workers=self.workers,
            retries=self.retries,
            task_timeout_s=None,
            tls=self.tls,
        )


class SweepLauncher(Launcher):
    """Abstract Hydra launcher whose jobs run in separate processes."""

    keys: Any  # class of the keys
    verb: str  # for messages of a dry run

    def __init__(self, **_: Any) -> None:
        """Ignore the keys, which `setup` reads from the configuration."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Check the keys."""
        self._loader, self._config = hydra_context.config_loader, config
        keys: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
        del keys["_target_"]
        self._keys = call_checked("hydra.launcher", type(self).keys, keys)
        self._sweep = Path(config.hydra.sweep.dir).absolute()

    def open(self) -> LaunchTarget:
        """Return the launch target for sweeps that choose runs one at a time."""
        return self._keys.open()

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run or submit jobs; raise RunFailed if a run ended before its budget."""
        plans = [self._plan(list(overrides), number) for number, overrides in enumerate(job_overrides, initial_job_idx)]
        if self._config.dry_run:
            print("\n".join(f"would {self.verb} {shlex.join(plan.command)}" for plan in plans))
        else:
            self._run(plans)
        return [JobReturn(overrides=plan.overrides, status=JobStatus.COMPLETED) for plan in plans]

    def copy_of(self, path: Path) -> Path | None:
        """Return the runs' copy of a local path; None if they use the path itself."""
        return None

    def _plan(self, overrides: list[str], number: int) -> Plan:
        return plan_job(self._loader, self._config, overrides, number, copy_of=self.copy_of)

    def _run(self, plans: Sequence[Plan]) -> None:
        sweep = Path(self._config.hydra.sweep.dir)
        try:
            _run_all(self.open(), plans, sweep)
        except BrokenPipeError:
            raise
        except OSError as error:
            remedy = f"fix this, then resume with the same command and hydra.sweep.dir={display_path(sweep)}"
            raise RunFailed(f"the grid in {display_path(sweep)} stopped ({error.strerror}); {remedy}") from error


class LocalLauncher(SweepLauncher):
    """Launcher of processes on this machine: `hydra/launcher=local`."""

    keys, verb = LocalKeys, "run"


class DaskLauncher(SweepLauncher):
    """Launcher of processes next to Dask workers: `hydra/launcher=dask`."""

    keys, verb = DaskKeys, "run"


def _run_all(target: LaunchTarget, plans: Sequence[Plan], sweep: Path) -> None:
    waiting, begun, ended = deque(plans), list[Path](), itertools.count(1)
    running: dict[Path, Running] = {}

    def fill() -> None:
        while waiting and len(running) < target.slots:
            plan = waiting.popleft()
            started = target.start(plan)
            if started is None:
                raise RunFailed(f"{display_path(plan.run)} is in use by another process; wait for it")
            running[plan.run] = started
            begun.append(plan.run)
            print(f"started {display_path(plan.run)}: {' '.join(plan.overrides)}", flush=True)

    def conclude(path: Path, end: End, stopping: bool) -> None:
        _print_end(path, end, f"{next(ended)} of {len(plans)}")

    with contextlib.closing(target):
        caught = supervise("runs", target, running, fill, conclude, lambda: not waiting)
    run_states = read_run_states(begun)
    print_table(sweep, run_states, 0)
    if caught is not None:
        raise SystemExit(128 + caught)
    wrong = sum(run_state.state in WRONG for run_state in run_states)
    if wrong:
        raise RunFailed(f"{wrong} of {len(plans)} runs did not finish; see above")


def _print_end(run: Path, end: End, count: str) -> None:
    if end.code:
        lines = "".join(f"\n    | {line}" for line in end.output)
        print(f"{display_path(run)} ended with exit code {end.code}  ({count}){lines}", file=sys.stderr, flush=True)
        return
    metrics = last_metrics(run)[0]
    value = metrics.get("eval/return_mean", metrics.get("train/return_mean"))
    reached = "" if value is None else f", return {short(value)}"
    print(f"ended {display_path(run)}: {read_end(run) or 'done'}{reached}  ({count})", flush=True)
