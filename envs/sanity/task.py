"""Description of a sanity task: its known values, passing scores, and the likely cause of a failure."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

# Kinds of policies; the last three never sample actions.
Kind = Literal["memoryless", "recurrent", "greedy", "deterministic", "deterministic with memory"]
Score = Callable[[NDArray[np.float64]], float]  # of the returns [E] of episodes

ROUNDING = 1e-4  # tolerance of a sum of rewards


@dataclass(frozen=True)
class Bar:
    """Interval of passing scores."""

    low: float = float("-inf")
    high: float = float("inf")

    def passes(self, score: float) -> bool:
        """Return whether a score is within the interval; NaN is not."""
        return self.low <= score <= self.high

    def __str__(self) -> str:
        if self.low == float("-inf"):
            return f"<= {self.high:g}"
        return f">= {self.low:g}" if self.high == float("inf") else f"{self.low:g} to {self.high:g}"


def mean_return(returns: NDArray[np.float64]) -> float:
    """Return the mean of the undiscounted returns."""
    return float(returns.mean())


@dataclass(frozen=True, kw_only=True)
class SanityTask:
    """Sanity task with its values, derived in closed form or by enumeration.

    Attributes:
        name: name for `tasks=`.
        id: `env.id`.
        score: measure of performance, used for chance, blind, best and the bars.
        chance: score of uniformly random actions.
        blind: best score without the ability under test.
        best: best score of all policies.
        memoryless: passing scores of stochastic policies without memory; None: not applicable.
        recurrent: passing scores of policies with memory that learn from single steps, stochastic or not.
        deterministic: passing scores of deterministic policies without memory that maximize undiscounted returns.
        steps: environment steps of training.
        stochastic: whether evaluation samples actions, if the policy has a distribution, instead of taking the mode.
        episodes: episodes of the evaluation.
        suspect: likely cause of a failure.
    """

    name: str
    id: str
    score: Score = mean_return
    chance: float
    blind: float
    best: float = 1.0
    memoryless: Bar | None
    recurrent: Bar | None
    deterministic: Bar | None
    steps: int
    stochastic: bool = False
    episodes: int = 500
    suspect: str

    def bar(self, kind: Kind) -> Bar | None:
        """Return the passing scores of a kind of policies; None if the task is not applicable.

        Greedy policies are deterministic and without memory, but learn from single steps.
        """
        greedy = (self.stochastic and self.deterministic) or self.memoryless
        bars = {"memoryless": self.memoryless, "recurrent": self.recurrent, "greedy": greedy}
        remembered = self.deterministic if self.recurrent == self.memoryless else self.recurrent
        return {**bars, "deterministic": self.deterministic, "deterministic with memory": remembered}[kind]


def share_of_returns(low: float, high: float = float("inf")) -> Score:
    """Return a score: the share of episodes with a return in [low, high]."""
    return partial(_share_between, low, high)


def _share_between(low: float, high: float, returns: NDArray[np.float64]) -> float:
    return float(((returns >= low - ROUNDING) & (returns <= high + ROUNDING)).mean())
