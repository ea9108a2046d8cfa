"""Where the runs of a sweep go: processes on this machine, or on the workers of a Dask scheduler.

A third target, Slurm's queue, is in `platform/slurm/submit.py`.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from algos.pool.process import Child, run_child, start_child
from algos.pool.protocol import Done, Needs, Pool
from algos.pool.protocol import End as PoolEnd

from ..runs.state import is_locked, tail
from .job_plan import Plan

OUTPUT = "output.log"  # in a run's folder: what it printed
STOP = ".stop"
SHOWN = 12  # lines of a failed run's output
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class End:
    """How a run's process ended."""

    code: int  # exit code; -n where signal n ended it, or its machine was lost
    said: Sequence[str]  # the last lines it printed


class Running(Protocol):
    """A run that has been started."""

    def ended(self) -> End | None:
        """How it ended; None while it goes on."""
        ...

    def stop(self) -> None:
        """Ask it to finish its iteration, save and end."""
        ...


class LaunchTarget(Protocol):
    """Where runs can be started.

    Attributes:
        stays: whether runs go on there when this process has ended.
    """

    stays: bool

    @property
    def slots(self) -> int:
        """How many may run at once."""
        ...

    def start(self, plan: Plan) -> Running | None:
        """Start a run, or go on with it; None while another process is at it."""
        ...

    def close(self) -> None:
        """Leave the target, with what still runs there."""
        ...


@runtime_checkable
class OpensTarget(Protocol):
    """A launcher that can start runs one by one, for a sweep that chooses them as it goes."""

    def open(self) -> LaunchTarget:
        """Return the launch target for them."""
        ...


class Here:
    """Processes on this machine, each with its share of the cores and, in turn, a GPU."""

    def __init__(self, slots: int, cpus: int, gpus: Sequence[int | str]) -> None:
        self.stays = False
        self.slots = slots
        self._cpus = cpus
        self._gpus = gpus
        self._taken: set[int] = set()  # slots

    def start(self, plan: Plan) -> "_Process | None":
        """See `LaunchTarget`."""
        if is_locked(plan.run):
            return None
        slot = next(slot for slot in range(len(self._taken) + 1) if slot not in self._taken)
        gpu = None if not self._gpus else str(self._gpus[slot % len(self._gpus)])
        self._taken.add(slot)
        return _Process(_child(plan, self._cpus, gpu), lambda: self._taken.discard(slot))

    def close(self) -> None:
        """See `LaunchTarget`; the kernel ends what is left when this process ends."""


class _Process:
    def __init__(self, child: Child, free: Callable[[], None]) -> None:
        self._log = child.log
        self._process = start_child(child)
        self._free = free

    def ended(self) -> End | None:
        code = self._process.poll()
        if code is None:
            return None
        self._free()
        return End(code, tail(self._log)[-SHOWN:])

    def stop(self) -> None:
        self._process.terminate()


class OnWorkers:
    """Processes beside the workers of a Dask scheduler, each a task that occupies what it needs.

    The run folders are on a file system that the workers share. A run whose worker dies goes on from its checkpoint on
    another one.
    """

    def __init__(self, pool: Pool, needs: Needs) -> None:
        self.stays = False
        self._pool = pool
        self._needs = needs
        self._lock = threading.Lock()
        self._done: dict[int, Done] = {}
        self._batch = pool.open_batch(run_child, self._deliver, needs=needs)

    @property
    def slots(self) -> int:
        """See `LaunchTarget`."""
        return self._pool.size

    def start(self, plan: Plan) -> "_Task | None":
        """See `LaunchTarget`."""
        if is_locked(plan.run):
            return None
        child = _child(plan, self._needs.cpu, None)
        child.stop.unlink(missing_ok=True)  # of an earlier start
        return _Task(self, self._batch.put(child), child)

    def take(self, index: int) -> Done | None:
        """The end of a task, if it has come."""
        with self._lock:
            return self._done.pop(index, None)

    def close(self) -> None:
        """See `LaunchTarget`."""
        self._batch.cancel()
        self._pool.close()

    def _deliver(self, ends: Sequence[PoolEnd]) -> None:
        for done in (end() for end in ends):
            with self._lock:
                self._done[done.index] = done


class _Task:
    def __init__(self, target: OnWorkers, index: int, child: Child) -> None:
        self._target = target
        self._index = index
        self._child = child

    def ended(self) -> End | None:
        done = self._target.take(self._index)
        if done is None:
            return None
        said = tail(self._child.log)[-SHOWN:]
        return End(done.value, said) if done.error is None else End(-1, [*said, str(done.error)])

    def stop(self) -> None:
        self._child.stop.touch()


def _child(plan: Plan, cpus: int, gpu: str | None) -> Child:
    environment: Mapping[str, str] = {name: str(cpus) for name in ("PYTHON_CPU_COUNT", *THREADS)}
    if gpu is not None:
        environment = {**environment, "CUDA_VISIBLE_DEVICES": gpu}
    return Child(plan.command[1:], Path(os.getcwd()), environment, plan.run / OUTPUT, plan.run / STOP)
