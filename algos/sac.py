"""Soft Actor-Critic (Haarnoja et al. 2018, arXiv:1812.05905), with a learned or fixed entropy coefficient.

Discrete SAC: Christodoulou 2019 (arXiv:1910.07207). Truncated quantile critics, TQC: Kuznetsov et al. 2020
(arXiv:2005.04269).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from gymnasium import spaces

from paddock.algos.dqn import quantile_loss
from paddock.algos.learning.custom_loss import Loss, choose_loss, needs_of_loss
from paddock.algos.learning.offpolicy.exploration import PolicyNoise
from paddock.algos.learning.offpolicy.from_replay import FromReplay, make_actor_critic
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.off_policy import POSITIVE_OR_NULL
from paddock.algos.learning.offpolicy.operators import interleave, sample, store, train
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense.actor_critic import ActorCriticObjective, SoftPolicy
from paddock.algos.networks.heads import Head, SoftGaussian, make_head
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat

if TYPE_CHECKING:
    from torch import Tensor

    from paddock.algos.learning.offpolicy.learners.torch_batch import TorchBatch
    from paddock.algos.learning.offpolicy.learners.torch_networks import ActorCriticNetworks

    Losses = Iterator[tuple[dict[str, Tensor], dict[str, Tensor]]]  # losses by optimizer, and metrics, of each step


@dataclass(kw_only=True, eq=False)
class SAC(FromReplay):
    """Soft Actor-Critic; conf/algo/sac.yaml explains each setting."""

    default_layers = ((256, 256), "relu")

    group = "sac"

    tau: UnitFloat
    target_every: PositiveInt
    alpha: PositiveFloat
    learn_alpha: bool
    target_entropy: float | None
    target_entropy_scale: UnitFloat
    num_critics: PositiveInt
    quantiles: Annotated[int | None, POSITIVE_OR_NULL]
    num_dropped_quantiles: NonNegativeInt
    loss: str | None

    def __post_init__(self) -> None:
        self.assemble_with_replay(_head, lambda rows: PolicyNoise(self.learning_starts), self._make_learner)

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Act, store, sample, learn; yield metrics every `log_every_steps` steps, when the state is complete."""
        policies = self.learning
        with self.playing() as rollouts:
            stored = store(rollouts, policies)
            updates = [train(sample(policy, self.batch_size), policy, self.rate) for policy in policies]
            yield from self.rows(interleave(stored, updates, policies, self.publish))

    def _make_learner(self, architecture: Architecture, seed: int) -> OffPolicyLearner:
        head, quantiles = architecture.head, self.quantiles
        loss: Loss = sac_losses
        if head.columns:
            require(
                not quantiles, f"algo.quantiles={quantiles} needs continuous actions; use algo=dqn for discrete ones"
            )
            default, loss = self.target_entropy_scale * math.log(head.width), discrete_sac_losses
        else:
            default = -float(head.components)
        dropped = self.num_dropped_quantiles
        what = f"algo.num_dropped_quantiles={dropped} must be below algo.quantiles={quantiles}"
        require(quantiles is None or dropped < quantiles, what)
        if quantiles:
            loss = partial(tqc_losses, drop=dropped)
        target_entropy = default if self.target_entropy is None else self.target_entropy
        policy = SoftPolicy(self.alpha, self.learn_alpha, target_entropy)
        objective = ActorCriticObjective(policy, self.num_critics, self.tau, self.target_every, actor_every=1)
        needs = [f"algo.quantiles={quantiles}"] if quantiles else []
        needs += [f"algo.num_critics={self.num_critics}"] if self.num_critics > 2 else []
        needs += needs_of_loss(self.loss)
        return make_actor_critic(self, architecture, seed, objective, choose_loss(self.loss, loss), needs, quantiles)


def _head(actions: spaces.Space[Any]) -> Head:
    choice = isinstance(actions, spaces.Discrete)
    return make_head(actions) if choice else SoftGaussian.for_replay(actions)


def sac_losses(network: ActorCriticNetworks, batch: TorchBatch, settings: ActorCriticObjective) -> Losses:
    """Yield the losses of the critics, then those of the actor and the entropy coefficient alpha.

    Critics: (Q_i(s, a) - y)^2 / 2 with y = r + gamma^n (min_i Q'_i(s', a') - alpha log pi(a'|s')) and a' ~ pi(s').
    Actor: alpha log pi(a|s) - min_i Q_i(s, a) with a ~ pi(s). The optimizers of a loss take their step before the next
    loss is computed. Actions are in [-1, 1].

    Args:
        network: critics, target critics, actor and alpha.
        batch: transitions; `reward` is the discounted sum of n rewards, `noise` [2, B, A] is standard normal.
        settings: target entropy, and whether alpha is learned.

    Yields:
        Losses by optimizer, and metrics.
    """
    alpha = network.alpha
    with network.no_grad():
        next_action, next_log_pi = network.sample(batch.next_obs, batch.noise[0])
        q_next = network.target_critics(batch.next_obs, next_action).squeeze(2).amin(0)
        y = batch.reward + batch.discount * (q_next - alpha * next_log_pi)
    q = network.critics(batch.obs, batch.action).squeeze(2)  # [C, B]
    loss = 0.5 * (batch.weight * (q - y).square()).mean(1).sum()
    yield {"critics": loss}, {"critic_loss": loss, "q_mean": q.mean(), "td_error": (q - y).abs().mean(0)}

    action, log_pi = network.sample(batch.obs, batch.noise[1])
    q_pi = network.critics(batch.obs, action).squeeze(2).amin(0)
    actor_loss = (alpha * log_pi - q_pi).mean()
    losses = {"actor": actor_loss} | temperature_loss(network, log_pi.mean(), settings)
    yield losses, {"actor_loss": actor_loss, "alpha": alpha, "entropy": -log_pi.mean()}


