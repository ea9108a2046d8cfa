"""Off-policy learner in torch, for all networks and custom losses."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paddock.algos.learning.custom_loss import Loss, compute_loss
from paddock.algos.learning.offpolicy.learners.learner import Metrics, OffPolicyLearner, check_metrics
from paddock.algos.learning.offpolicy.learners.torch_batch import AnyBatch, with_noise
from paddock.algos.learning.offpolicy.learners.torch_networks import Networks
from paddock.algos.learning.replay.batch import Floats
from paddock.algos.networks.actor_critic import copy_to
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.training import computing_with, polyak_update, to_numpy
from paddock.envs.errors import require


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
    ) -> None:
        """Initialize the networks, which `networks` makes, given the device.

        `settings` are passed to the loss; their `tau` and `target_every` control target updates. The number of CPU
        threads may change the last bits.
        """
        self.networks, self.updates = networks(device=device), 0
        self.architecture = self.networks.architecture
        self._loss, self._settings, self._max_grad_norm = loss, settings, max_grad_norm
        self._threads, self._device = threads, torch.device(device)

    def update(self, batch: Any, rate: float) -> tuple[Metrics, Floats]:
        """See `OffPolicyLearner.update`."""
        networks, (U, B) = self.networks, batch.ids.shape
        drawn = networks.draw_noise(self.updates, U, B)
        noise = [None] * U if drawn is None else copy_to(drawn, self._device)
        metrics: dict[str, list[Tensor]] = {}
        td_errors = []
        for own, noise_of_one in zip(networks.batches(batch), noise, strict=True):
            networks.begin(self.updates)
            self.updates += 1
            td_error = torch.zeros(0)
            for losses, found in self._stages(with_noise(own, noise_of_one, self.updates)):
                td_error = found.get("td_error", td_error).detach()
                for name, value in self._step(losses, found, rate).items():
                    metrics.setdefault(name, []).append(value)
            td_errors.append(td_error)
            if self.updates % self._settings.target_every == 0:
                for target, name in networks.targets.values():
                    polyak_update(target, networks.vectors[name].theta, self._settings.tau)
        report = {name: torch.stack(each).cpu().numpy().astype(np.float64) for name, each in metrics.items()}
        check_metrics(report, self.updates - U, U)
        return report, torch.stack(td_errors).cpu().numpy()

    def _stages(self, batch: AnyBatch) -> Iterable[tuple[Tensor | Mapping[str, Tensor], Mapping[str, Tensor]]]:
        given = self.networks, batch, self._settings
        if inspect.isgeneratorfunction(self._loss):
            return self._loss(*given)
        return [compute_loss(self._loss, *given)]

    def _step(
        self, losses: Tensor | Mapping[str, Tensor], metrics: Mapping[str, Tensor], rate: float
    ) -> dict[str, Tensor]:
        """Step the optimizers of losses, and return scalar metrics."""
        vectors = self.networks.vectors
        losses = losses if isinstance(losses, Mapping) else dict.fromkeys([*vectors][:1], losses)
        for optimizer, loss in losses.items():
            require(optimizer in vectors, f"the loss has no optimizer {optimizer}; known: {', '.join(vectors)}")
            self.networks.backward(optimizer, loss)
        found = {name: value.detach().clone() for name, value in metrics.items() if not value.ndim}
        norms = [vectors[optimizer].optimizer_step(rate, self._max_grad_norm) for optimizer in losses]
        return found | {"gradient_norm": norms[0]} if len(vectors) == 1 else found

    def training_context(self) -> AbstractContextManager[None]:
        """See `OffPolicyLearner.training_context`; sets and restores the number of threads."""
        return computing_with(self._threads, self._device)

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
        for name, vector in self.networks.vectors.items():
            vector.load_state_dict({part: state[self._key(name, part)] for part in vector.state_dict()})
        for name, (target, _) in self.networks.targets.items():
            target.copy_(torch.from_numpy(state[name]))

    def _key(self, optimizer: str, part: str) -> str:
        part = {"descents": "steps"}.get(part, part)
        return part if len(self.networks.vectors) == 1 else f"{optimizer}_{part}"
