"""Several learners that learn as one: each takes its share of every minibatch, and their gradients are added up.

The first learner is the run's own, in its process; the others are processes beside it, which end with it. Each is sent
the whole rollout, or which rows of a replay were drawn, and computes everything but its share of the minibatches as the
others do, so that all parameters stay the same to the bit. The state is the first learner's: the others begin with it.
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

START_S = 300.0  # for a learner's process to import what it needs
TIMEOUT_S = 60.0  # that learners wait for each other; a death is noticed at once
GRACE_S = 2.0  # for a process that died to be seen to have died
REMEDY = "start the run again to go on from its last checkpoint"

Make = Callable[..., Any]  # builds a `TorchLearner` or its like, given its device and its context
Update = Callable[..., Any]  # update(learner, *batch), the same in every process


class LearnerLost(PaddockError):
    """A learner died, failed or hung, so the others cannot go on; the run can be resumed."""


class Learners:
    """The first learner, and the processes of the others while they work.

    Attributes:
        count: how many there are.
    """

    def __init__(self, make: Make, update: Update, count: int, device: str) -> None:
        """Build the first learner; no process is started.

        Args:
            make: called with `device` and `context`.
            update: what a batch does to a learner, which alone knows which share is its own; can be pickled.
            device: cpu for all, or cuda: one GPU each.
        """
        self._make = make
        self._update = update
        self.count = count
        self._devices = [f"cuda:{rank}" if count > 1 and device == "cuda" else device for rank in range(count)]
        self._others: list[_Process] = []
        self._group: Any = None
        context = _context(0, count, self._exchange) if count > 1 else DistributedContext()
        self.first: Any = make(device=self._devices[0], context=context)

    def describe(self) -> str:
        """How many, and where."""
        first, last = self._devices[0], self._devices[-1]
        return f"{self.count}, on {first}" + (f" to {last}" if last != first else "")

    @contextlib.contextmanager
    def training_context(self) -> Iterator[None]:
        """The others' processes run in this context, from the first learner's present state on."""
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
        """Update every learner by a batch, which can be pickled; returns what the first one's update returns.

        Raises:
            LearnerLost: a learner died, failed or hung, or their parameters differ.
        """
        if self._others:
            message = cloudpickle.dumps(batch)
            with self._blaming():
                for other in self._others:
                    other.send(message)
        result = self._update(self.first, *batch)
        checksum = self.first.checksum() if self._others else 0
        for other in self._others:
            if self._hear(other) != checksum:
                raise LearnerLost(f"{other.name} has other parameters than the first after the same batches; {REMEDY}")
        return result

    def _start(self) -> None:
        state = self.first.state_dict()
        with tempfile.TemporaryDirectory(prefix="paddock-learners-") as folder:
            meeting = os.path.join(folder, "meeting")
            for rank, device in enumerate(self._devices[1:], 1):
                post = Post(rank, self.count, device, meeting, self._make, self._update, state)
                self._others.append(_Process(post))
            for other in self._others:
                self._hear(other, START_S)
            with self._blaming():
                self._group = meet(meeting, 0, self.count, self._devices[0])
            for other in self._others:
                self._hear(other)

    def _exchange(self, tensor: Tensor, begin: Callable[[Any], Any]) -> None:
        """Wait for what all learners do together."""
        assert self._group is not None, "several learners learn only while they are at work"
        with self._blaming():
            work = begin(self._group)
            while tensor.is_cuda and not work.is_completed():  # NCCL does not notice a death
                if any(other.child.popen.poll() is not None for other in self._others):
                    self._group.abort()
                    raise EOFError
            work.wait()

    def _hear(self, other: "_Process", timeout_s: float = TIMEOUT_S) -> Any:
        """What a learner says: a number, if all is well."""
        with self._blaming():
            if not other.child.connection.poll(timeout_s):
                raise LearnerLost(f"{other.name} said nothing for {timeout_s:.0f} s; {REMEDY}")
            said = other.child.connection.recv()
        if isinstance(said, str):
            raise LearnerLost(f"{other.name} failed: {said}")
        return said

    @contextlib.contextmanager
    def _blaming(self) -> Iterator[None]:
        """Say which learner it was when the exchange with them breaks off."""
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
            raise LearnerLost(f"the learners lost touch ({' '.join(str(error).split())}); {REMEDY}") from error


@dataclass(frozen=True)
class Post:
    """What another learner begins with."""

    rank: int
    count: int
    device: str
    meeting: str  # path of the file through which learners find each other
    make: Make
    update: Update
    state: dict[str, Any]


class _Process:
    """Another learner's process, as the first one sees it."""

    def __init__(self, post: Post) -> None:
        self.child = ChildProcess(f"{__name__}:follow", cloudpickle.dumps(post))
        self.child.limit_waits(TIMEOUT_S)
        self.name = f"learner {post.rank + 1} of {post.count} (process {self.child.popen.pid}, {post.device})"

    def send(self, message: bytes) -> None:
        """Send a batch, which it waits for.

        Raises:
            LearnerLost: it hangs, and takes none.
        """
        try:
            self.child.connection.send_bytes(message)
        except BlockingIOError as error:
            raise LearnerLost(f"{self.name} took no batch in {TIMEOUT_S:.0f} s; {REMEDY}") from error

    def cause(self) -> str | None:
        """How it ended; None while it has not, or if it only followed another."""
        with contextlib.suppress(EOFError, OSError):
            while self.child.connection.poll():
                said = self.child.connection.recv()
                if isinstance(said, str):
                    return f"failed: {said}"
        code = self.child.popen.poll()
        return describe_exit(code) if code else None

    def end(self) -> None:
        """End the process, which keeps nothing that matters."""
        self.child.connection.close()
        self.child.kill()


