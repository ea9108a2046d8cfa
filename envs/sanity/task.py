"""What is known of a task of the sanity suite: its values, what passes, and what to suspect where nothing does."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["memoryless", "recurrent", "greedy", "deterministic"]  # of policies; the last two never draw actions
Score = Callable[[NDArray[np.float64]], float]  # of episodes' returns [E]

ROUNDING = 1e-4  # of a sum of rewards


@dataclass(frozen=True)
class Bar:
    """The scores that pass."""

    low: float = float("-inf")
    high: float = float("inf")

    def passes(self, score: float) -> bool:
        """Return whether a score lies between both; NaN does not."""
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
    """A task with its values, all by closed form or by play of every case.

    Attributes:
        name: as `tasks=` has it.
        id: as `env.id` has it.
        score: how well episodes were played; chance, blind, best and the bars are of it.
        chance: the score of actions that are drawn uniformly from their space.
        blind: the best score without the faculty.
        best: the best score of all policies.
        memoryless: what passes of a policy that draws and remembers nothing; None: it cannot take the task.
        recurrent: what passes of one that remembers, and learns from single steps, whether it draws or not.
        deterministic: what passes of one that neither draws nor remembers, and climbs undiscounted returns.
        steps: environment steps to learn in.
        drawn: actions of the score's episodes are drawn where the policy has a distribution; else the most likely.
        episodes: that the score is of.
        suspect: what of an algorithm is at fault where it fails.
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
    drawn: bool = False
    episodes: int = 500
    suspect: str

    def bar(self, kind: Kind) -> Bar | None:
        """Return what passes of such policies; None where they do not take the task.

        Greedy ones draw and remember nothing, but learn from single steps: what is possible so, they must learn.
        """
        greedy = (self.drawn and self.deterministic) or self.memoryless
        bars = {"memoryless": self.memoryless, "recurrent": self.recurrent, "greedy": greedy}
        return {**bars, "deterministic": self.deterministic}[kind]


def share_of_returns(low: float, high: float = float("inf")) -> Score:
    """Return the score that is the share of episodes with a return between both."""
    return partial(_share_between, low, high)


def _share_between(low: float, high: float, returns: NDArray[np.float64]) -> float:
    return float(((returns >= low - ROUNDING) & (returns <= high + ROUNDING)).mean())
