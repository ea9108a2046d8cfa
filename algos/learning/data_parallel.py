"""Data-parallel learners: each takes its share of every minibatch, and gradients are all-reduced.

The first learner runs in the main process and the others in child processes. Each receives the whole rollout and
computes everything except its share of the minibatches like the others, so that parameters stay bit-identical. The
others are initialized from the first learner's state.
"""

import contextlib
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import torch
import torch.distributed
from torch import Tensor

from paddock.algos.learning.torch_learner import DistributedContext
from paddock.envs.errors import PaddockError, require
from paddock.envs.process import ChildProcess, describe_exit

START_S = 300.0  # for a learner process to import its modules
TIMEOUT_S = 60.0  # that learners wait for each other; a process's death is noticed at once
GRACE_S = 2.0  # for a process's exit code to become available
REMEDY = "start the run again to resume from its last checkpoint"

Make = Callable[..., Any]  # builds a learner, given `device` and `context`
Update = Callable[..., Any]  # update(learner, *batch), the same in every process


class LearnerLost(PaddockError):
    """A learner died, failed or hung; the run can be resumed."""


class Learners:
    """Data-parallel learners: the first in this process, the other `count - 1` in child processes during training."""

    def __init__(self, make: Make, update: Update, count: int, device: str) -> None:
        """Build the first learner with `make(device=, context=)`; `update(learner, *batch)` must be picklable."""
        self._make = make
        self._update = update
        self.count = count
        self._devices = [f"cuda:{rank}" if count > 1 and device == "cuda" else device for rank in range(count)]
        self._others: list[_Process] = []
        self._group: Any = None
        context = _context(0, count, self._exchange) if count > 1 else DistributedContext()
        self.first: Any = make(device=self._devices[0], context=context)

    def describe(self) -> str:
        """Return the number of learners and their devices."""
        first, last = self._devices[0], self._devices[-1]
        return f"{self.count}, on {first}" + (f" to {last}" if last != first else "")

    @contextlib.contextmanager
    def training_context(self) -> Iterator[None]:
        """Run the other learners' processes, initialized from the first learner's current state."""
        try:
            with self.first.training_context():
                if self.count > 1:
                    self._start()
                yield
        finally:
            for other in self._others:
                other.end()
            self._others, self._group = [], None

    def learn(self, *batch: Any) -> Any:
        """Update every learner with a picklable batch and return the first one's result, or raise LearnerLost."""
        if self._others:
            message = cloudpickle.dumps(batch)
            with self._attribute_errors():
                for other in self._others:
                    other.send(message)
        result = self._update(self.first, *batch)
        checksum = self.first.checksum() if self._others else 0
        for other in self._others:
            if self._receive(other) != checksum:
                raise LearnerLost(f"{other.name}'s parameters differ from those of the first learner; {REMEDY}")
        return result

    def _start(self) -> None:
        state = self.first.state_dict()
        with tempfile.TemporaryDirectory(prefix="paddock-learners-") as folder:
            rendezvous = os.path.join(folder, "rendezvous")
            for rank, device in enumerate(self._devices[1:], 1):
                setup = LearnerSetup(rank, self.count, device, rendezvous, self._make, self._update, state)
                self._others.append(_Process(setup))
            for other in self._others:
                self._receive(other, START_S)
            with self._attribute_errors():
                self._group = join_process_group(rendezvous, 0, self.count, self._devices[0])
            for other in self._others:
                self._receive(other)

    def _exchange(self, tensor: Tensor, begin: Callable[[Any], Any]) -> None:
        assert self._group is not None, "data-parallel learners learn only within training_context()"
        with self._attribute_errors():
            work = begin(self._group)
            while tensor.is_cuda and not work.is_completed():  # NCCL does not notice a death
                if any(other.child.popen.poll() is not None for other in self._others):
                    self._group.abort()
                    raise EOFError
            work.wait()

    def _receive(self, other: "_Process", timeout_s: float = TIMEOUT_S) -> Any:
        """Return a learner's reply: a number, or a message if it failed."""
        with self._attribute_errors():
            if not other.child.connection.poll(timeout_s):
                raise LearnerLost(f"{other.name} did not reply for {timeout_s:.0f} s; {REMEDY}")
            reply = other.child.connection.recv()
        if isinstance(reply, str):
            raise LearnerLost(f"{other.name} failed: {reply}")
        return reply

    @contextlib.contextmanager
    def _attribute_errors(self) -> Iterator[None]:
        """Replace communication errors by `LearnerLost`, which names the learner that ended."""
        try:
            yield
        except (RuntimeError, OSError, EOFError) as error:
            deadline = time.monotonic() + GRACE_S
            while time.monotonic() < deadline:
                for other in self._others:
                    cause = other.cause()
                    if cause is not None:
                        raise LearnerLost(f"{other.name} {cause}; {REMEDY}") from error
                time.sleep(0.01)
            raise LearnerLost(f"learners lost their connection ({' '.join(str(error).split())}); {REMEDY}") from error