def temperature_loss(
    network: ActorCriticNetworks, log_pi: Tensor, settings: ActorCriticObjective, share: Tensor | float = 1.0
) -> dict[str, Tensor]:
    """Return the loss -log(alpha) (E[log pi] + target entropy) of a learned alpha; empty if alpha is fixed.

    Args:
        network: holds `log_alpha`.
        log_pi: mean log-probability.
        settings: target entropy, and whether alpha is learned.
        share: factor of the target entropy, below 1 if some actions are masked.
    """
    policy = settings.policy
    assert isinstance(policy, SoftPolicy)
    if not policy.learned:
        return {}
    return {"log_alpha": -(network.log_alpha * (log_pi + policy.target_entropy * share).detach()).sum()}


def discrete_sac_losses(network: ActorCriticNetworks, batch: TorchBatch, settings: ActorCriticObjective) -> Losses:
    """Yield the losses of `sac_losses` for discrete actions, with exact expectations (Christodoulou 2019)."""
    alpha = network.alpha
    with network.no_grad():
        pi, log_pi = network.log_probabilities(batch.next_obs)
        q_next = network.target_critics(batch.next_obs, None).amin(0)
        y = batch.reward + batch.discount * (pi * (q_next - alpha * log_pi)).sum(1)
    chosen = batch.action.long().expand(settings.num_critics, -1, -1)
    q = network.critics(batch.obs, None).gather(2, chosen).squeeze(2)  # [C, B]
    loss = 0.5 * (batch.weight * (q - y).square()).mean(1).sum()
    yield {"critics": loss}, {"critic_loss": loss, "q_mean": q.mean(), "td_error": (q - y).abs().mean(0)}

    pi, log_pi = network.log_probabilities(batch.obs)
    q_pi = network.critics(batch.obs, None).amin(0)
    actor_loss = (pi * (alpha * log_pi - q_pi)).sum(1).mean()
    mean_log_pi = (pi * log_pi).sum(1).mean()
    share = network.choices_share(batch.obs)
    losses = {"actor": actor_loss} | temperature_loss(network, mean_log_pi, settings, share)
    yield losses, {"actor_loss": actor_loss, "alpha": alpha, "entropy": -mean_log_pi}


def tqc_losses(network: ActorCriticNetworks, batch: TorchBatch, settings: ActorCriticObjective, drop: int) -> Losses:
    """Yield the losses of `sac_losses` with critics of N quantiles (Kuznetsov et al. 2020).

    The target pools the quantiles of all C critics and drops the largest C * `drop`. The actor maximizes the mean of all
    quantiles.
    """
    alpha = network.alpha
    with network.no_grad():
        next_action, next_log_pi = network.sample(batch.next_obs, batch.noise[0])
        z_next = network.target_critics(batch.next_obs, next_action)  # [C, B, N]
        smallest = z_next.transpose(0, 1).flatten(1).sort(1).values[:, : len(z_next) * (z_next.shape[2] - drop)]
        soft = smallest - (alpha * next_log_pi).unsqueeze(1)
        y = batch.reward.unsqueeze(1) + batch.discount.unsqueeze(1) * soft  # [B, kept]
    z = network.critics(batch.obs, batch.action)
    C, B, N = z.shape
    each = quantile_loss(z.flatten(0, 1), y.expand(C, -1, -1).flatten(0, 1), network.levels, 1.0).view(C, B)
    loss = (batch.weight * each).mean() / N
    td_error = (z.mean(2) - y.mean(1)).abs().mean(0)
    yield {"critics": loss}, {"critic_loss": loss, "q_mean": z.mean(), "td_error": td_error}

    action, log_pi = network.sample(batch.obs, batch.noise[1])
    actor_loss = (alpha * log_pi - network.critics(batch.obs, action).mean((0, 2))).mean()
    yield (
        {"actor": actor_loss} | temperature_loss(network, log_pi.mean(), settings),
        {"actor_loss": actor_loss, "alpha": alpha, "entropy": -log_pi.mean()},
    )
