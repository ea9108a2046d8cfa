"""What actors and critics of dense layers are made of that learn from replay without torch, and what they learn by."""

from dataclasses import dataclass

from paddock.algos.networks.dense.shape import Floats
from paddock.algos.networks.flat import Activation

REPORTED = ("critic_loss", "q_mean", "actor_loss", "alpha", "entropy")  # the last two of a soft policy alone


@dataclass(frozen=True)
class SoftPolicy:
    """SAC's (Haarnoja et al. 2018, arXiv:1812.05905): a Gaussian squashed by tanh, or choices; entropy is rewarded."""

    alpha: float  # the reward of entropy; where it is learned, that of the first update
    learned: bool  # alpha, by gradients of -log(alpha) (log pi + target_entropy)
    target_entropy: float  # nats; usually -A, or of choices a share of log K


@dataclass(frozen=True)
class DeterministicPolicy:
    """TD3's (Fujimoto et al. 2018, arXiv:1802.09477) and DDPG's: tanh of the outputs."""

    target_noise: float  # deviation of the noise on the next action, of actions in [-1, 1]; 0 for none
    target_noise_clip: float  # the most noise


@dataclass(frozen=True)
class ActorCriticObjective:
    """How an actor and its critics learn. Losses are sums over critics, of squares halved where the policy is soft.

    Those are the losses of Stable-Baselines3; Adam's step depends on such a factor by its epsilon alone.
    """

    policy: SoftPolicy | DeterministicPolicy
    num_critics: (
        int  # 1 or 2 (in torch, any), of which the smallest counts; a deterministic actor learns from the first
    )
    tau: float  # how far targets move; at 1 they are copies
    target_every: int  # updates between two moves of the targets
    actor_every: int  # updates between two steps of the actor, and of alpha

    @property
    def soft(self) -> bool:
        """Whether the policy is drawn from."""
        return isinstance(self.policy, SoftPolicy)

    @property
    def draws(self) -> int:
        """Standard normal numbers for each component of each row: of a soft policy for the next action and its own."""
        return 2 if self.soft else 1


@dataclass(frozen=True)
class ActorCriticShape:
    """A chain of layers for the actor, and one for each critic. Flat vectors are in torch's order, critic by critic."""

    # Widths from observation to outputs: A; of a soft policy A means, then A log deviations, or scores of K choices.
    actor: tuple[int, ...]
    critic: tuple[int, ...]  # widths from observation and action, side by side, to 1; or from observation to K values
    activation: Activation
    masked: bool = False  # behind the numbers of an observation lies which choices are legal

    @property
    def observed(self) -> int:
        """O, numbers of an observation."""
        return self.actor[0]

    @property
    def width(self) -> int:
        """Of a row of observations: its numbers and, where there is a mask, what is legal."""
        return self.observed + (self.choices if self.masked else 0)

    @property
    def actions(self) -> int:
        """A, numbers of an action; 0 of choices."""
        return self.critic[0] - self.actor[0]

    @property
    def choices(self) -> int:
        """K; 0 where actions are numbers."""
        return 0 if self.actions else self.critic[-1]


@dataclass(frozen=True)
class Transitions:
    """What U updates learn from, B rows each."""

    observation: Floats  # [U, B, width]
    action: Floats  # [U, B, A], in [-1, 1]; or [U, B, 1], the number of a choice
    reward: Floats  # [U, B]
    next_observation: Floats  # [U, B, width]
    discount: Floats  # [U, B], of the next value; 0 where the episode terminated
    weight: Floats  # [U, B], of a row's loss
    noise: Floats  # [U, draws, B, A], standard normal; of choices there is none
