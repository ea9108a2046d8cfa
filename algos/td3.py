"""Twin Delayed DDPG (TD3, Fujimoto et al. 2018, arXiv:1802.09477), and DDPG.

DDPG (Lillicrap et al. 2016, arXiv:1509.02971) has one critic, no delay of actor updates and no target noise, as
configured by conf/algo/ddpg.yaml.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from paddock.algos.learning.custom_loss import choose_loss, needs_of_loss
from paddock.algos.learning.offpolicy.exploration import GaussianNoise
from paddock.algos.learning.offpolicy.from_replay import FromReplay, make_actor_critic
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.operators import interleave, sample, store, train
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense.actor_critic import ActorCriticObjective, DeterministicPolicy
from paddock.algos.networks.heads import Tanh
from paddock.envs.ranges import NonNegativeFloat, PositiveInt, Range, UnitFloat

if TYPE_CHECKING:
    from torch import Tensor

    from paddock.algos.learning.offpolicy.learners.torch_batch import TorchBatch
    from paddock.algos.learning.offpolicy.learners.torch_networks import ActorCriticNetworks


@dataclass(kw_only=True, eq=False)
class TD3(FromReplay):
    """Twin Delayed DDPG; conf/algo/td3.yaml explains each setting."""

    default_layers = ((256, 256), "relu")

    group = "td3"

    tau: UnitFloat
    actor_every: PositiveInt
    num_critics: Annotated[int, Range("must be 1 or 2", low=1, high=2)]
    sigma: NonNegativeFloat
    target_noise: NonNegativeFloat
    target_noise_clip: NonNegativeFloat
    loss: str | None

    def __post_init__(self) -> None:
        self.assemble_with_replay(
            Tanh.for_replay,
            lambda rows: GaussianNoise(self.learning_starts, self.sigma),
            self._make_learner,
        )

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Act, store, sample, learn; yield metrics every `log_every_steps` steps, when the state is complete."""
        policies = self.learning
        with self.playing() as rollouts:
            stored = store(rollouts, policies)
            updates = [train(sample(policy, self.batch_size), policy, self.rate) for policy in policies]
            yield from self.rows(interleave(stored, updates, policies, self.publish))

    def _make_learner(self, architecture: Architecture, seed: int) -> OffPolicyLearner:
        policy = DeterministicPolicy(self.target_noise, self.target_noise_clip)
        objective = ActorCriticObjective(policy, self.num_critics, self.tau, self.actor_every, self.actor_every)
        loss = choose_loss(self.loss, td3_losses)
        return make_actor_critic(self, architecture, seed, objective, loss, needs_of_loss(self.loss))


def td3_losses(
    network: ActorCriticNetworks, batch: TorchBatch, settings: ActorCriticObjective
) -> Iterator[tuple[dict[str, Tensor], dict[str, Tensor]]]:
    """Yield the critics' loss (Q_i(s, a) - y)^2, and every `actor_every` updates the actor's loss -Q_1(s, pi(s)).

    The target is y = r + gamma^n min_i Q'_i(s', pi'(s') + clipped noise). The optimizers of a loss take their step
    before the next loss is computed. Actions are in [-1, 1].

    Args:
        network: critics, actor and their targets.
        batch: transitions; `reward` is the discounted sum of n rewards, `noise` is standard normal.
        settings: target noise and delays.

    Yields:
        Losses by optimizer, and metrics.
    """
    policy = settings.policy
    assert isinstance(policy, DeterministicPolicy)
    with network.no_grad():
        noise = (policy.target_noise * batch.noise[0]).clamp(-policy.target_noise_clip, policy.target_noise_clip)
        next_action = (network.target_actor.policy(batch.next_obs).tanh() + noise).clamp(-1, 1)
        q_next = network.target_critics(batch.next_obs, next_action).amin(0).squeeze(1)
        y = batch.reward + batch.discount * q_next
    q = network.critics(batch.obs, batch.action).squeeze(2)  # [C, B]
    loss = (batch.weight * (q - y).square()).mean(1).sum()
    yield {"critics": loss}, {"critic_loss": loss, "q_mean": q.mean(), "td_error": (q - y).abs().mean(0)}

    if batch.update % settings.actor_every == 0:
        actor_loss = -network.first_critic(batch.obs, network.actor.policy(batch.obs).tanh()).mean()
        yield {"actor": actor_loss}, {"actor_loss": actor_loss}
