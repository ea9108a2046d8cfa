"""Exploration of off-policy actors, as noise that the head's sampling turns into actions.

Schedules count the environment steps that the acting weights have learned from, so they do not depend on timing.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads import Head
from paddock.envs.errors import require
from paddock.envs.native.functions import fast_log

FAR = np.float32(1e30)  # exceeds all action values, but not the `LOWEST` of illegal actions in magnitude
LADDER = 0.4, 7.0  # base and exponent of Horgan et al. 2018

Floats = NDArray[np.float32]


class Exploration(Protocol):
    """Noise source of an off-policy actor, used instead of `Head.sample_noise`."""

    def sample_noise(
        self, head: Head, generator: np.random.Generator, lead: tuple[int, int], step: int, first: int
    ) -> Floats:
        """Return noise [T, N, ...] that the head's `sample` turns into actions.

        `lead` is (T, N), `step` the number of environment steps that the acting weights have learned from, and `first`
        the index of the first of these environments among those of all actors.
        """


@dataclass(frozen=True)
class EpsilonGreedy:
    """Epsilon-greedy exploration among legal actions."""

    learning_starts: int  # steps with uniformly random actions
    start: float  # epsilon after them
    end: float
    anneal_steps: int  # steps over which epsilon falls, from the first step on
    ladder: int  # number of environments if each has its own epsilon (arXiv:1803.00933); 0: a common epsilon

    def __post_init__(self) -> None:
        rises = f"algo.epsilon_end={self.end} must not exceed algo.epsilon_start={self.start}"
        require(self.end <= self.start, rises)

    def epsilon(self, step: int, environments: NDArray[np.int64]) -> Floats:
        """Return the epsilon of each environment [N]."""
        if step < self.learning_starts:
            return np.ones(len(environments), np.float32)
        if self.ladder:
            base, spread = LADDER
            return np.power(base, 1 + spread * environments / max(self.ladder - 1, 1)).astype(np.float32)
        share = min(step / self.anneal_steps, 1.0) if self.anneal_steps else 1.0
        return np.full(len(environments), self.start + share * (self.end - self.start), np.float32)

    def sample_noise(
        self, head: Head, generator: np.random.Generator, lead: tuple[int, int], step: int, first: int
    ) -> Floats:
        """See `Exploration.sample_noise`."""
        T, N = lead
        epsilon = self.epsilon(step, np.arange(first, first + N))
        drawn = generator.random((T, N, 1 + head.width), dtype=np.float32)
        return np.where(drawn[..., :1] < epsilon[:, None], FAR * drawn[..., 1:], np.float32(0))


@dataclass(frozen=True)
class GaussianNoise:
    """Gaussian noise added to actions in [-1, 1]; actions are uniform before `learning_starts`, when weights are 0."""

    learning_starts: int
    sigma: float  # in units of half the action range

    def sample_noise(
        self, head: Head, generator: np.random.Generator, lead: tuple[int, int], step: int, first: int
    ) -> Floats:
        """See `Exploration.sample_noise`."""
        if step < self.learning_starts:
            return uniform(head, generator, lead)
        return np.float32(self.sigma) * head.sample_noise(generator, lead)


@dataclass(frozen=True)
class PolicyNoise:
    """Noise of the stochastic policy itself; actions are uniform before `learning_starts`, when weights are 0."""

    learning_starts: int

    def sample_noise(
        self, head: Head, generator: np.random.Generator, lead: tuple[int, int], step: int, first: int
    ) -> Floats:
        """See `Exploration.sample_noise`."""
        if step < self.learning_starts and not head.columns:
            drawn = np.float32(1 - 2**-23) * uniform(head, generator, lead)
            return np.float32(0.5) * fast_log((np.float32(1) + drawn) / (np.float32(1) - drawn))
        return head.sample_noise(generator, lead)


def uniform(head: Head, generator: np.random.Generator, lead: tuple[int, int]) -> Floats:
    """Sample uniform numbers [T, N, K] in [-1, 1)."""
    return np.float32(2) * generator.random((*lead, head.components), dtype=np.float32) - np.float32(1)
