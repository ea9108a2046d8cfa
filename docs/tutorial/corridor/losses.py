"""Simple policy optimization (Xie et al. 2024, arXiv:2401.16025) as a loss of PPO."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from paddock.algos.learning.onpolicy.minibatch import Minibatch
    from paddock.algos.ppo import ActorCritic, LossSettings


def spo_loss(network: ActorCritic, batch: Minibatch, settings: LossSettings) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute PPO's loss with a quadratic penalty on the probability ratio instead of clipping."""
    logprob, entropy, value = network.evaluate_actions(batch)
    advantage = (batch.advantage - batch.all_advantages.mean()) / (batch.all_advantages.std() + 1e-8)

    log_ratio = logprob - batch.logprob
    ratio, epsilon = log_ratio.exp(), settings.clip_coef
    penalty = advantage.abs() / (2 * epsilon) * (ratio - 1) ** 2
    policy_loss = (penalty - advantage * ratio).mean()
    value_loss = 0.5 * ((value - batch.target) ** 2).mean()

    loss = policy_loss + settings.value_coef * value_loss - settings.entropy_coef * entropy.mean()
    return loss, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy.mean(),
        "approx_kl": (ratio - 1 - log_ratio).mean(),
    }
