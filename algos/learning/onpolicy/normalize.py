"""Running normalization of observations and rewards, updated once per rollout, and a learner that uses it."""

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

STD_FLOOR = 1e-4  # minimum standard deviation, so that constant observations remain finite


class Normalization:
    """Running statistics of observations and rewards.

    Observations are scaled to mean 0 and standard deviation 1. Rewards are divided by the standard deviation of the
    discounted return, as in the code of Schulman et al. 2017. With `aec`, returns are discounted once per transition
    instead of once per step.
    """

    def __init__(
        self, num_envs: int, inputs: Inputs, gamma: float, *, obs: bool, rewards: bool, aec: bool = False
    ) -> None:
        """Initialize without data; with `aec`, rows may act in turns."""
        self._obs = obs
        self._inputs = inputs
        self._rewards = rewards
        self._gamma = gamma
        self.seen = Moments.zero(inputs.width if obs else 0)  # moments of observations
        self._returns = Moments.zero(1)
        self._running = np.zeros(num_envs)  # discounted return of each running episode
        self._aec = aec and rewards
        self._open = np.zeros(num_envs, np.bool_)  # rows whose current transition is incomplete

    @property
    def mean(self) -> NDArray[np.float32]:
        """Mean of observations [O], 0 for discrete features; empty without normalization."""
        return self._scale()[0]

    @property
    def std(self) -> NDArray[np.float32]:
        """Standard deviation of observations [O], 1 for discrete features; empty without normalization."""
        return self._scale()[1]

    def _scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if not self._obs:
            return np.zeros(0, np.float32), np.zeros(0, np.float32)
        return self._inputs.of_reals(self.seen.mean, self.seen.std(STD_FLOOR))

    @property
    def reward_scale(self) -> float:
        """Divisor of rewards."""
        return float(self._returns.std(STD_FLOOR)[0]) if self._rewards else 1.0

    def rewards(self, rollout: Rollout, clip: float) -> NDArray[np.float32]:
        """Update the reward statistics and return the rollout's rewards [T, N], scaled and clipped to [-clip, clip]."""
        if not self._rewards:
            return rollout.reward
        ended = rollout.terminated | rollout.truncated
        if rollout.acts is None:
            returns, self._running = discount(rollout.reward, ended, self._gamma, self._running)
        else:
            state = self._gamma, self._running, self._open
            steps, done, self._running, self._open = discount_transitions(rollout.reward, ended, rollout.acts, *state)
            returns = steps[done]
        self._returns = self._returns.merge(moments_of(returns.reshape(-1, 1)))
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
        state = {"seen": vars(self.seen), "returned": vars(self._returns), "running": self._running}
        return state | ({"open": self._open} if self._aec else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.seen, self._returns = Moments(**state["seen"]), Moments(**state["returned"])
        self._running = state["running"]
        if self._aec:
            self._open = state["open"]


def moments_of(sample: NDArray[Any]) -> Moments:
    """Return the moments of rows [B, O]; B may be 0."""
    return Moments(len(sample), *moments(sample)) if len(sample) else Moments.zero(sample.shape[1])


@dataclass(eq=False)
class NormalizedLearner:
    """Learner of one policy, with its observation and reward normalization."""

    number: int  # index of the policy
    name: str  # "" for a single policy
    team: Any  # `SingleLearner` or data-parallel `Learners`
    normalization: Normalization
    clip: float  # absolute bound of normalized observations, in standard deviations

    @property
    def learner(self) -> Learner:
        """The learner, or the first of several data-parallel learners."""
        learner: Learner = self.team.first
        return learner

    def weights(self, version: int) -> Weights:
        """Return the weights for actors."""
        stats = self.normalization
        return Weights(version, self.learner.parameters(), stats.mean, stats.std, self.clip)

    def describe(self) -> str:
        """Describe the network for `dry_run=true`."""
        return f"{self.learner.architecture.describe()}, {len(self.learner.parameters()):,} parameters"

    def initial(self, version: int) -> InitialPolicy:
        """Return the current policy, from which another run can be initialized."""
        policy = ActorPolicy(self.learner.architecture, self.weights(version))
        return InitialPolicy.of(policy, self.normalization.seen.count)

    def start_from(self, initial: InitialPolicy) -> None:
        """Initialize from a policy; the value function is not changed."""
        clip = self.clip if self.normalization.mean.size else None
        parameters = initial.apply_to(self.learner.architecture, self.learner.parameters(), clip)
        self.learner.load_state_dict({**self.learner.state_dict(), "parameters": parameters})
        if initial.seen is not None:
            self.normalization.seen = Moments(*initial.seen)
