"""Equal parts of a batch, whose gradients are added up in their order, whichever learner computed which."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from paddock.algos.learning.torch_learner import DistributedContext


@dataclass(frozen=True)
class Microbatches:
    """How batches are cut, and which parts are this learner's."""

    count: int  # M, a multiple of the learners
    context: DistributedContext

    @property
    def own(self) -> range:
        """Numbers of this learner's parts."""
        each = self.count // self.context.world_size
        return range(self.context.rank * each, (self.context.rank + 1) * each)

    def join(self, gradient: Tensor, made: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return the means over all parts of what was told of them [R], and what was told of their rows [B].

        Args:
            gradient: [P], where each part leaves its own as it is made; afterwards their mean.
            made: of this learner's parts, one after another, what is told of it [R] and of its rows [B / M].
        """
        if self.count == 1:
            (only,) = made
            return only
        ours, ends = [], (0, 0)
        for told, rows in made:
            ours.append(torch.cat([gradient, told, rows]))
            ends = len(gradient), len(gradient) + len(told)
        parts = self.context.all_gather(torch.stack(ours))  # [M, P + R + B / M]
        total = parts[0].clone()
        for part in parts[1:]:
            total += part
        total /= self.count
        gradient.copy_(total[: ends[0]])
        return total[ends[0] : ends[1]], parts[:, ends[1] :].reshape(-1)


WHOLE = Microbatches(1, DistributedContext())
