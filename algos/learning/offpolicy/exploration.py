"""How off-policy actors explore: by noise alone, so that whoever samples actions of a network's outputs explores too.

Schedules count the environment steps that the acting weights had been learned from, which no worker's speed changes.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads import Head
from paddock.envs.errors import require
from paddock.envs.native.functions import fast_log

FAR = np.float32(1e30)  # beyond all values of choices, and far from `LOWEST` of those that may not be taken
LADDER = 0.4, 7.0  # of Horgan et al. 2018

Floats = NDArray[np.float32]


class Exploration(Protocol):
    """Draws noise in place of `Head.draw`."""

    def draw(self, head: Head, generator: np.random.Generator, lead: tuple[int, int], step: int, first: int) -> Floats:
        """Return noise [T, N, ...] that `Head.sample` turns into actions.

        Args:
            lead: T and N.
            step: environment steps before the weights that act.
            first: the number of the first of these environments, among those of all actors.
        """
        ...


@dataclass(frozen=True)
class EpsilonGreedy:
    """The best choice, or with probability epsilon any that may be taken."""

    learning_starts: int  # steps in which every action is drawn
    start: float  # epsilon after them
    end: float
    anneal_steps: int  # steps over which epsilon falls, from the first step on
    ladder: int  # environments of all actors, each with an epsilon of its own (arXiv:1803.00933); 0: all have one

    def __post_init__(self) -> None:
        rises = f"algo.epsilon_end={self.end} exceeds algo.epsilon_start={self.start}; epsilon falls"
        require(self.end <= self.start, rises)

    def epsilon(self, step: int, environments: NDArray[np.int64]) -> Floats:
        """Return that of each environment [N]."""
        if step < self.learning_starts:
            return np.ones(len(environments), np.float32)
        if self.ladder:
            base, spread = LADDER
            return np.power(base, 1 + spread * environments / max(self.ladder - 1, 1)).astype(np.float32)
        share = min(step / self.anneal_steps, 1.0) if self.anneal_steps else 1.0
        return np.full(len(environments), self.start + share * (self.end - self.start), np.float32)

    def draw(self, head: Head, generator: np.random.Generator, lead: tuple[int, int], step: int, first: int) -> Floats:
        """See `Exploration.draw`."""
        T, N = lead
        epsilon = self.epsilon(step, np.arange(first, first + N))
        drawn = generator.random((T, N, 1 + head.width), dtype=np.float32)
        return np.where(drawn[..., :1] < epsilon[:, None], FAR * drawn[..., 1:], np.float32(0))


@dataclass(frozen=True)
class GaussianNoise:
    """Gaussian noise onto actions in [-1, 1]; in the warm-up, where the weights are 0, actions are uniform."""

    learning_starts: int
    sigma: float  # of half the width between bounds

    def draw(self, head: Head, generator: np.random.Generator, lead: tuple[int, int], step: int, first: int) -> Floats:
        """See `Exploration.draw`."""
        if step < self.learning_starts:
            return uniform(head, generator, lead)
        return np.float32(self.sigma) * head.sample_noise(generator, lead)


@dataclass(frozen=True)
class PolicyNoise:
    """The policy's own; in the warm-up, where the weights are 0, that of which actions become uniform.

    Choices are uniform then by their own.
    """

    learning_starts: int

    def draw(self, head: Head, generator: np.random.Generator, lead: tuple[int, int], step: int, first: int) -> Floats:
        """See `Exploration.draw`."""
        if step < self.learning_starts and not head.columns:
            drawn = np.float32(1 - 2**-23) * uniform(head, generator, lead)
            return np.float32(0.5) * fast_log((np.float32(1) + drawn) / (np.float32(1) - drawn))
        return head.sample_noise(generator, lead)


def uniform(head: Head, generator: np.random.Generator, lead: tuple[int, int]) -> Floats:
    """Draw numbers [T, N, K] between -1 and 1."""
    return np.float32(2) * generator.random((*lead, head.components), dtype=np.float32) - np.float32(1)
