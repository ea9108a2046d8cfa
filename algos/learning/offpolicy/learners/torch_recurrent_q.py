"""Q learning of recurrent networks in torch, from sequences (R2D2: Kapturowski et al. 2019)."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paddock.algos.learning.learner import plain_weights
from paddock.algos.learning.offpolicy.learners.learner import check_report, prepare_rows
from paddock.algos.learning.offpolicy.learners.microbatches import WHOLE, Microbatches
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.offpolicy.learners.torch_batch import check_place
from paddock.algos.learning.offpolicy.learners.torch_returns import huber
from paddock.algos.learning.replay.batch import Floats, SequenceBatch
from paddock.algos.networks.actor_critic import ActorCritic, as_tensor, copy_to
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense.q import REPORTED
from paddock.algos.networks.heads import LOWEST
from paddock.algos.networks.training import (
    FollowedParameters,
    ParameterVector,
    computing_with,
    copy_network,
    draw_layers,
    wrap_encoders,
)

PRIORITY_OF_GREATEST = 0.9  # of a sequence's greatest error in its priority; the rest is of their mean


class TorchRecurrentQ:
    """`OffPolicyLearner` of action values from sequences; see `QObjective`.

    The network is the one of an actor and a critic with one memory: the actor's outputs are the values, or advantages
    beside the critic's value. It begins with the memory that the policy had when it played, runs over the steps of the
    burn-in without a gradient, and so do the targets. Targets, errors and losses are of rescaled values.
    """

    reported: tuple[str, ...] = REPORTED

    def __init__(
        self,
        architecture: Architecture,
        objective: QObjective,
        seed: int,
        *,
        burn_in: int,
        dueling: bool,
        rescale: float | None,
        microbatches: Microbatches = WHOLE,
        device: str,
        precision: str,
        adam_epsilon: float,
        threads: int,
    ) -> None:
        """Draw the network.

        Args:
            burn_in: first steps of a sequence, that are not learned from.
            rescale: epsilon of `rescaled`; None: values are as they are.
            microbatches: how batches are cut, and which parts this learner computes.
            precision: float32, or bfloat16: the encoder in mixed precision, all behind it in float32.
            threads: of its arithmetic on a CPU, which may change last bits.

        Raises:
            ConfigError: torch cannot compute there, or like that.
        """
        check_place(device, precision)
        self.architecture = architecture
        self._objective, self._threads, self._device = objective, threads, torch.device(device)
        self._microbatches = microbatches
        self._burn_in, self._dueling, self._rescale = burn_in, dueling, rescale
        self.network = ActorCritic(architecture, seed)
        draw_layers(self.network, np.random.default_rng(seed % 2**63))
        self.network.to(self._device)
        wrap_encoders(self.network, precision, compiled=False)
        self._target, targets = copy_network(self.network)
        vector = ParameterVector(self.network, adam_epsilon)
        self._learned = FollowedParameters(vector, targets, objective.tau, objective.target_every)

    @property
    def updates(self) -> int:
        """See `OffPolicyLearner.updates`."""
        return self._learned.updates

    def update(self, batch: SequenceBatch, rate: float) -> tuple[NDArray[np.float64], Floats]:
        """See `OffPolicyLearner.update`; the distance of a sequence is the greatest of its steps, and their mean."""
        return self.learn([batch], rate)

    def learn(self, parts: Sequence[SequenceBatch], rate: float) -> tuple[NDArray[np.float64], Floats]:
        """See `LearnsOfParts.learn`."""
        told, surprise = self._microbatches.join(self._learned.vector.gradient, map(self._differentiate, parts))
        norm = self._learned.optimizer_step(rate, self._objective.max_grad_norm)
        report = torch.cat([told, norm[None]])[None].cpu().numpy().astype(np.float64)
        check_report(report, self.reported, self.updates - 1)
        return report, surprise[None].cpu().numpy()

    def _differentiate(self, batch: SequenceBatch) -> tuple[Tensor, Tensor]:
        """Leave the gradient in its vector; returns what is reported but its norm, and sequences' distances [B]."""
        loss, told, error = self._lose(batch)
        self._learned.vector.gradient.zero_()
        loss.backward()
        return torch.stack(told), PRIORITY_OF_GREATEST * error.amax(0) + (1 - PRIORITY_OF_GREATEST) * error.mean(0)

    def _lose(self, batch: SequenceBatch) -> tuple[Tensor, list[Tensor], Tensor]:
        """The loss, what is reported but the norm, and how far values were from their targets [length, B]."""
        obs, final = (self._observations(rows) for rows in (batch.obs, batch.final_obs))
        values, states = self._unroll(self.network, batch, obs)
        with torch.no_grad():
            target_values, target_states = self._unroll(self._target, batch, obs)
            following = self._best(values[1:], target_values[1:])
            if len(batch.final_at):
                t, b = torch.from_numpy(batch.final_at).to(self._device).unbind(1)
                scores, value, _ = self.network.step(final, states[t, b])
                target_scores, target_value, _ = self._target.step(final, target_states[t, b])
                following[t, b] = self._best(self._values(scores, value), self._values(target_scores, target_value))
            arrays = batch.reward, batch.discount, batch.last, batch.weight
            reward, discount, last, weight = (self._tensor(array) for array in arrays)
            following = following.gather(0, last)
            if self._rescale is None:
                target = reward + discount * following
            else:
                target = rescaled(reward + discount * original(following, self._rescale), self._rescale)
        choice = self._tensor(batch.action[..., 0].astype(np.int64)).unsqueeze(-1)
        value = values[: len(choice)].gather(-1, choice).squeeze(-1)
        loss = (weight * huber(value - target, self._objective.huber)).mean()
        told = value.detach()
        return loss, [loss.detach(), told.mean(), target.mean()], (told - target).abs()

    def _unroll(self, network: ActorCritic, batch: SequenceBatch, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Action values behind the burn-in [length + n, B, A], and the memory after each of these steps."""
        state, start, first = self._tensor(batch.state), self._tensor(batch.start), self._burn_in
        if first:
            with torch.no_grad():
                state = network.unroll(obs[:first], state, start[:first])[2][-1]
        out, value, states = network.unroll(obs[first:], state, start[first:])
        return self._values(out, value), states

    def _values(self, out: Tensor, value: Tensor) -> Tensor:
        """Action values [..., A]; advantages are less their mean over what is legal."""
        if not self._dueling:
            return out
        legal = out > LOWEST / 2
        mean = torch.where(legal, out, 0).sum(-1, keepdim=True) / legal.sum(-1, keepdim=True).clamp(min=1)
        return torch.where(legal, out - mean + value.unsqueeze(-1), LOWEST)

    def _best(self, values: Tensor, targets: Tensor) -> Tensor:
        """Target values [...] of the best action, by the values that learn or by the targets themselves."""
        scores = values if self._objective.double else targets
        return targets.gather(-1, scores.argmax(-1, keepdim=True)).squeeze(-1)

    def _observations(self, obs: NDArray[Any]) -> Tensor:
        """Observations [L, B, ...] or [F, ...] as the network sees them."""
        lead = obs.shape[: obs.ndim - len(self.architecture.inputs.shape)]
        return as_tensor(prepare_rows(self.architecture, obs), self._device).unflatten(0, lead)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return copy_to(array, self._device)

    def at_work(self) -> AbstractContextManager[None]:
        """See `OffPolicyLearner.at_work`: with its threads."""
        return computing_with(self._threads, self._device)

    def weights(self, version: int) -> Weights:
        """See `OffPolicyLearner.weights`."""
        return plain_weights(version, self._learned.vector.parameters())

    def state_dict(self) -> dict[str, Any]:
        """See `OffPolicyLearner.state_dict`."""
        return self._learned.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `OffPolicyLearner.load_state_dict`."""
        self._learned.load_state_dict(state)


def rescaled(value: Tensor, epsilon: float) -> Tensor:
    """Return h(x) = sgn(x) (sqrt(|x| + 1) - 1) + epsilon x of values (Pohlen et al. 2018, arXiv:1805.11593)."""
    size = value.abs()
    return value / (torch.sqrt(size + 1) + 1) + epsilon * value


def original(value: Tensor, epsilon: float) -> Tensor:
    """Return the numbers that `rescaled` maps to values; no term cancels another, as they do in the paper's form.

    There the root is d + 1 with d = (sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon) - 1.
    """
    size = value.abs()
    d = 2 * size / (torch.sqrt(1 + 4 * epsilon * (size + 1 + epsilon)) + 1 + 2 * epsilon)
    return torch.sign(value) * d * (d + 2)
