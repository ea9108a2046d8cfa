"""Running normalization of observations and rewards, and the learners of the policies that see them so.

It is updated once a rollout, in the order of steps and environments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.episode_metrics import prefix_metrics
from paddock.algos.learning.episodes import Moments
from paddock.algos.learning.learner import Learner
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.aec import discount_transitions
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.initial import InitialPolicy
from paddock.algos.networks.inputs import Inputs
from paddock.envs.native.series import discount, moments

STD_FLOOR = 1e-4  # an observation that never moves is not blown up


class Normalization:
    """What observations and rewards have been like so far.

    Observations go to mean 0 and deviation 1. Rewards are divided by the deviation of the discounted return, as in
    the code of Schulman et al. 2017; their mean stays. Where rows may wait, gamma counts transitions, as in `returns`.
    """

    def __init__(
        self, num_envs: int, inputs: Inputs, gamma: float, *, obs: bool, rewards: bool, aec: bool = False
    ) -> None:
        """Begin with nothing seen.

        Args:
            aec: whether agents may wait while others act.
        """
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
        """Of observations' numbers, [O], 0 where they are no reals; [0] where all are left as they are."""
        return self._scale()[0]

    @property
    def std(self) -> NDArray[np.float32]:
        """Of observations' numbers, [O], 1 where they are no reals; [0] where all are left as they are."""
        return self._scale()[1]

    def _scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if not self._obs:
            return np.zeros(0, np.float32), np.zeros(0, np.float32)
        return self._inputs.of_reals(self.seen.mean, self.seen.std(STD_FLOOR))

    @property
    def reward_scale(self) -> float:
        """What rewards are divided by."""
        return float(self._returned.std(STD_FLOOR)[0]) if self._rewards else 1.0

    def rewards(self, rollout: Rollout, clip: float) -> NDArray[np.float32]:
        """The rollout's rewards [T, N], scaled by what is known with them, and clipped to +-clip."""
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
        """Counters the rollout's observations."""
        if self._obs:
            T, N = rollout.reward.shape
            rows = rollout.obs.reshape(T * N, *rollout.obs.shape[2:])
            if rollout.acts is not None:
                rows = rows[rollout.acts[:-1].ravel()]
            self.seen = self.seen.merge(moments_of(self._inputs.numbers(rows)))

    def state_dict(self) -> dict[str, Any]:
        """Everything."""
        state = {"seen": vars(self.seen), "returned": vars(self._returned), "running": self._running}
        return state | ({"open": self._open} if self._aec else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.seen, self._returned = Moments(**state["seen"]), Moments(**state["returned"])
        self._running = state["running"]
        if self._aec:
            self._open = state["open"]


def moments_of(sample: NDArray[Any]) -> Moments:
    """The moments of rows [B, O], of which there may be none, as of who did not act."""
    return Moments(len(sample), *moments(sample)) if len(sample) else Moments.zero(sample.shape[1])


@dataclass(eq=False)
class NormalizedLearner:
    """Learns one policy of those that share an environment; nothing of that moves another's parameters.

    Attributes:
        number: of the policy.
        name: of the policy; "" of one that acts for all.
        team: the learner, or several as one; see `learner.SingleLearner`.
        clip: deviations that normalized observations are clipped to.
    """

    number: int
    name: str
    team: Any
    normalization: Normalization
    clip: float

    @property
    def learner(self) -> Learner:
        """What learns it, or the first of several as one."""
        learner: Learner = self.team.first
        return learner

    def weights(self, version: int) -> Weights:
        """Return the policy for actors."""
        normal = self.normalization
        return Weights(version, self.learner.parameters(), normal.mean, normal.std, self.clip)

    def tell(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return metrics under the policy's name, where it has one: `group/NAME/metric`."""
        return prefix_metrics(self.name, metrics)

    def describe(self) -> str:
        """Return what its network is made of, for `dry_run=true`."""
        return f"{self.learner.architecture.describe()}, {len(self.learner.parameters()):,} parameters"

    def initial(self, version: int) -> InitialPolicy:
        """Return the policy as another run may begin with it."""
        policy = ActorPolicy(self.learner.architecture, self.weights(version))
        return InitialPolicy.of(policy, self.normalization.seen.count)

    def start_from(self, initial: InitialPolicy) -> None:
        """Take over all of a policy but its values."""
        clip = self.clip if self.normalization.mean.size else None
        parameters = initial.apply_to(self.learner.architecture, self.learner.parameters(), clip)
        self.learner.load_state_dict({**self.learner.state_dict(), "parameters": parameters})
        if initial.seen is not None:
            self.normalization.seen = Moments(*initial.seen)

    def reset_to(self, fresh: "NormalizedLearner") -> None:
        """Be one that has learned nothing yet: its parameters, its optimizer and its normalization."""
        self.learner.load_state_dict(fresh.learner.state_dict())
        self.normalization.load_state_dict(fresh.normalization.state_dict())