@dataclass(frozen=True)
class LearnerSetup:
    """Arguments of another learner's process."""

    rank: int
    count: int
    device: str
    rendezvous: str  # path of the process group's FileStore
    make: Make
    update: Update
    state: dict[str, Any]


class _Process:
    def __init__(self, setup: LearnerSetup) -> None:
        self.child = ChildProcess(f"{__name__}:run_learner", cloudpickle.dumps(setup))
        self.child.limit_waits(TIMEOUT_S)
        self.name = f"learner {setup.rank + 1} of {setup.count} (process {self.child.popen.pid}, {setup.device})"

    def send(self, message: bytes) -> None:
        """Send a batch, or raise LearnerLost if the process hangs."""
        try:
            self.child.connection.send_bytes(message)
        except BlockingIOError as error:
            raise LearnerLost(f"{self.name} received no batch in {TIMEOUT_S:.0f} s; {REMEDY}") from error

    def cause(self) -> str | None:
        """Return why it ended; None while it runs, or if it exited because another learner ended."""
        with contextlib.suppress(EOFError, OSError):
            while self.child.connection.poll():
                reply = self.child.connection.recv()
                if isinstance(reply, str):
                    return f"failed: {reply}"
        code = self.child.popen.poll()
        return describe_exit(code) if code else None

    def end(self) -> None:
        """Kill the process, which holds no state."""
        self.child.connection.close()
        self.child.kill()


def run_learner(connection: Connection) -> None:
    """Run another learner in its process: learn from each batch received, until the connection is closed."""
    try:
        setup: LearnerSetup = connection.recv()
        group: Any = None

        def exchange(_: Tensor, begin: Callable[[Any], Any]) -> None:
            try:
                begin(group).wait()
            except RuntimeError as error:
                raise ConnectionError from error

        context = _context(setup.rank, setup.count, exchange)
        learner = setup.make(device=setup.device, context=context)
        learner.load_state_dict(setup.state)
        with learner.training_context():
            connection.send(0)
            group = join_process_group(setup.rendezvous, setup.rank, setup.count, setup.device)
            connection.send(0)
            while True:
                setup.update(learner, *connection.recv())
                connection.send(learner.checksum())
    except (EOFError, ConnectionError):
        pass  # the first learner reports why the others ended
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {' '.join(str(error).split())} ({place.filename}:{place.lineno})"
        with contextlib.suppress(ConnectionError):
            connection.send(message)


def join_process_group(rendezvous: str, rank: int, count: int, device: str) -> Any:
    """Join a process group of `count` learners on this machine: Gloo on CPUs, NCCL on GPUs.

    It is not torch's default group, so a process may have several, and it uses only the loopback interface.
    """
    store = torch.distributed.FileStore(rendezvous, count)
    group: Any
    if torch.device(device).type == "cpu":
        group = open_gloo(store, rank, count)
    else:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
        torch.cuda.set_device(device)
        nccl: Any = torch.distributed.ProcessGroupNCCL
        options = nccl.Options()
        options._timeout = timedelta(seconds=TIMEOUT_S)
        group = nccl(store, rank, count, options)
    # NCCL connects at the first exchange; afterwards the file is no longer needed.
    group.allreduce([torch.zeros(1, device=device)]).wait()
    return group


def open_gloo(store: torch.distributed.Store, rank: int, count: int) -> Any:
    """Create a Gloo process group on the loopback interface, which its public constructor cannot select."""
    gloo: Any = torch.distributed.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname="127.0.0.1")]
    options._timeout = timedelta(seconds=TIMEOUT_S)
    return gloo(store, rank, count, options)


def check_learners(count: int, device: str) -> None:
    """Raise ConfigError unless `count` learners can train on `device`, which has been checked for one."""
    if count > 1 and device != "cpu":
        require(device == "cuda", f"learners={count} use cuda:0 to cuda:{count - 1}, not {device}; use device=cuda")
        gpus = torch.cuda.device_count()
        require(count <= gpus, f"learners={count} on device=cuda: PyTorch finds {gpus} GPUs; use learners={gpus}")


def _context(rank: int, count: int, exchange: Callable[[Tensor, Callable[[Any], Any]], None]) -> DistributedContext:
    """Return a learner's context; `exchange(tensor, operation)` runs a collective operation and waits for it."""

    def all_reduce(tensor: Tensor) -> None:
        exchange(tensor, lambda group: group.allreduce([tensor]))

    return DistributedContext(rank, count, all_reduce)
