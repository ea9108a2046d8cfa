"""Q learning in torch: networks of every kind, on every device, and the distribution of returns."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.learning.learner import plain_weights
from paddock.algos.learning.offpolicy.learners.learner import check_report
from paddock.algos.learning.offpolicy.learners.microbatches import WHOLE, Microbatches
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.offpolicy.learners.torch_batch import TorchBatch, check_place
from paddock.algos.learning.offpolicy.learners.torch_returns import Atoms, Quantiles, Returns
from paddock.algos.learning.replay.batch import Batch, Floats
from paddock.algos.networks.actor_critic import masked, one_thread
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense.q import REPORTED
from paddock.algos.networks.encoders import legal_in, linear, make_encoder
from paddock.algos.networks.noisy import NoisyNetworks
from paddock.algos.networks.training import (
    FollowedParameters,
    ParameterVector,
    as_copy,
    computing_with,
    copy_network,
    draw_layers,
    wrap_encoders,
)


class QNetwork(nn.Module):
    """What is known of the returns of each action [B, A, N]; dueling where the architecture is shared.

    The parameters of what acts come first, as in `ActorCritic`.
    """

    def __init__(self, architecture: Architecture, returns: Returns, seed: int) -> None:
        super().__init__()
        self._returns = returns
        self._shape = architecture.head.width, returns.count
        generator = torch.Generator().manual_seed(seed % 2**63)
        with one_thread():
            self.policy_encoder, width = make_encoder(architecture, generator)
        self.policy_head = linear(width, architecture.head.width * returns.count, 1.0, generator)
        self.value_head = linear(width, returns.count, 1.0, generator) if architecture.shared else None
        draw_layers(self, np.random.default_rng(seed % 2**63))

    def forward(self, obs: Tensor) -> Tensor:
        features = self.policy_encoder(obs)
        q: Tensor = self.policy_head(features).unflatten(1, self._shape)
        if self.value_head is None:
            return q
        return q - q.mean(1, keepdim=True) + self.value_head(features).unsqueeze(1)

    def acting(self) -> Tensor:
        """Return the parameters [P] of what acts; see `Returns.acting`."""
        shared = [None, None] if self.value_head is None else [self.value_head.weight, self.value_head.bias]
        own = [self.policy_head.weight, self.policy_head.bias]
        head = [self._returns.acting(a.unflatten(0, self._shape), v) for a, v in zip(own, shared, strict=True)]
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
        noisy_sigma: float | None = None,
        microbatches: Microbatches = WHOLE,
        device: str,
        precision: str,
        adam_epsilon: float,
        threads: int,
    ) -> None:
        """Draw the network.

        Args:
            quantiles: of the returns, which are learned in place of their mean; None: there are none. Where the
                architecture has a support, how likely each of its atoms is is learned.
            noisy_sigma: see `NoisyNetworks`; None: the network has no noise.
            microbatches: how batches are cut, and which parts this learner computes.
            precision: float32, or bfloat16: encoders in mixed precision, all after them in float32.
            threads: of its arithmetic on a CPU, which may change last bits.

        Raises:
            ConfigError: torch cannot compute there, or like that.
        """
        check_place(device, precision)
        self.architecture = architecture
        self._objective, self._threads, self._device = objective, threads, torch.device(device)
        self._microbatches = microbatches
        self._returns: Returns = Quantiles.of(quantiles, objective.huber, self._device)
        if architecture.support is not None:
            self._returns = Atoms(architecture.support)
        self.network = QNetwork(architecture, self._returns, seed).to(self._device)
        wrap_encoders(self.network, precision, compiled=False)
        self._noisy: NoisyNetworks | None = None
        self._target: nn.Module
        if noisy_sigma is None:
            self._target, targets = copy_network(self.network)
            vector = ParameterVector(self.network, adam_epsilon)
        else:
            generator = partial(keyed_generator, seed, Stream.UPDATE)
            self._noisy = noisy = NoisyNetworks(self.network, noisy_sigma, generator, adam_epsilon)
            self._target, targets, vector = noisy.target, noisy.targets, noisy.learned
        self._learned = FollowedParameters(vector, targets, objective.tau, objective.target_every)

    @property
    def updates(self) -> int:
        """See `OffPolicyLearner.updates`."""
        return self._learned.updates

    def update(self, batch: Batch, rate: float) -> tuple[NDArray[np.float64], Floats]:
        """See `OffPolicyLearner.update`."""
        return self.learn([batch], rate)

    def learn(self, parts: Sequence[Batch], rate: float) -> tuple[NDArray[np.float64], Floats]:
        """See `LearnsOfParts.learn`."""
        first, reports, errors, gradient = self.updates, [], [], self._learned.vector.gradient
        given = [TorchBatch.of(part, self.architecture, self._device).split() for part in parts]
        for own in zip(*given, strict=True):
            if self._noisy is not None:
                self._noisy.shake(self.updates)
            told, error = self._microbatches.join(gradient, map(self._differentiate, own))
            norm = self._learned.optimizer_step(rate, self._objective.max_grad_norm)
            reports.append(torch.cat([told, norm[None]]))
            errors.append(error)
        report = torch.stack(reports).cpu().numpy().astype(np.float64)
        check_report(report, self.reported, first)
        return report, torch.stack(errors).cpu().numpy()

    def _differentiate(self, batch: TorchBatch) -> tuple[Tensor, Tensor]:
        """Leave the gradient in its vector; returns what is reported but its norm, and distances from targets [B]."""
        loss, told, error = self._lose(batch)
        if self._noisy is None:
            self._learned.vector.gradient.zero_()
            loss.backward()
        else:
            self._noisy.forget()
            loss.backward()
            self._noisy.gather()
        return torch.stack(told), error

    def _lose(self, batch: TorchBatch) -> tuple[Tensor, list[Tensor], Tensor]:
        """The loss, what is reported but the norm, and how far values were from their targets [B]."""
        out = self.network(batch.obs)
        following = self._following(batch.next_obs) if batch.followed else out.new_zeros(len(out), out.shape[2])
        made = self._returns.lose(_of_action(out, batch.action[:, 0].long()), batch.reward, batch.discount, following)
        loss = (batch.weight * made.loss).mean()
        return loss, [loss.detach(), made.value.mean(), made.target.mean()], made.distance

    @torch.no_grad()
    def _following(self, obs: Tensor) -> Tensor:
        """What is known of the best next action's returns [B, N]."""
        out = self._target(obs)
        scores = self._returns.values(self.network(obs) if self._objective.double else out)
        legal = legal_in(self.architecture.inputs, obs)
        return _of_action(out, (scores if legal is None else masked(scores, legal)).argmax(1))

    def at_work(self) -> AbstractContextManager[None]:
        """See `OffPolicyLearner.at_work`: with its threads."""
        return computing_with(self._threads, self._device)

    def weights(self, version: int) -> Weights:
        """See `OffPolicyLearner.weights`: without noise."""
        return self._acting(version, None)

    def exploring(self, version: int) -> Weights:
        """See `ExploresByParameters.exploring`: a noisy network with the noise of that rollout."""
        return self._acting(version, version)

    @torch.no_grad()
    def _acting(self, version: int, rollout: int | None) -> Weights:
        if self._noisy is not None:
            self._noisy.act(rollout)
        return plain_weights(version, as_copy(self.network.acting()))

    def state_dict(self) -> dict[str, Any]:
        """See `OffPolicyLearner.state_dict`: that of `DenseQLearner`."""
        return self._learned.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `OffPolicyLearner.load_state_dict`."""
        self._learned.load_state_dict(state)


def _of_action(values: Tensor, action: Tensor) -> Tensor:
    """What is known of actions [B], [B, N], of [B, A, N]."""
    return values.gather(1, action.view(-1, 1, 1).expand(-1, 1, values.shape[2])).squeeze(1)