def follow(connection: Connection) -> None:
    """What another learner's process runs: learn by every batch from the first one, until it closes the connection."""
    try:
        post: Post = connection.recv()
        group: Any = None

        def exchange(_: Tensor, begin: Callable[[Any], Any]) -> None:
            try:
                begin(group).wait()
            except RuntimeError as error:
                raise ConnectionError from error

        context = _context(post.rank, post.count, exchange)
        learner = post.make(device=post.device, context=context)
        learner.load_state_dict(post.state)
        with learner.training_context():
            connection.send(0)
            group = meet(post.meeting, post.rank, post.count, post.device)
            connection.send(0)
            while True:
                post.update(learner, *connection.recv())
                connection.send(learner.checksum())
    except (EOFError, ConnectionError):
        pass  # the others are gone, and the first one says why
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {' '.join(str(error).split())} ({place.filename}:{place.lineno})"
        with contextlib.suppress(ConnectionError):
            connection.send(said)


def meet(meeting: str, rank: int, count: int, device: str) -> Any:
    """The process group of `count` learners on this machine: gloo's for a cpu, NCCL's for GPUs.

    It is nobody's default group, so several may live in one process, and it listens on the loopback interface alone.
    """
    store = torch.distributed.FileStore(meeting, count)
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
    # NCCL meets at the first exchange; after it nobody needs the file.
    group.allreduce([torch.zeros(1, device=device)]).wait()
    return group


def open_gloo(store: torch.distributed.Store, rank: int, count: int) -> Any:
    """Open a group of gloo's on the loopback interface, which its public constructor cannot choose."""
    gloo: Any = torch.distributed.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname="127.0.0.1")]
    options._timeout = timedelta(seconds=TIMEOUT_S)
    return gloo(store, rank, count, options)


def check_learners(count: int, device: str) -> None:
    """Raise ConfigError unless so many learners can learn on a device that was found good for one."""
    if count > 1 and device != "cpu":
        require(device == "cuda", f"learners={count} take cuda:0 to cuda:{count - 1}, not {device}; use device=cuda")
        gpus = torch.cuda.device_count()
        require(count <= gpus, f"learners={count} on device=cuda: torch sees {gpus} GPUs here; use learners={gpus}")


def _context(rank: int, count: int, exchange: Callable[[Tensor, Callable[[Any], Any]], None]) -> DistributedContext:
    """A learner's place among several.

    Args:
        exchange: waits for what a group begins with a tensor.
    """

    def all_reduce(tensor: Tensor) -> None:
        exchange(tensor, lambda group: group.allreduce([tensor]))

    def all_gather(tensor: Tensor) -> Tensor:
        found = [torch.empty_like(tensor) for _ in range(count)]
        exchange(tensor, lambda group: group.allgather([found], [tensor]))
        return torch.cat(found)

    return DistributedContext(rank, count, all_reduce, all_gather)
