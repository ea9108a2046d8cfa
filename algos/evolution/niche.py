"""POET's niche, an environment of a family paired with an agent, and the novelty of environments."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.evolution.optimizers import Adam
from paddock.algos.evolution.population import Problem
from paddock.algos.evolution.ranks import centred_ranks
from paddock.envs.family import Encoding

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Niche:
    """Environment and agent at one moment; changes make a new object."""

    number: int  # in the order of mutation; rejected environments use up numbers
    parent: int | None  # number of the niche whose encoding was mutated; None for the first
    encoding: Encoding
    problem: Problem  # settings of its episodes
    born: int  # iteration
    mean: Floats  # [P], the agent
    adam: Adam
    score: float = float("-inf")  # mean return of the agent's last evaluation here
    recent: tuple[float, ...] = ()  # scores after its last steps, the newest last
    best: float = float("-inf")  # highest score so far
    passed: bool = False  # met the minimal criterion against all agents, including archived ones
    solved: int | None = None  # iteration in which a score first reached `solved_score`
    retired: int | None = None  # iteration in which it was archived
    learned: int = 0  # environment steps the agent has learned from, in all niches it passed through

    def describe(self) -> dict[str, Any]:
        """Return everything except the arrays and the problem, as plain data."""
        names = ("number", "parent", "born", "score", "best", "passed", "solved", "retired", "learned")
        plain = {name: getattr(self, name) for name in names}
        return plain | {"encoding": self.encoding, "recent": list(self.recent), "updates": self.adam.updates}

    @classmethod
    def restore(cls, plain: Mapping[str, Any], problem: Problem, mean: Floats, moments: Floats) -> "Niche":
        """Restore a niche from the result of `describe`, its problem and its arrays; `moments` [2, P] are Adam's."""
        fields = {name: value for name, value in plain.items() if name != "updates"}
        adam = Adam(moments[0], moments[1], plain["updates"])
        return cls(**fields | {"recent": tuple(plain["recent"])}, problem=problem, mean=mean, adam=adam)


def novelty(distances: Iterable[float], neighbours: int) -> float:
    """Return the mean distance to the nearest neighbours; 0 if there are none (Lehman & Stanley 2011)."""
    nearest = sorted(distances)[:neighbours]
    return float(np.mean(nearest)) if nearest else 0.0


def characterize(scores: Sequence[float], low: float, high: float) -> Floats:
    """Return PATA-EC (arXiv:2003.08536): centred ranks [A] of all agents' scores, clipped; NaN counts as `low`."""
    clipped = np.clip(np.nan_to_num(np.asarray(scores, np.float64), nan=low), low, high)
    return centred_ranks(clipped).astype(np.float64)
