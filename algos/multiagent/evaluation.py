"""Evaluation metrics of several agents."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.episodes import Episodes
from paddock.algos.multiagent.policies import PolicyGroup


def team_metrics(lives: Sequence[NDArray[np.float64]]) -> dict[str, float]:
    """Return metrics of all agents together, given the returns of each episode's lives; empty for one agent."""
    if not lives:
        return {}
    return {"eval/team_return_mean": float(np.mean([each.sum() for each in lives])), "eval/lives": sum(map(len, lives))}


def metrics_per_policy(policies: PolicyGroup, games: Sequence[Episodes]) -> dict[str, float]:
    """Return metrics of each policy's lives, given games of each policy or of all together; empty for one policy."""
    metrics: dict[str, float] = {}
    for k, spec in enumerate(() if policies.single else policies.specs):
        played = games[k % len(games)]
        known = zip(played.lives, played.rows, np.isfinite(played.returns), strict=True)
        lives = [of[np.isin(seats, spec.seats)] for of, seats, finite in known if finite]
        returns = np.concatenate(lives) if lives else np.zeros(0)
        if len(returns):
            name = f"eval/{spec.name}/return"
            metrics |= {f"{name}_mean": float(returns.mean()), f"{name}_std": float(returns.std())}
    return metrics
