"""Running normalization of observations and rewards, updated once per rollout, and learners that use it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.episodes import Moments
from paddock.algos.learning.learner import Learner
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.aec import discount_transitions
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.initial import InitialPolicy
from paddock.algos.networks.inputs import Inputs
from paddock.envs.native.series import discount, moments

STD_FLOOR = 1e-4  # keeps constant observations finite


class Normalization:
    """Running statistics of observations and rewards.

    Observations are scaled to mean 0 and deviation 1. Rewards are divided by the deviation of the discounted return, as
    in the code of Schulman et al. 2017. With `aec`, gamma applies per transition of a row, as in `returns`.
    """

    def __init__(
        self, num_envs: int, inputs: Inputs, gamma: float, *, obs: bool, rewards: bool, aec: bool = False
    ) -> None:
        """Start without data; `aec`: rows may wait while others act."""
        self._obs = obs
        self._inputs = inputs
        self._rewards = rewards
        self._gamma = gamma
        self.seen = Moments.zero(inputs.width if obs else 0)  # of observations
        self._returned = Moments.zero(1)
        self._running = np.zeros(num_envs)  # discounted return of each running episode
        self._aec = aec and rewards
        self._open = np.zeros(num_envs, np.bool_)  # rows with an open transition

    @property
    def mean(self) -> NDArray[np.float32]:
        """Mean of observations [O], 0 for discrete features; [0] without normalization."""
        return self._scale()[0]

    @property
    def std(self) -> NDArray[np.float32]:
        """Standard deviation of observations [O], 1 for discrete features; [0] without normalization."""
        return self._scale()[1]

    def _scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if not self._obs:
            return np.zeros(0, np.float32), np.zeros(0, np.float32)
        return self._inputs.of_reals(self.seen.mean, self.seen.std(STD_FLOOR))

    @property
    def reward_scale(self) -> float:
        """Divisor of rewards."""
        return float(self._returned.std(STD_FLOOR)[0]) if self._rewards else 1.0

    def rewards(self, rollout: Rollout, clip: float) -> NDArray[np.float32]:
        """Update the reward statistics and return the rollout's rewards [T, N], scaled and clipped to [-clip, clip]."""
        if not self._rewards:
            return rollout.reward
        ended = rollout.terminated | rollout.truncated
        if rollout.acts is None:
            returns, self._running = discount(rollout.reward, ended, self._gamma, self._running)
        else:
            at = self._gamma, self._running, self._open
            steps, closed, self._running, self._open = discount_transitions(rollout.reward, ended, rollout.acts, *at)
            returns = steps[closed]
        self._returned = self._returned.merge(moments_of(returns.reshape(-1, 1)))
        return np.clip(rollout.reward / np.float32(self.reward_scale), -clip, clip).astype(np.float32)

    def observe(self, rollout: Rollout) -> None:
        """Add the rollout's observations to the statistics."""
        if self._obs:
            T, N = rollout.reward.shape
            rows = rollout.obs.reshape(T * N, *rollout.obs.shape[2:])
            if rollout.acts is not None:
                rows = rows[rollout.acts[:-1].ravel()]
            self.seen = self.seen.merge(moments_of(self._inputs.numbers(rows)))

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics."""
        state = {"seen": vars(self.seen), "returned": vars(self._returned), "running": self._running}
        return state | ({"open": self._open} if self._aec else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""
        self.seen, self._returned = Moments(**state["seen"]), Moments(**state["returned"])
        self._running = state["running"]
        if self._aec:
            self._open = state["open"]


def moments_of(sample: NDArray[Any]) -> Moments:
    """Return the moments of rows [B, O]; B may be 0."""
    return Moments(len(sample), *moments(sample)) if len(sample) else Moments.zero(sample.shape[1])


@dataclass(eq=False)
class NormalizedLearner:
    """Learner of one policy, with its normalization.

    Attributes:
        number: of the policy.
        name: of the policy; "" if it is the only one.
        team: `SingleLearner` or data-parallel `Learners`.
        clip: bound of normalized observations, in standard deviations.
    """

    number: int
    name: str
    team: Any
    normalization: Normalization
    clip: float

    @property
    def learner(self) -> Learner:
        """The learner, or the first of several data-parallel ones."""
        learner: Learner = self.team.first
        return learner

    def weights(self, version: int) -> Weights:
        """Return the weights for actors."""
        normal = self.normalization
        return Weights(version, self.learner.parameters(), normal.mean, normal.std, self.clip)

    def describe(self) -> str:
        """Describe the network for `dry_run=true`."""
        return f"{self.learner.architecture.describe()}, {len(self.learner.parameters()):,} parameters"

    def initial(self, version: int) -> InitialPolicy:
        """Return the policy for warm-starting another run."""
        policy = ActorPolicy(self.learner.architecture, self.weights(version))
        return InitialPolicy.of(policy, self.normalization.seen.count)

    def start_from(self, initial: InitialPolicy) -> None:
        """Initialize from a policy; the value function is kept."""
        clip = self.clip if self.normalization.mean.size else None
        parameters = initial.apply_to(self.learner.architecture, self.learner.parameters(), clip)
        self.learner.load_state_dict({**self.learner.state_dict(), "parameters": parameters})
        if initial.seen is not None:
            self.normalization.seen = Moments(*initial.seen)

    def reset_to(self, fresh: "NormalizedLearner") -> None:
        """Reset parameters, optimizer and normalization to those of a newly initialized learner."""
        self.learner.load_state_dict(fresh.learner.state_dict())
        self.normalization.load_state_dict(fresh.normalization.state_dict())
