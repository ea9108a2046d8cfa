"""Launch targets of a sweep's runs: processes on this machine or beside Dask's workers; and the loop over the runs.

The third target, Slurm's queue, is in `platform/slurm/submit.py`.
"""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from paddock.algos.common.disk import tail
from paddock.algos.pool.process import PythonCommand, run_to_end, start_command
from paddock.algos.pool.protocol import Done, Needs, Pool, PoolError, TaskBatch
from paddock.algos.pool.protocol import End as PoolEnd

from ..config.compose import load_job
from ..config.grid import SWEEP_FILE
from ..config.overrides import format_run_dir, format_source_arguments
from ..runs.loop import Signals
from ..runs.state import is_locked

POLL_S = 0.2
OUTPUT = "output.log"  # in a run's folder
STOP = ".stop"
SHOWN = 12  # lines of a failed run's output
LEFT_OUT = ("run.dir=", "dry_run=", SWEEP_FILE)  # arguments of the sweep that are not passed on
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


Key = TypeVar("Key")


@dataclass(frozen=True)
class Plan:
    """A job of a sweep, and how its process is started."""

    overrides: Sequence[str]
    run: Path  # absolute
    command: Sequence[str]


def plan_job(
    loader: Any,
    sweep: DictConfig,
    overrides: list[str],
    number: int,
    run: Path | None = None,
    copy_of: Callable[[Path], Path | None] = lambda path: None,
) -> Plan:
    """Return the plan of one job.

    Args:
        loader: Hydra's, of the sweep.
        sweep: the configuration, Hydra's part included.
        overrides: of the job.
        run: the folder of the run; None for the one in the configuration.
        copy_of: where a path of this machine lies for the job; None for the path itself.
    """
    config = sweep
    if run is None or sweep.hydra.job.env_set:
        config = load_job(loader, sweep, overrides, number)
        HydraConfig.instance().set_config(config)
    run = (run or Path(config.run.dir or config.hydra.runtime.output_dir)).absolute()
    kept = [item for item in overrides if not item.startswith(LEFT_OUT)]
    command = [sys.executable, "-u", "-m", "paddock", *format_source_arguments(config.hydra, copy_of)]
    return Plan(overrides, run, [*command, *kept, format_run_dir(run)])


@dataclass(frozen=True)
class End:
    """How a run's process ended."""

    code: int  # exit code; -n after signal n, or if its machine was lost
    said: Sequence[str]  # the last lines it printed


class Running(Protocol):
    """A run that has been started."""

    def ended(self) -> End | None:
        """Return how it ended; None while it runs."""
        ...

    def stop(self) -> None:
        """Ask it to finish its iteration, save and end."""
        ...


class LaunchTarget(Protocol):
    """A place where runs can be started.

    Attributes:
        stays: whether runs outlive this process.
    """

    stays: bool

    @property
    def slots(self) -> int:
        """Number of runs at once."""
        ...

    def start(self, plan: Plan) -> Running | None:
        """Start or resume a run; None while another process is at it."""
        ...

    def close(self) -> None:
        """Leave the target."""
        ...


class LocalTarget:
    """Processes on this machine, each with some cores and, in turn, a GPU."""

    stays = False

    def __init__(self, slots: int, cpus: int, gpus: Sequence[int | str]) -> None:
        self.slots = slots
        self._cpus = cpus
        self._gpus = gpus
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # of each slot, the last

    def start(self, plan: Plan) -> "_Process | None":
        """See `LaunchTarget`."""
        if is_locked(plan.run):
            return None
        taken = {slot for slot, process in self._processes.items() if process.poll() is None}
        slot = next(slot for slot in itertools.count() if slot not in taken)
        command = _command(plan, self._cpus, self._gpus[slot % len(self._gpus)] if self._gpus else None)
        self._processes[slot] = start_command(command)
        return _Process(self._processes[slot], command.log)

    def close(self) -> None:
        """See `LaunchTarget`; the kernel ends processes that are left with this one."""


