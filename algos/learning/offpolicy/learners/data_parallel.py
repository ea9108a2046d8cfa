"""Data-parallel learning from one replay: learners map its files, compute parts of each batch, and add up gradients."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paddock.algos.learning.distributed import Learners, check_learners
from paddock.algos.learning.offpolicy.learners.learner import Metrics, OffPolicyLearner
from paddock.algos.learning.replay.batch import Floats
from paddock.algos.learning.replay.streams import DrawnRows
from paddock.algos.learning.torch_learner import DistributedContext, check_device
from paddock.algos.networks.architecture import Weights

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
        gradients: list[Tensor] = []
        metrics = torch.zeros(0)
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


class LearnersTogether:
    """`OffPolicyLearner` of `DrawnRows`: several learners that share the parts of a batch.

    No number depends on how many: gradients of the parts are added up in the parts' order.
    """

    def __init__(self, make: Callable[..., Any], update: Callable[..., Any], learners: int, device: str) -> None:
        """Build the first learner; no process is started.

        Args:
            make: makes one, given its device and its context; can be pickled.
            update: its method.
            learners: how many.
            device: cpu for all, or cuda: one GPU each.

        Raises:
            ConfigError: torch cannot compute there.
        """
        check_device(device)
        check_learners(learners, device)
        self._learners = Learners(make, update, learners, device)
        self._first: OffPolicyLearner = self._learners.first
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
        self._first.load_state_dict(state)
