"""Launch targets of a sweep's runs (local processes and Dask workers), and the loop that supervises the runs.

Slurm's queue is a target too, in `platform/slurm/submit.py`.
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
NOT_PASSED = ("run.dir=", "dry_run=", SWEEP_FILE)  # arguments of the sweep that its runs do not get
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


Key = TypeVar("Key")


@dataclass(frozen=True)
class Plan:
    """Command and run folder of one job of a sweep."""

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
    """Return the plan of one job, in the run folder of its configuration or another.

    `copy_of` maps a local path to the job's copy of it; None if the job uses the path itself.
    """
    config = sweep
    if run is None or sweep.hydra.job.env_set:
        config = load_job(loader, sweep, overrides, number)
        HydraConfig.instance().set_config(config)
    run = (run or Path(config.run.dir or config.hydra.runtime.output_dir)).absolute()
    kept = [item for item in overrides if not item.startswith(NOT_PASSED)]
    command = [sys.executable, "-u", "-m", "paddock", *format_source_arguments(config.hydra, copy_of)]
    return Plan(overrides, run, [*command, *kept, format_run_dir(run)])


@dataclass(frozen=True)
class End:
    """Exit code and last output of a run's process."""

    code: int  # exit code; -n after signal n, or if its machine was lost
    output: Sequence[str]  # the last lines


class Running(Protocol):
    """Started run."""

    def ended(self) -> End | None:
        """Return the end of the run; None while it is running."""

    def stop(self) -> None:
        """Request that it finishes its iteration, saves and exits."""


class LaunchTarget(Protocol):
    """Place where runs are started."""

    stays: bool  # whether runs outlive this process

    @property
    def slots(self) -> int:
        """Number of parallel runs."""

    def start(self, plan: Plan) -> Running | None:
        """Start or resume a run; return None while another process is running it."""

    def close(self) -> None:
        """Release the target."""


class LocalTarget:
    """Launch target of processes on this machine, each with some cores and optionally a GPU."""

    stays = False

    def __init__(self, slots: int, cpus: int, gpus: Sequence[int | str]) -> None:
        self.slots = slots
        self._cpus = cpus
        self._gpus = gpus
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # last process of each slot

    def start(self, plan: Plan) -> "_Process | None":
        """Start a run in a process."""
        if is_locked(plan.run):
            return None
        taken = {slot for slot, process in self._processes.items() if process.poll() is None}
        slot = next(slot for slot in itertools.count() if slot not in taken)
        command = _command(plan, self._cpus, self._gpus[slot % len(self._gpus)] if self._gpus else None)
        self._processes[slot] = start_command(command)
        return _Process(self._processes[slot], command.log)

    def close(self) -> None:
        """Do nothing: the kernel ends remaining processes with this one."""


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
    """Launch target of processes next to Dask workers, each a task with the resources it needs.

    The run folders must be on a file system that the workers share. If a worker dies, its run resumes from the
    checkpoint on another worker. Runs save and exit with this process.
    """

    stays = False

    def __init__(self, pool: Pool, needs: Needs) -> None:
        self._pool = pool
        self._needs = needs
        self._done: dict[int, Done] = {}
        self._batch = self._open()

    @property
    def slots(self) -> int:
        """Number of workers; raises PoolError after the pool has failed."""
        size = self._pool.size
        if not size:
            self._open().cancel()  # raises if the pool has failed
        return size

    def start(self, plan: Plan) -> "_Task | None":
        """Start a run in a task."""
        if is_locked(plan.run):
            return None
        command = _command(plan, self._needs.cpu, None)
        command.stop.unlink(missing_ok=True)  # left by an earlier start
        return _Task(self._done, self._batch.put(command), command)

    def close(self) -> None:
        """Cancel the tasks and close the pool."""
        self._batch.cancel()
        self._pool.close()

    def _open(self) -> TaskBatch:
        return self._pool.open_batch(run_to_end, self._deliver, needs=self._needs)

    def _deliver(self, ends: Sequence[PoolEnd]) -> None:
        self._done |= {done.index: done for done in (end() for end in ends)}


@dataclass(frozen=True)
class _Task:
    done: dict[int, Done]  # results of all tasks, added by another thread
    index: int
    command: PythonCommand

    def ended(self) -> End | None:
        done = self.done.pop(self.index, None)
        if done is None:
            return None
        if isinstance(done.error, PoolError):  # the pool failed, not this run
            raise done.error
        output = tail(self.command.log)[-SHOWN:]
        return End(done.value, output) if done.error is None else End(-1, [*output, str(done.error)])

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
    """Start runs and handle their ends until all have ended; return the signal that stopped this, if any.

    Args:
        what: `runs` or `trials`, for messages.
        target: where the runs are started.
        running: active runs; `fill` adds to it while slots are free.
        fill: starts runs.
        conclude: called with the end of a run, and whether the others are being stopped.
        is_over: returns whether no run will follow; called when none is active.
        failed: returns whether to stop.
    """

    def announce(number: int) -> None:
        # A signal handler must not call print, which it may have interrupted.
        os.write(1, f"stopping: the {what} finish their iterations and save; Ctrl-C again quits now\n".encode())

    with Signals(announce) as signals:
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
