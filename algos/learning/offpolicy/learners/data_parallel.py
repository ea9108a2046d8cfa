"""Data-parallel learning from one replay: learners map its files, compute parts of each batch, and add up gradients."""

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from paddock.algos.learning.distributed import Learners, check_learners
from paddock.algos.learning.offpolicy.learners.learner import Metrics, OffPolicyLearner
from paddock.algos.learning.replay.batch import Floats
from paddock.algos.learning.replay.streams import DrawnRows, Reader
from paddock.algos.learning.torch_learner import DistributedContext, check_device
from paddock.algos.networks.architecture import Weights

EVERY = 100  # updates after which learners' parameters are compared
Part = tuple[list[Tensor], Tensor, Tensor]  # gradients as they are now [P] each, metrics [R], errors of rows [B / M]


@dataclass(frozen=True)
class Microbatches:
    """How batches are cut, and which parts this learner computes."""

    count: int  # M, a multiple of the learners
    context: DistributedContext

    @property
    def own(self) -> range:
        """Numbers of this learner's parts."""
        each = self.count // self.context.world_size
        return range(self.context.rank * each, (self.context.rank + 1) * each)

    def join(self, parts: Iterable[Part]) -> tuple[Tensor, Tensor]:
        """Return the mean metrics of all parts [R], and the errors of all rows [B]; gradients become their mean.

        Args:
            parts: of this learner, each computed when it is asked for; all leave gradients in the same tensors.
        """
        if self.count == 1:
            ((_, metrics, rows),) = parts
            return metrics, rows
        ours: list[Tensor] = []
        gradients, metrics = [], torch.zeros(0)
        for gradients, metrics, rows in parts:
            ours.append(torch.cat([*gradients, metrics, rows]))
        every = self.context.all_gather(torch.stack(ours))  # [M, P + R + B / M]
        total = every[0].clone()
        for part in every[1:]:
            total += part
        total /= self.count
        end = 0
        for gradient in gradients:
            gradient.copy_(total[end : end + len(gradient)])
            end += len(gradient)
        return total[end : end + len(metrics)], every[:, end + len(metrics) :].reshape(-1)


WHOLE = Microbatches(1, DistributedContext())


class LearnsOfParts(OffPolicyLearner, Protocol):
    """A learner of batches that are cut into parts."""

    def learn(self, parts: Sequence[Any], rate: float) -> tuple[Metrics, Floats]:
        """Make U updates by this learner's parts of U batches, as `OffPolicyLearner.update` does by whole ones.

        Args:
            parts: `Batch` or `SequenceBatch` of B / M rows each, those that `Microbatches` calls its own.
            rate: Adam's step size.

        Returns:
            Metrics of whole batches, and distances of all rows [U, B].
        """
        ...


MakeLearner = Callable[..., LearnsOfParts]  # given its device and its microbatches


class LearnerOfRows:
    """One of the learners, and what it reads the replay with."""

    def __init__(self, make: MakeLearner, count: int, *, device: str, context: DistributedContext) -> None:
        self.microbatches = Microbatches(count, context)
        self.learner = make(device=device, microbatches=self.microbatches)
        self._reader: Reader | None = None
        self._compared = 0

    def learn(self, rows: DrawnRows, rate: float) -> tuple[Metrics, Floats]:
        """Learn of the rows that were drawn, of which only this learner's parts are read."""
        if self._reader is None:
            self._reader = Reader(rows.streams)
        cut = self.microbatches
        return self.learner.learn([self._reader.gather(rows.part(k, cut.count)) for k in cut.own], rate)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """See `LearnsBeside.at_work`."""
        try:
            with self.learner.at_work():
                yield
        finally:
            if self._reader is not None:
                self._reader.close()
            self._reader = None

    def checksum(self) -> int:
        """See `LearnsBeside.checksum`: of the parameters of what acts, but only now and then."""
        before, self._compared = self._compared, self.learner.updates // EVERY
        return self.learner.updates if self._compared == before else zlib.crc32(self.learner.weights(0).parameters.data)

    def state_dict(self) -> dict[str, Any]:
        """See `LearnsBeside.state_dict`."""
        return self.learner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `LearnsBeside.load_state_dict`."""
        self.learner.load_state_dict(state)
        self._compared = self.learner.updates // EVERY


class LearnersTogether:
    """`OffPolicyLearner` of `DrawnRows`: one learner that computes all parts of a batch, or several that share them.

    No number depends on how many: gradients of the parts are added up in the parts' order.
    """

    def __init__(self, make: MakeLearner, microbatches: int, learners: int, device: str) -> None:
        """Build the first learner; no process is started.

        Args:
            make: can be pickled.
            microbatches: a multiple of the learners.
            device: cpu for all, or cuda: one GPU each.

        Raises:
            ConfigError: torch cannot compute there.
        """
        check_device(device)
        check_learners(learners, device)
        self._learners = Learners(
            functools.partial(LearnerOfRows, make, microbatches), LearnerOfRows.learn, learners, device
        )
        self._first: LearnsOfParts = self._learners.first.learner
        self.architecture = self._first.architecture

    @property
    def updates(self) -> int:
        """See `OffPolicyLearner.updates`."""
        return self._first.updates

    def update(self, batch: DrawnRows, rate: float) -> tuple[Metrics, Floats]:
        """See `OffPolicyLearner.update`.

        Raises:
            LearnerLost: a learner died, failed or hung.
        """
        found: tuple[Metrics, Floats] = self._learners.learn(batch, rate)
        return found

    def at_work(self) -> AbstractContextManager[Any]:
        """See `OffPolicyLearner.at_work`: the others' processes run in it."""
        return self._learners.at_work()

    def weights(self, version: int, *, explore: bool = False) -> Weights:
        """See `OffPolicyLearner.weights`."""
        return self._first.weights(version, explore=explore)

    def state_dict(self) -> dict[str, Any]:
        """See `OffPolicyLearner.state_dict`: that of each learner."""
        return self._first.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, before the others' processes begin."""
        self._learners.first.load_state_dict(state)
