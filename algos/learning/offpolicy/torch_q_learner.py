"""Q learning in torch: networks of every kind, on every device, and the distribution of returns by its quantiles."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from algos.learning.learner import plain_weights
from algos.learning.offpolicy.learner import check_report
from algos.learning.offpolicy.objectives import QObjective
from algos.learning.offpolicy.torch_batch import TorchBatch, check_place
from algos.learning.replay.batch import Batch, Floats
from algos.networks.actor_critic import masked, one_thread
from algos.networks.architecture import Architecture, Weights
from algos.networks.dense.q import REPORTED
from algos.networks.encoders import legal_in, linear, make_encoder
from algos.networks.training import (
    ParameterVector,
    as_copy,
    computing_with,
    copy_network,
    draw_layers,
    follow,
    wrap_encoders,
)


class QNetwork(nn.Module):
    """Action values [B, A, N] by N quantiles of the returns; dueling where the architecture is shared.

    The parameters of what acts come first, as in `ActorCritic`.
    """

    def __init__(self, architecture: Architecture, quantiles: int, seed: int) -> None:
        super().__init__()
        self._shape = architecture.head.width, quantiles
        generator = torch.Generator().manual_seed(seed % 2**63)
        with one_thread():
            self.policy_encoder, width = make_encoder(architecture, generator)
        self.policy_head = linear(width, architecture.head.width * quantiles, 1.0, generator)
        self.value_head = linear(width, quantiles, 1.0, generator) if architecture.shared else None
        draw_layers(self, np.random.default_rng(seed % 2**63))

    def forward(self, obs: Tensor) -> Tensor:
        features = self.policy_encoder(obs)
        q: Tensor = self.policy_head(features).unflatten(1, self._shape)
        if self.value_head is None:
            return q
        return q - q.mean(1, keepdim=True) + self.value_head(features).unsqueeze(1)

    def acting(self) -> Tensor:
        """Return the parameters [P] of what gives the mean of the quantiles, but for what all actions have in common.

        The mean of what a layer gives is what the mean layer gives.
        """
        head = [part.unflatten(0, self._shape).mean(1) for part in (self.policy_head.weight, self.policy_head.bias)]
        return nn.utils.parameters_to_vector([*self.policy_encoder.parameters(), *head])


class TorchQLearner:
    """`OffPolicyLearner` of action values; see `QObjective`."""

    reported: tuple[str, ...] = REPORTED

    def __init__(
        self,
        architecture: Architecture,
        objective: QObjective,
        seed: int,
        *,
        quantiles: int | None = None,
        device: str,
        precision: str,
        adam_epsilon: float,
        threads: int,
    ) -> None:
        """Draw the network.

        Args:
            quantiles: of the returns, which are learned in place of their mean (QR-DQN: Dabney et al. 2017,
                arXiv:1710.10044); actors get the mean, a network like any other. None: there are none.
            precision: float32, or bfloat16: encoders in mixed precision, all after them in float32.
            threads: of its arithmetic on a CPU, which may change last bits.

        Raises:
            ConfigError: torch cannot compute there, or like that.
        """
        check_place(device, precision)
        self.architecture, self.updates = architecture, 0
        self._objective, self._threads, self._device = objective, threads, torch.device(device)
        self.network = QNetwork(architecture, quantiles or 1, seed).to(self._device)
        wrap_encoders(self.network, precision, compiled=False)
        self._target, self._targets = copy_network(self.network)
        self._vector = ParameterVector(self.network, adam_epsilon)
        self._levels = None
        if quantiles is not None:
            self._levels = (torch.arange(quantiles, device=self._device) + 0.5) / quantiles

    def update(self, batch: Batch, rate: float) -> tuple[NDArray[np.float64], Floats]:
        """See `OffPolicyLearner.update`."""
        first, reports, errors = self.updates, [], []
        for each in TorchBatch.of(batch, self.architecture, self._device).split():
            loss, told, error = self._lose(each)
            self._vector.gradient.zero_()
            loss.backward()
            norm = self._vector.descend(rate, self._objective.max_grad_norm)
            self.updates += 1
            if self.updates % self._objective.target_every == 0:
                follow(self._targets, self._vector.theta, self._objective.tau)
            reports.append(torch.stack([*told, norm]))
            errors.append(error)
        report = torch.stack(reports).cpu().numpy().astype(np.float64)
        check_report(report, self.reported, first)
        return report, torch.stack(errors).cpu().numpy()

    def _lose(self, batch: TorchBatch) -> tuple[Tensor, list[Tensor], Tensor]:
        """The loss, what is reported but the norm, and how far values were from their targets [B]."""
        choice = batch.action[:, 0].long()
        target = batch.reward.unsqueeze(1) + batch.discount.unsqueeze(1) * self._next_value(batch.next_obs)
        value = _of_action(self.network(batch.obs), choice)
        limit = self._objective.huber
        if self._levels is None:
            losses = huber((value - target).squeeze(1), limit)
        else:
            losses = quantile_loss(value, target, self._levels, limit)
        loss, told = (batch.weight * losses).mean(), value.detach()
        return loss, [loss.detach(), told.mean(), target.mean()], (told.mean(1) - target.mean(1)).abs()

    @torch.no_grad()
    def _next_value(self, obs: Tensor) -> Tensor:
        """Quantiles [B, N] of the best next action."""
        values = self._target(obs)
        scores = (self.network(obs) if self._objective.double else values).mean(2)
        legal = legal_in(self.architecture.inputs, obs)
        return _of_action(values, (scores if legal is None else masked(scores, legal)).argmax(1))

    def at_work(self) -> AbstractContextManager[None]:
        """See `OffPolicyLearner.at_work`: with its threads."""
        return computing_with(self._threads)

    def weights(self, version: int) -> Weights:
        """See `OffPolicyLearner.weights`."""
        with torch.no_grad():
            return plain_weights(version, as_copy(self.network.acting()))

    def state_dict(self) -> dict[str, Any]:
        """See `OffPolicyLearner.state_dict`: that of `DenseQLearner`."""
        state = self._vector.state_dict()
        del state["descents"]  # as many as updates
        return {**state, "targets": as_copy(self._targets), "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `OffPolicyLearner.load_state_dict`."""
        self.updates = int(state["updates"])
        self._vector.load_state_dict({**state, "descents": self.updates})
        self._targets.copy_(torch.from_numpy(state["targets"]))


def huber(error: Tensor, limit: float | None) -> Tensor:
    """Return half the squares of errors, linear beyond a limit."""
    if limit is None:
        return 0.5 * error * error
    return nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=limit)


def quantile_loss(value: Tensor, target: Tensor, levels: Tensor, limit: float | None) -> Tensor:
    """Return the losses [B] of quantiles [B, N] by targets [B, M]: summed over quantiles, averaged over targets.

    Args:
        levels: [N], of the quantiles.
        limit: errors within it count by their squares (equation 10 of Dabney et al. 2017); None: no error does.
    """
    error = target.unsqueeze(1) - value.unsqueeze(2)  # [B, N, M]
    distance = error.abs() if limit is None else huber(error, limit) / limit
    return ((levels.unsqueeze(1) - (error.detach() < 0).float()).abs() * distance).sum(1).mean(1)


def _of_action(values: Tensor, action: Tensor) -> Tensor:
    """Quantiles [B, N] of actions [B], of [B, A, N]."""
    return values.gather(1, action.view(-1, 1, 1).expand(-1, 1, values.shape[2])).squeeze(1)
