"""Optimizers of evolution strategies, immutable: Adam, SGD with momentum, ClipUp; OPTIMIZERS registers them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, Self

import numpy as np

from paddock.algos.evolution.strategies.protocol import Floats, norm

OptimizerName = Literal["adam", "sgd", "clipup"]

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's published values
MOMENTUM = 0.9  # of SGD and ClipUp; the published value of ClipUp
SPEED_RATIO = 2.0  # ClipUp's maximum speed over its learning rate, as recommended by its authors


class Optimizer(Protocol):
    """Gradient-ascent optimizer of parameters [P]."""

    @property
    def updates(self) -> int:
        """Number of steps so far."""

    def step(self, gradient: Floats, learning_rate: float) -> tuple[Floats, Self]:
        """Return the parameter update [P] and the next optimizer."""


@dataclass(frozen=True, eq=False)
class Adam:
    """Adam optimizer (Kingma & Ba 2015, arXiv:1412.6980)."""

    momentum: Floats  # [P], first moment
    variance: Floats  # [P], second moment
    updates: int

    @classmethod
    def fresh(cls, size: int) -> "Adam":
        """Return Adam before its first step, for P = size parameters."""
        return cls(np.zeros(size), np.zeros(size), 0)

    def step(self, gradient: Floats, learning_rate: float) -> tuple[Floats, "Adam"]:
        """Return the change [P] that one step makes, and the optimizer after it."""
        updates = self.updates + 1
        momentum = BETA1 * self.momentum + (1 - BETA1) * gradient
        variance = BETA2 * self.variance + (1 - BETA2) * gradient**2
        corrected = np.sqrt(1 - BETA2**updates) / (1 - BETA1**updates)
        return learning_rate * corrected * momentum / (np.sqrt(variance) + EPSILON), Adam(momentum, variance, updates)


@dataclass(frozen=True, eq=False)
class SGD:
    """Stochastic gradient ascent with momentum."""

    velocity: Floats  # [P]
    updates: int

    def step(self, gradient: Floats, learning_rate: float) -> tuple[Floats, "SGD"]:
        """Return the change [P] that one step makes, and the optimizer after it."""
        velocity = MOMENTUM * self.velocity + gradient
        return learning_rate * velocity, SGD(velocity, self.updates + 1)


@dataclass(frozen=True, eq=False)
class ClipUp:
    """ClipUp optimizer (Toklu et al. 2020, arXiv:2008.02387): normalized gradients and a clipped velocity."""

    velocity: Floats  # [P], the last update
    updates: int

    def step(self, gradient: Floats, learning_rate: float) -> tuple[Floats, "ClipUp"]:
        """Return the parameter update [P], of norm at most 2 `learning_rate`, and the next optimizer."""
        length = norm(gradient)
        direction = gradient / length if length else gradient
        velocity = MOMENTUM * self.velocity + learning_rate * direction
        speed, limit = norm(velocity), SPEED_RATIO * learning_rate
        velocity = velocity * (limit / speed) if speed > limit else velocity
        return velocity, ClipUp(velocity, self.updates + 1)


OPTIMIZERS: Mapping[OptimizerName, Callable[[int], Optimizer]] = {
    "adam": Adam.fresh,
    "sgd": lambda size: SGD(np.zeros(size), 0),
    "clipup": lambda size: ClipUp(np.zeros(size), 0),
}
