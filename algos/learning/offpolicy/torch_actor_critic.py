"""SAC, TD3 and DDPG in torch: actors and critics of every kind, on every device."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from algos.common.draws import NormalBlocks
from algos.common.keys import Stream
from algos.learning.learner import plain_weights
from algos.learning.offpolicy.learner import check_report
from algos.learning.offpolicy.torch_batch import TorchBatch, check_place
from algos.learning.replay.batch import Batch, Floats
from algos.networks.actor_critic import ActorCritic, one_thread
from algos.networks.architecture import Architecture, Weights
from algos.networks.dense.actor_critic import REPORTED, ActorCriticObjective, DeterministicPolicy, SoftPolicy
from algos.networks.encoders import dense_layers, first_layers, linear
from algos.networks.heads import LOG_2, LOG_2PI, LOG_STD
from algos.networks.training import (
    ParameterVector,
    as_copy,
    computing_with,
    copy_network,
    draw_layers,
    follow,
    wrap_encoders,
)

PARTS = {"parameters": "parameters", "momentum": "momentum", "variance": "variance", "descents": "steps"}


class Critic(nn.Module):
    """The value [B] of actions [B, A] in [-1, 1], which enter behind what encodes observations."""

    def __init__(self, architecture: Architecture, hidden: tuple[int, ...], actions: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed % 2**63)
        first, width = first_layers(architecture, generator)
        rest, wide = dense_layers(hidden, architecture.activation, width + actions, generator)
        self.observation_encoder, self.joint_encoder = nn.Sequential(*first), nn.Sequential(*rest)
        self.value_head = linear(wide, 1, 1.0, generator)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        joint = self.joint_encoder(torch.cat([self.observation_encoder(obs), action], 1))
        value: Tensor = self.value_head(joint)
        return value.squeeze(1)


class TorchActorCritic:
    """`OffPolicyLearner` of an actor and its critics; see `ActorCriticObjective`.

    With the noise of `DenseActorCritic`: of dense layers both learn the same, but for rounding.
    """

    def __init__(
        self,
        architecture: Architecture,
        seed: int,
        *,
        critic_hidden: tuple[int, ...],
        objective: ActorCriticObjective,
        device: str,
        precision: str,
        adam_epsilon: float,
        threads: int,
    ) -> None:
        """Draw the networks; each has an encoder of its own.

        Args:
            architecture: of the actor, whose outputs are A, or of a soft policy 2A; critics have its encoder and its
                activation.
            seed: of the first parameters, and of the noise of updates.
            critic_hidden: widths, of the layers that actions enter.
            precision: float32, or bfloat16: all but last layers in mixed precision.
            threads: of its arithmetic on a CPU, which may change last bits.

        Raises:
            ConfigError: torch cannot compute there, or like that.
        """
        check_place(device, precision)
        self.architecture, self.updates = architecture, 0
        self.reported: tuple[str, ...] = REPORTED if objective.soft else REPORTED[:3]
        self._objective, self._threads = objective, threads
        self._device = torch.device(device)
        self._noise = NormalBlocks(seed, Stream.UPDATE)
        self._actions = architecture.head.width // 2 if objective.soft else architecture.head.width
        generator = np.random.default_rng(seed % 2**63)
        with one_thread():
            self.actor = ActorCritic(architecture, seed, critic=False)
            self.critics = nn.ModuleList(
                [Critic(architecture, critic_hidden, self._actions, seed + k) for k in range(objective.critics)]
            )
        for network in (self.actor, *self.critics):
            draw_layers(network, generator)
            network.to(self._device)
            wrap_encoders(network, precision, compiled=False)
        self._target_actor, self._actor_targets = copy_network(self.actor)
        self._target_critics, self._critic_targets = copy_network(self.critics)
        policy = objective.policy
        log_alpha = math.log(policy.alpha) if isinstance(policy, SoftPolicy) and policy.learned else 0.0
        alpha = nn.ParameterList([torch.tensor([log_alpha], dtype=torch.float32)]).to(self._device)
        self._vectors = {
            name: ParameterVector(network, adam_epsilon)
            for name, network in (("actor", self.actor), ("critics", self.critics), ("log_alpha", alpha))
        }
        # The actor's loss, and the entropy, when it last moved.
        self._told = torch.zeros(2, dtype=torch.float64, device=self._device)

    def update(self, batch: Batch, rate: float) -> tuple[NDArray[np.float64], Floats]:
        """See `OffPolicyLearner.update`."""
        objective, first, (U, B) = self._objective, self.updates, batch.reward.shape
        noise = self._noise.take((objective.draws, B, self._actions), first, U)
        reports, errors = [], []
        given = TorchBatch.of(batch, self.architecture, self._device)
        for each, drawn in zip(given.split(), torch.from_numpy(noise).to(self._device), strict=True):
            alpha = self._alpha()
            told, error = self._learn_critics(each, alpha, drawn[0], rate)
            self.updates += 1
            if self.updates % objective.actor_every == 0:
                self._told = self._learn_actor(each.obs, alpha, drawn[-1], rate)
            if self.updates % objective.target_every == 0:
                follow(self._critic_targets, self._vectors["critics"].theta, objective.tau)
                follow(self._actor_targets, self._vectors["actor"].theta, objective.tau)
            reports.append(torch.stack([*told.double(), self._told[0], alpha.double(), self._told[1]]))
            errors.append(error)
        report = torch.stack(reports).cpu().numpy()[:, : len(self.reported)]
        check_report(report, self.reported, first)
        return report, torch.stack(errors).cpu().numpy()

    def _alpha(self) -> Tensor:
        policy = self._objective.policy
        if isinstance(policy, SoftPolicy) and policy.learned:
            return self._vectors["log_alpha"].theta[0].exp()
        return torch.tensor(policy.alpha if isinstance(policy, SoftPolicy) else 0.0, device=self._device)

    def _learn_critics(self, batch: TorchBatch, alpha: Tensor, noise: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        """Let the critics take a step; returns the loss and the mean value [2], and distances from targets [B]."""
        policy = self._objective.policy
        with torch.no_grad():
            if isinstance(policy, DeterministicPolicy):
                limit = policy.target_noise_clip
                moved = (policy.target_noise * noise).clamp(-limit, limit)
                action = (self._target_actor.policy(batch.next_obs).tanh() + moved).clamp(-1, 1)
                bonus = torch.zeros_like(batch.reward)
            else:
                action, logprob = squashed(self.actor.policy(batch.next_obs), noise)
                bonus = alpha * logprob
            following = [critic(batch.next_obs, action) for critic in self._target_critics]
            target = batch.reward + batch.discount * (smaller(following) - bonus)
        values = torch.stack([critic(batch.obs, batch.action) for critic in self.critics])
        error = values - target
        loss = (0.5 if self._objective.soft else 1.0) * (batch.weight * error**2).mean(1).sum()
        self._descend("critics", self.critics, loss, rate)
        return torch.stack([loss, values.mean()]).detach(), error.detach().abs().mean(0)

    def _learn_actor(self, obs: Tensor, alpha: Tensor, noise: Tensor, rate: float) -> Tensor:
        """Let the actor take a step, and alpha; returns the actor's loss and the entropy [2]."""
        policy, out = self._objective.policy, self.actor.policy(obs)
        if isinstance(policy, DeterministicPolicy):
            loss, logprob = -self.critics[0](obs, out.tanh()), torch.zeros_like(out[:, 0])
        else:
            action, logprob = squashed(out, noise)
            loss = alpha * logprob - smaller([critic(obs, action) for critic in self.critics])
        self._descend("actor", self.actor, loss.mean(), rate)
        if isinstance(policy, SoftPolicy) and policy.learned:
            own = self._vectors["log_alpha"]
            own.gradient.fill_(-(logprob.detach().mean() + policy.target_entropy))
            own.descend(rate, None)
        return torch.stack([loss.mean(), -logprob.mean()]).detach().double()

    def _descend(self, name: str, network: nn.Module, loss: Tensor, rate: float) -> None:
        """Take a step by the gradients of one network alone."""
        self._vectors[name].gradient.zero_()
        loss.backward(inputs=[parameter for parameter in network.parameters() if parameter.numel()])
        self._vectors[name].descend(rate, None)

    def at_work(self) -> AbstractContextManager[None]:
        """See `OffPolicyLearner.at_work`: with its threads."""
        return computing_with(self._threads)

    def weights(self, version: int) -> Weights:
        """See `OffPolicyLearner.weights`."""
        return plain_weights(version, self._vectors["actor"].parameters())

    def exploring(self, version: int) -> Weights:
        """See `OffPolicyLearner.exploring`."""
        return self.weights(version)

    def state_dict(self) -> dict[str, Any]:
        """See `OffPolicyLearner.state_dict`: that of `DenseActorCritic`."""
        state: dict[str, Any] = {"updates": self.updates, "told": self._told.cpu().numpy().copy()}
        for name, vector in self._vectors.items():
            state |= {f"{name}_{PARTS[part]}": value for part, value in vector.state_dict().items()}
        return state | {name: as_copy(target) for name, target in self._targets().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `OffPolicyLearner.load_state_dict`."""
        self.updates = int(state["updates"])
        self._told = torch.from_numpy(state["told"].copy()).to(self._device)
        for name, vector in self._vectors.items():
            vector.load_state_dict({part: state[f"{name}_{told}"] for part, told in PARTS.items()})
        for name, target in self._targets().items():
            target.copy_(torch.from_numpy(state[name]))

    def _targets(self) -> dict[str, Tensor]:
        nothing = self._actor_targets[:0]  # a soft actor has no target
        actor = nothing if self._objective.soft else self._actor_targets
        return {"target_actor": actor, "target_critics": self._critic_targets}


def squashed(out: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Draw actions [B, A] by noise [B, A] from means and log deviations [B, 2A]; returns them and log-densities [B]."""
    mean, log_std = out.chunk(2, 1)
    log_std = log_std.clamp(*LOG_STD)
    u = mean + log_std.exp() * noise
    slope = 2 * (LOG_2 - u - nn.functional.softplus(-2 * u))  # log(1 - tanh^2 u), which does not saturate
    return u.tanh(), (-0.5 * noise**2 - log_std - 0.5 * LOG_2PI - slope).sum(1)


def smaller(values: list[Tensor]) -> Tensor:
    """Return the smallest of values [B] of each critic."""
    return torch.stack(values).amin(0)
