"""Elo ratings of players by maximum likelihood, from all their games at once (Bradley & Terry 1952; Elo 1978).

Updates after single games would depend on their order; here all games have equal weight. A player that is stronger by D
is expected to take 1 / (1 + 10^(-D / 400)) of the points. A draw is half a point to each, as in Elo's model. A model of
draws (Davidson 1970) has one more parameter, which changes no rating if all players draw about equally often.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

POINTS = 400 / np.log(10)  # Elo points in one unit of log-odds
PRIOR = 1.0  # virtual draws per pair; they keep the ratings of undefeated players finite
CLOSE = 1e-10  # tolerance in log-odds
MOST_STEPS = 100  # of Newton's method, which needs about ten
QUANTILE = 1.959964  # of the standard normal, for 95 %


@dataclass(frozen=True)
class Ratings:
    """Elo ratings of P players, with mean 0."""

    elo: NDArray[np.float64]  # [P]
    error: NDArray[np.float64]  # [P], standard error, from the curvature of the likelihood

    @property
    def low(self) -> NDArray[np.float64]:
        """Lower ends [P] of 95 % intervals."""
        return self.elo - QUANTILE * self.error

    @property
    def high(self) -> NDArray[np.float64]:
        """Upper ends [P] of 95 % intervals."""
        return self.elo + QUANTILE * self.error


def rate(wins: NDArray[Any], draws: NDArray[Any]) -> Ratings:
    """Rate players by the games [P, P] that the row's player won against the column's, and by drawn games [P, P]."""
    apart = 1.0 - np.eye(len(wins))
    points = (wins + 0.5 * (draws + PRIOR)) * apart
    games = points + points.T
    strength = np.zeros(len(wins))
    for _ in range(MOST_STEPS):
        step = np.linalg.solve(_curvature(strength, games), (points - games * _expected(strength)).sum(axis=1))
        # A full step may overshoot if a player wins almost every game.
        size = 1.0
        while size > CLOSE and _log_likelihood(strength + size * step, points) < _log_likelihood(strength, points):
            size /= 2
        strength = strength + size * step
        if np.abs(step).max() < CLOSE:
            break
    strength -= strength.mean()
    variance = np.diag(np.linalg.inv(_curvature(strength, games))) - 1 / len(wins)
    return Ratings(POINTS * strength, POINTS * np.sqrt(np.maximum(variance, 0)))


def _expected(strength: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected share of points [P, P] of row against column players, given log-odds [P]."""
    return np.asarray(1 / (1 + np.exp(strength[None, :] - strength[:, None])))


def _log_likelihood(strength: NDArray[np.float64], points: NDArray[np.float64]) -> float:
    return float(-(points * np.logaddexp(0, strength[None, :] - strength[:, None])).sum())


def _curvature(strength: NDArray[np.float64], games: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the negative Hessian [P, P], plus 1 / P everywhere, which fixes the undetermined mean at 0."""
    expected = _expected(strength)
    weight = games * expected * expected.T
    return np.asarray(np.diag(weight.sum(axis=1)) - weight + 1 / len(strength))
