"""Off-policy learner in torch, for all networks and custom losses, optionally data-parallel."""

import inspect
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paddock.algos.learning.custom_loss import Loss, compute_loss
from paddock.algos.learning.offpolicy.learners.learner import Metrics, OffPolicyLearner, check_metrics
from paddock.algos.learning.offpolicy.learners.torch_batch import AnyBatch, with_noise
from paddock.algos.learning.offpolicy.learners.torch_networks import Networks
from paddock.algos.learning.replay.batch import Floats
from paddock.algos.learning.replay.streams import Reader, SampledRows
from paddock.algos.learning.torch_learner import DistributedContext
from paddock.algos.networks.actor_critic import copy_to
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.training import computing_with, polyak_update, to_numpy
from paddock.envs.errors import require

COMPARED_EVERY = 100  # updates after which learners' parameters are compared

Piece = tuple[list[Tensor], Tensor, Tensor]  # gradients [P] each, metrics [R], errors of rows [B / M]
Found = tuple[Tensor | Mapping[str, Tensor], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Microbatches:
    """Division of batches into microbatches, and this learner's share."""

    count: int  # M, a multiple of the learners
    context: DistributedContext

    @property
    def own(self) -> range:
        """Indices of this learner's microbatches."""
        each = self.count // self.context.world_size
        return range(self.context.rank * each, (self.context.rank + 1) * each)

    def join(self, pieces: Iterable[Piece]) -> tuple[Tensor, Tensor]:
        """Average gradients (in place) and metrics [R] over all microbatches, and gather the errors of all rows [B].

        `pieces` of this learner are computed lazily; all leave gradients in the same tensors.
        """
        if self.count == 1:
            ((_, metrics, rows),) = pieces
            return metrics, rows
        ours: list[Tensor] = []
        gradients: list[Tensor] = []
        metrics = torch.zeros(0)
        for gradients, metrics, rows in pieces:
            ours.append(torch.cat([*gradients, metrics, rows]))
        every = self.context.all_gather(torch.stack(ours))  # [M, P + R + B / M]
        total = every[0].clone()
        for piece in every[1:]:
            total += piece
        total /= self.count
        end = 0
        for gradient in gradients:
            gradient.copy_(total[end : end + len(gradient)])
            end += len(gradient)
        return total[end : end + len(metrics)], every[:, end + len(metrics) :].reshape(-1)


class TorchOffPolicyLearner(OffPolicyLearner):
    """Learner that minimizes a loss.

    A loss returns `(loss, metrics)`: a tensor, or a tensor for each optimizer by name, and scalars to log. The metric
    `td_error` [B] sets the priorities of prioritized replay. A loss may be a generator of several such pairs; the
    optimizers of one take a step before the next is computed.
    """

    def __init__(
        self,
        networks: Callable[..., Networks],
        loss: Loss,
        settings: Any,
        *,
        max_grad_norm: float | None = None,
        threads: int,
        device: str,
        microbatches: int = 1,
        context: DistributedContext | None = None,
    ) -> None:
        """Initialize the networks, which `networks` makes, given the device.

        `settings` are passed to the loss; their `tau` and `target_every` control target updates. The number of CPU
        threads may change the last bits. `microbatches` of each batch are shared by the data-parallel learners of
        `context`.
        """
        self.networks, self.updates = networks(device=device), 0
        self.architecture = self.networks.architecture
        self._loss, self._settings, self._max_grad_norm = loss, settings, max_grad_norm
        self._threads, self._device = threads, torch.device(device)
        self._microbatches = Microbatches(microbatches, context or DistributedContext())
        self._reader: Reader | None = None
        self._compared = 0

    def update(self, batch: Any, rate: float) -> tuple[Metrics, Floats]:
        """See `OffPolicyLearner.update`; only this learner's share of `SampledRows` is read."""
        if not isinstance(batch, SampledRows):
            return self._learn([batch], rate)
        if self._reader is None:
            self._reader = Reader(batch.streams)
        cut = self._microbatches
        return self._learn([self._reader.gather(batch.part(k, cut.count)) for k in cut.own], rate)

    def _learn(self, pieces: Sequence[Any], rate: float) -> tuple[Metrics, Floats]:
        """Make U updates with this learner's microbatches of U batches."""
        networks, cut, (U, size) = self.networks, self._microbatches, pieces[0].ids.shape
        drawn = networks.draw_noise(self.updates, U, size * cut.count)
        noise = None if drawn is None else copy_to(drawn, self._device)
        metrics: dict[str, list[Tensor]] = {}
        td_errors = []
        for u, batches in enumerate(zip(*map(networks.batches, pieces), strict=True)):
            networks.begin(self.updates)
            self.updates += 1
            stages, td_error = [], torch.zeros(0)
            for k, batch in zip(cut.own, batches, strict=True):
                own = None if noise is None else noise[u, :, k * size : (k + 1) * size]
                stages.append(self._stages(with_noise(batch, own, self.updates)))
            while (first := next(stages[0], None)) is not None:
                found, error = self._step(_chain(first, stages[1:]), rate)
                td_error = error if len(error) else td_error
                for name, value in found.items():
                    metrics.setdefault(name, []).append(value)
            td_errors.append(td_error)
            if self.updates % self._settings.target_every == 0:
                for target, name in networks.targets.values():
                    polyak_update(target, networks.vectors[name].theta, self._settings.tau)
        report = {name: torch.stack(each).cpu().numpy().astype(np.float64) for name, each in metrics.items()}
        check_metrics(report, self.updates - U, U)
        return report, torch.stack(td_errors).cpu().numpy()

    def _stages(self, batch: AnyBatch) -> Iterator[Found]:
        given = self.networks, batch, self._settings
        if inspect.isgeneratorfunction(self._loss):
            return iter(self._loss(*given))
        return iter([compute_loss(self._loss, *given)])

    def _step(self, results: Iterable[Found], rate: float) -> tuple[dict[str, Tensor], Tensor]:
        """Step the optimizers on the mean loss of all microbatches, and return metrics and errors of rows."""
        vectors = self.networks.vectors
        names: list[str] = []
        optimizers: list[str] = []

        def differentiate() -> Iterator[Piece]:
            for losses, metrics in results:
                losses = losses if isinstance(losses, Mapping) else dict.fromkeys([*vectors][:1], losses)
                for optimizer, loss in losses.items():
                    nothing = loss.detach().new_zeros(0)
                    require(optimizer in vectors, f"the loss has no optimizer {optimizer}; known: {', '.join(vectors)}")
                    self.networks.backward(optimizer, loss)
                scalars = {name: value.detach() for name, value in metrics.items() if not value.ndim}
                names[:], optimizers[:] = scalars, losses
                rows = metrics.get("td_error", nothing).detach()
                values = torch.stack([*scalars.values()]) if scalars else nothing
                yield [vectors[optimizer].gradient for optimizer in losses], values, rows

        values, td_error = self._microbatches.join(differentiate())
        norms = [vectors[optimizer].optimizer_step(rate, self._max_grad_norm) for optimizer in optimizers]
        found = dict(zip(names, values.unbind(), strict=True))
        return (found | {"gradient_norm": norms[0]} if len(vectors) == 1 else found), td_error

    @contextmanager
    def training_context(self) -> Iterator[None]:
        """See `OffPolicyLearner.training_context`; sets and restores the number of threads."""
        try:
            with computing_with(self._threads, self._device):
                yield
        finally:
            if self._reader is not None:
                self._reader.close()
            self._reader = None

    def checksum(self) -> int:
        """See `TorchLearner.checksum`; computed from the acting parameters every `COMPARED_EVERY` updates."""
        before, self._compared = self._compared, self.updates // COMPARED_EVERY
        return self.updates if self._compared == before else zlib.crc32(self.weights(0).parameters.data)

    def weights(self, version: int, *, explore: bool = False) -> Weights:
        """See `OffPolicyLearner.weights`."""
        return Weights(version, self.networks.acting(version if explore else None))

    def state_dict(self) -> dict[str, Any]:
        """See `OffPolicyLearner.state_dict`."""
        state: dict[str, Any] = {"updates": self.updates}
        for name, vector in self.networks.vectors.items():
            state |= {self._key(name, part): value for part, value in vector.state_dict().items()}
        return state | {name: to_numpy(target) for name, (target, _) in self.networks.targets.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `OffPolicyLearner.load_state_dict`."""
        self.updates = int(state["updates"])
        self._compared = self.updates // COMPARED_EVERY
        for name, vector in self.networks.vectors.items():
            vector.load_state_dict({part: state[self._key(name, part)] for part in vector.state_dict()})
        for name, (target, _) in self.networks.targets.items():
            target.copy_(torch.from_numpy(state[name]))

    def _key(self, optimizer: str, part: str) -> str:
        part = {"descents": "steps"}.get(part, part)
        return part if len(self.networks.vectors) == 1 else f"{optimizer}_{part}"


def _chain(first: Found, others: Iterable[Iterator[Found]]) -> Iterator[Found]:
    """Yield the results of one stage for all microbatches, each computed after the previous one's backward pass."""
    yield first
    for stage in others:
        yield next(stage)
