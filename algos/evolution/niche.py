"""A niche: one environment of a family and the agent that lives there; and how novel an environment is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.evolution.gradient import centred_ranks
from paddock.algos.evolution.optimizers import Adam
from paddock.algos.evolution.population import Problem
from paddock.envs.family import Encoding

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Niche:
    """A niche at one moment; a later moment is another object."""

    number: int  # in the order of mutation; those of rejected environments are left out
    parent: int | None  # number of the niche whose encoding was mutated; None for the first
    encoding: Encoding
    problem: Problem  # how episodes are played here
    born: int  # iteration
    mean: Floats  # [P], the agent
    adam: Adam
    score: float = float("-inf")  # mean return of the agent's last evaluation here
    recent: tuple[float, ...] = ()  # scores after its own last steps, the newest last
    best: float = float("-inf")  # highest score so far
    passed: bool = False  # it met the minimal criterion against every agent there had been, archived ones included
    solved: int | None = None  # iteration in which a score first reached `solved_score`
    retired: int | None = None  # iteration in which it was archived
    learned: int = 0  # environment steps that the agent has learned from, in all niches it came through

    def describe(self) -> dict[str, Any]:
        """Everything but the arrays and the problem, as plain data."""
        names = ("number", "parent", "born", "score", "best", "passed", "solved", "retired", "learned")
        plain = {name: getattr(self, name) for name in names}
        return plain | {"encoding": self.encoding, "recent": list(self.recent), "updates": self.adam.updates}

    @classmethod
    def restore(cls, plain: Mapping[str, Any], problem: Problem, mean: Floats, moments: Floats) -> "Niche":
        """What `describe` and the arrays tell of; `moments` [2, P] are Adam's."""
        told = {name: value for name, value in plain.items() if name != "updates"}
        adam = Adam(moments[0], moments[1], plain["updates"])
        return cls(**told | {"recent": tuple(plain["recent"])}, problem=problem, mean=mean, adam=adam)


def novelty(distances: Iterable[float], neighbours: int) -> float:
    """Mean distance to the nearest environments; 0 where there is none (Lehman & Stanley 2011)."""
    nearest = sorted(distances)[:neighbours]
    return float(np.mean(nearest)) if nearest else 0.0


def characterize(scores: Sequence[float], low: float, high: float) -> Floats:
    """PATA-EC (arXiv:2003.08536): what an environment is to all agents, active and archived.

    Args:
        scores: [A], of every agent in this environment; NaN for one that was lost counts as `low`.
        low, high: bounds of the minimal criterion, to which scores are clipped.

    Returns:
        [A], centred ranks.
    """
    clipped = np.clip(np.nan_to_num(np.asarray(scores, np.float64), nan=low), low, high)
    return centred_ranks(clipped).astype(np.float64)