@dataclass(frozen=True)
class _Process:
    process: subprocess.Popen[bytes]
    log: Path

    def ended(self) -> End | None:
        code = self.process.poll()
        return None if code is None else End(code, tail(self.log)[-SHOWN:])

    def stop(self) -> None:
        self.process.terminate()


class DaskTarget:
    """Processes beside the workers of a Dask scheduler, each a task that occupies what it needs.

    The run folders are on a file system that the workers share. A run whose worker dies resumes from its checkpoint on
    another one; runs save and end with this process.
    """

    stays = False

    def __init__(self, pool: Pool, needs: Needs) -> None:
        self._pool = pool
        self._needs = needs
        self._done: dict[int, Done] = {}
        self._batch = self._open()

    @property
    def slots(self) -> int:
        """See `LaunchTarget`.

        Raises:
            PoolError: no worker will come, as the pool has failed.
        """
        size = self._pool.size
        if not size:
            self._open().cancel()  # refused by a pool that has failed
        return size

    def start(self, plan: Plan) -> "_Task | None":
        """See `LaunchTarget`."""
        if is_locked(plan.run):
            return None
        command = _command(plan, self._needs.cpu, None)
        command.stop.unlink(missing_ok=True)  # of an earlier start
        return _Task(self._done, self._batch.put(command), command)

    def close(self) -> None:
        """See `LaunchTarget`."""
        self._batch.cancel()
        self._pool.close()

    def _open(self) -> TaskBatch:
        return self._pool.open_batch(run_to_end, self._deliver, needs=self._needs)

    def _deliver(self, ends: Sequence[PoolEnd]) -> None:
        self._done |= {done.index: done for done in (end() for end in ends)}


@dataclass(frozen=True)
class _Task:
    done: dict[int, Done]  # of all tasks; another thread adds to it
    index: int
    command: PythonCommand

    def ended(self) -> End | None:
        done = self.done.pop(self.index, None)
        if done is None:
            return None
        if isinstance(done.error, PoolError):  # the pool has failed, and not this run
            raise done.error
        said = tail(self.command.log)[-SHOWN:]
        return End(done.value, said) if done.error is None else End(-1, [*said, str(done.error)])

    def stop(self) -> None:
        self.command.stop.touch()


def _command(plan: Plan, cpus: int, gpu: int | str | None) -> PythonCommand:
    environment = {name: str(cpus) for name in ("PYTHON_CPU_COUNT", *THREADS)}
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
    return PythonCommand(plan.command[1:], Path(os.getcwd()), environment, plan.run / OUTPUT, plan.run / STOP)


def supervise(
    what: str,
    target: LaunchTarget,
    running: dict[Key, Running],
    fill: Callable[[], None],
    conclude: Callable[[Key, End, bool], None],
    is_over: Callable[[], bool],
    failed: Callable[[], bool] = lambda: False,
) -> int | None:
    """Start runs and handle their ends until there are no more; return the signal that ended this, if any.

    Args:
        what: `runs` or `trials`, for messages.
        running: runs under way; `fill` adds to it while there is room.
        conclude: called with the end of a run, and whether the others are being stopped.
        is_over: returns whether no run will follow; called when none is under way.
        failed: returns whether to stop.
    """

    def tell(number: int) -> None:
        # A signal handler must not call print, which it may have interrupted.
        os.write(1, f"stopping: the {what} finish their iterations and save; Ctrl-C again leaves at once\n".encode())

    with Signals(tell) as signals:
        stopping = False
        while True:
            for key, end in [(key, run.ended()) for key, run in running.items()]:
                if end is not None:
                    del running[key]
                    conclude(key, end, stopping)
            if not stopping and (signals.caught is not None or failed()):
                stopping = True
                if target.stays:
                    print(f"{len(running)} {what} keep running", flush=True)
                    running.clear()
                for run in running.values():
                    run.stop()
            if not stopping:
                fill()
            if not running and (stopping or is_over()):
                return signals.caught
            time.sleep(POLL_S)
