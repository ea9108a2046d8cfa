"""SAC, TD3 and DDPG in torch: actors and critics of every kind, on every device; discrete SAC, and TQC.

Discrete SAC: Christodoulou 2019 (arXiv:1910.07207); TQC, quantiles of returns of which the greatest are dropped:
Kuznetsov et al. 2020 (arXiv:2005.04269).
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paddock.algos.common.draws import NormalBlocks
from paddock.algos.common.keys import Stream
from paddock.algos.learning.learner import plain_weights
from paddock.algos.learning.offpolicy.learners.learner import check_report
from paddock.algos.learning.offpolicy.learners.microbatches import WHOLE, Microbatches
from paddock.algos.learning.offpolicy.learners.torch_batch import TorchBatch, check_place
from paddock.algos.learning.offpolicy.learners.torch_returns import Quantiles, quantile_loss
from paddock.algos.learning.replay.batch import Batch, Floats
from paddock.algos.networks.actor_critic import ActorCritic, copy_to, one_thread
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense.actor_critic import REPORTED, ActorCriticObjective, DeterministicPolicy, SoftPolicy
from paddock.algos.networks.encoders import dense_layers, first_layers, legal_in, linear
from paddock.algos.networks.heads import LOG_2, LOG_2PI, LOG_STD
from paddock.algos.networks.training import (
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
    """What is known of returns [B, N]: of actions [B, A] in [-1, 1], or of each choice where none is given.

    Actions enter behind what encodes observations.
    """

    def __init__(
        self, architecture: Architecture, hidden: tuple[int, ...], actions: int, outputs: int, seed: int
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed % 2**63)
        first, width = first_layers(architecture, generator)
        rest, wide = dense_layers(hidden, architecture.activation, width + actions, generator)
        self.observation_encoder, self.joint_encoder = nn.Sequential(*first), nn.Sequential(*rest)
        self.value_head = linear(wide, outputs, 1.0, generator)

    def forward(self, obs: Tensor, action: Tensor | None) -> Tensor:
        features = self.observation_encoder(obs)
        value: Tensor = self.value_head(
            self.joint_encoder(features if action is None else torch.cat([features, action], 1))
        )
        return value


class Moves(NamedTuple):
    """What a policy does: K actions that are weighed, one of numbers that were drawn, or all choices."""

    action: Tensor | None  # [B, A]; None: each choice
    share: Tensor  # [B, K], probabilities of choices, else 1
    logprob: Tensor  # [B, K]; 0 where nothing is drawn, or never chosen


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
        quantiles: int | None = None,
        drop: int = 0,
        microbatches: Microbatches = WHOLE,
        device: str,
        precision: str,
        adam_epsilon: float,
        threads: int,
    ) -> None:
        """Draw the networks; each has an encoder of its own.

        Args:
            architecture: of the actor, whose outputs are A, or of a soft policy 2A, or scores of choices; critics have
                its encoder and its activation.
            seed: of the first parameters, and of the noise of updates.
            critic_hidden: widths, of the layers that actions enter.
            quantiles: of the returns, which the critics of a soft policy learn in place of their mean; None: there are
                none.
            drop: so many for each critic are left out of targets, the greatest of all critics' together.
            microbatches: how batches are cut, and which parts this learner computes.
            precision: float32, or bfloat16: all but last layers in mixed precision.
            threads: of its arithmetic on a CPU, which may change last bits.

        Raises:
            ConfigError: torch cannot compute there, or like that.
        """
        check_place(device, precision)
        self.architecture, self.updates = architecture, 0
        self.reported: tuple[str, ...] = REPORTED if objective.soft else REPORTED[:3]
        self._objective, self._threads = objective, threads
        self._device, self._microbatches = torch.device(device), microbatches
        self._noise = NormalBlocks(seed, Stream.UPDATE)
        head = architecture.head
        self._chooses = bool(head.columns)
        self._actions = 0 if self._chooses else head.components
        outputs = head.width if self._chooses else quantiles or 1
        self._quantiles = Quantiles.of(quantiles, 1.0, self._device)
        self._kept = objective.critics * (outputs - drop)
        generator = np.random.default_rng(seed % 2**63)
        with one_thread():
            self.actor = ActorCritic(architecture, seed, critic=False)
            self.critics = nn.ModuleList(
                [
                    Critic(architecture, critic_hidden, self._actions, outputs, seed + k)
                    for k in range(objective.critics)
                ]
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
        return self.learn([batch], rate)

    def learn(self, parts: Sequence[Batch], rate: float) -> tuple[NDArray[np.float64], Floats]:
        """See `LearnsOfParts.learn`."""
        objective, first, (U, size), cut = self._objective, self.updates, parts[0].reward.shape, self._microbatches
        drawn = self._noise.take((objective.draws, size * cut.count, self._actions), first, U)
        noise = copy_to(drawn, self._device)
        given = [TorchBatch.of(part, self.architecture, self._device).split() for part in parts]
        reports, errors = [], []
        for u, own in enumerate(zip(*given, strict=True)):
            alpha = self._alpha()
            mine = [noise[u, :, k * size : (k + 1) * size] for k in cut.own]
            told, error = self._learn_critics(own, alpha, [each[0] for each in mine], rate)
            self.updates += 1
            if self.updates % objective.actor_every == 0:
                self._told = self._learn_actor(own, alpha, [each[-1] for each in mine], rate)
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

    def _learn_critics(
        self, parts: Sequence[TorchBatch], alpha: Tensor, noise: Sequence[Tensor], rate: float
    ) -> tuple[Tensor, Tensor]:
        """Let the critics take a step; returns the loss and the mean value [2], and distances from targets [B]."""
        vector = self._vectors["critics"]
        each = (self._lose_values(part, alpha, drawn) for part, drawn in zip(parts, noise, strict=True))
        told, error = self._microbatches.join(vector.gradient, each)
        vector.optimizer_step(rate, None)
        return told, error

    def _lose_values(self, batch: TorchBatch, alpha: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Leave the critics' gradient in its vector; returns as `_learn_critics`."""
        with torch.no_grad():
            moves = self._moves(batch.next_obs, noise)
            following = torch.stack([critic(batch.next_obs, moves.action) for critic in self._target_critics])
            bonus = alpha * moves.logprob
            if self._quantiles.levels is None:
                soft = ((following.amin(0) - bonus) * moves.share).sum(1)
                target = batch.reward + batch.discount * soft
            else:
                least = (
                    following.transpose(0, 1).flatten(1).sort(1).values[:, : self._kept]
                )  # [B, kept], of all critics
                target = batch.reward.unsqueeze(1) + batch.discount.unsqueeze(1) * (least - bonus)
        if self._chooses:
            choice = batch.action.long()
            values = torch.stack([critic(batch.obs, None).gather(1, choice) for critic in self.critics])
        else:
            values = torch.stack([critic(batch.obs, batch.action) for critic in self.critics])  # [C, B, N]
        if self._quantiles.levels is None:
            error = values.squeeze(2) - target
            loss = (0.5 if self._objective.soft else 1.0) * (batch.weight * error**2).mean(1).sum()
        else:
            losses = [quantile_loss(each, target, self._quantiles.levels, self._quantiles.huber) for each in values]
            loss = (batch.weight * torch.stack(losses)).mean() / self._quantiles.count
            error = values.mean(2) - target.mean(1)
        self._differentiate("critics", self.critics, loss)
        return torch.stack([loss, values.mean()]).detach(), error.detach().abs().mean(0)

    def _moves(self, obs: Tensor, noise: Tensor) -> Moves:
        """What targets say of what follows: of a soft policy the actor itself, else the target's with noise."""
        policy = self._objective.policy
        if isinstance(policy, SoftPolicy):
            return self._drawn(obs, noise)
        limit = policy.target_noise_clip
        moved = (policy.target_noise * noise).clamp(-limit, limit)
        action = (self._target_actor.policy(obs).tanh() + moved).clamp(-1, 1)
        return Moves(action, torch.ones_like(action[:, :1]), torch.zeros_like(action[:, :1]))

    def _drawn(self, obs: Tensor, noise: Tensor) -> Moves:
        """What a soft policy does."""
        out = self.actor.policy(obs)
        if self._chooses:
            logs = torch.log_softmax(out, 1)
            share = logs.exp()
            return Moves(
                None, share, torch.where(share > 0, logs, 0)
            )  # of what is not legal 0 times too much is no number
        action, logprob = squashed(out, noise)
        return Moves(action, torch.ones_like(logprob).unsqueeze(1), logprob.unsqueeze(1))

    def _learn_actor(self, parts: Sequence[TorchBatch], alpha: Tensor, noise: Sequence[Tensor], rate: float) -> Tensor:
        """Let the actor take a step, and alpha; returns the actor's loss and the entropy [2]."""
        vector, policy = self._vectors["actor"], self._objective.policy
        each = (self._lose_worth(part.obs, alpha, drawn) for part, drawn in zip(parts, noise, strict=True))
        told, _ = self._microbatches.join(vector.gradient, each)
        vector.optimizer_step(rate, None)
        if isinstance(policy, SoftPolicy) and policy.learned:
            own = self._vectors["log_alpha"]
            own.gradient.fill_(told[2])
            own.optimizer_step(rate, None)
        return told[:2].double()

    def _lose_worth(self, obs: Tensor, alpha: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Leave the actor's gradient in its vector; returns loss, entropy, log alpha's gradient [3], and no rows."""
        policy, excess = self._objective.policy, alpha.new_zeros(())
        if isinstance(policy, DeterministicPolicy):
            loss = -self.critics[0](obs, self.actor.policy(obs).tanh()).squeeze(1)
            logprob = torch.zeros_like(loss)
        else:
            action, share, logs = self._drawn(obs, noise)
            known = torch.stack([critic(obs, action) for critic in self.critics])  # [C, B, N]
            worth = known.amin(0) if self._quantiles.levels is None else known.mean((0, 2)).unsqueeze(1)
            loss = (share * (alpha * logs - worth)).sum(1)
            logprob = (share * logs).sum(1)
            excess = -(logprob.detach().mean() + self._target_entropy(policy, obs))
        self._differentiate("actor", self.actor, loss.mean())
        return torch.stack([loss.mean(), -logprob.mean(), excess]).detach(), loss.new_zeros(0)

    def _target_entropy(self, policy: SoftPolicy, obs: Tensor) -> Tensor | float:
        """That of the policy; where not all choices are legal, the same share of the most that there can be."""
        legal = legal_in(self.architecture.inputs, obs)
        if legal is None or not self._chooses:
            return policy.target_entropy
        most = legal.sum(1).clamp(min=1).log().mean()
        return policy.target_entropy * most / math.log(max(legal.shape[1], 2))

    def _differentiate(self, name: str, network: nn.Module, loss: Tensor) -> None:
        """Leave the gradients of one network alone in their vector."""
        self._vectors[name].gradient.zero_()
        learned = [parameter for parameter in network.parameters() if parameter.numel() and parameter.requires_grad]
        loss.backward(inputs=learned)

    def at_work(self) -> AbstractContextManager[None]:
        """See `OffPolicyLearner.at_work`: with its threads."""
        return computing_with(self._threads, self._device)

    def weights(self, version: int) -> Weights:
        """See `OffPolicyLearner.weights`."""
        return plain_weights(version, self._vectors["actor"].parameters())

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
