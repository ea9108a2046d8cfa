"""Shapes and objectives of off-policy actor-critic learners with dense networks."""

from dataclasses import dataclass

from paddock.algos.networks.dense.shape import Floats
from paddock.algos.networks.flat import Activation

REPORTED = ("critic_loss", "q_mean", "actor_loss", "alpha", "entropy")  # the last two for soft policies only


@dataclass(frozen=True)
class SoftPolicy:
    """SAC's policy (Haarnoja et al. 2018, arXiv:1812.05905): squashed Gaussian or categorical."""

    alpha: float  # entropy coefficient; the initial one if learned
    learned: bool  # adapt alpha with the loss -log(alpha) (log pi + target_entropy)
    target_entropy: float  # nats; usually -A, or a fraction of log K for discrete actions


@dataclass(frozen=True)
class DeterministicPolicy:
    """Policy of TD3 (Fujimoto et al. 2018, arXiv:1802.09477) and DDPG: tanh of the outputs."""

    target_noise: float  # standard deviation of target policy smoothing, for actions in [-1, 1]
    target_noise_clip: float  # bound of that noise


@dataclass(frozen=True)
class ActorCriticObjective:
    """Training objective of an actor and its critics, with the losses of Stable-Baselines3.

    The critic loss is the sum over critics of mean squared errors, halved for soft policies.
    """

    policy: SoftPolicy | DeterministicPolicy
    num_critics: int  # 1 or 2 (in torch, any); targets use the minimum, deterministic actors the first
    tau: float  # Polyak coefficient of the targets; 1 copies
    target_every: int  # updates between target updates
    actor_every: int  # updates between steps of the actor and of alpha

    @property
    def soft(self) -> bool:
        """Return True for stochastic policies with entropy bonus."""
        return isinstance(self.policy, SoftPolicy)

    @property
    def draws(self) -> int:
        """Noise vectors per row: two for soft policies (next and current action), else one."""
        return 2 if self.soft else 1


@dataclass(frozen=True)
class ActorCriticShape:
    """Layer widths of the actor and of each critic. Flat vectors are in torch's order, critic by critic."""

    actor: tuple[int, ...]  # outputs: A actions; for soft policies A means and A log deviations, or K logits
    critic: tuple[int, ...]  # inputs: observation and action; outputs: 1, or K values of discrete actions
    activation: Activation
    masked: bool = False  # observations end with an action mask [K]

    @property
    def observed(self) -> int:
        """Number of features O."""
        return self.actor[0]

    @property
    def width(self) -> int:
        """Width of an observation row, including the action mask."""
        return self.observed + (self.choices if self.masked else 0)

    @property
    def actions(self) -> int:
        """Dimension A of continuous actions; 0 if discrete."""
        return self.critic[0] - self.actor[0]

    @property
    def choices(self) -> int:
        """Number K of discrete actions; 0 if continuous."""
        return 0 if self.actions else self.critic[-1]


@dataclass(frozen=True)
class Transitions:
    """Batches of U updates with B transitions each."""

    observation: Floats  # [U, B, width]
    action: Floats  # [U, B, A] in [-1, 1]; or [U, B, 1], indices of discrete actions
    reward: Floats  # [U, B]
    next_observation: Floats  # [U, B, width]
    discount: Floats  # [U, B]; 0 where the episode terminated
    weight: Floats  # [U, B], of each row's loss
    noise: Floats  # [U, draws, B, A], standard normal; empty for discrete actions
