"""Optimizers of an evolution strategy: Adam, SGD with momentum, ClipUp.

Each is immutable: `step` returns the change of the parameters and the optimizer after it. A new optimizer is one class
and one entry of OPTIMIZERS.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
OptimizerName = Literal["adam", "sgd", "clipup"]

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam, as published
MOMENTUM = 0.9  # of SGD and ClipUp, as published for the latter
SPEED_RATIO = 2.0  # ClipUp's longest step over its learning rate, as its authors recommend


class Optimizer(Protocol):
    """Gradient ascent on parameters [P]."""

    @property
    def updates(self) -> int:
        """Number of steps so far."""
        ...

    def step(self, gradient: Floats, learning_rate: float) -> tuple[Floats, Self]:
        """Return the change [P] that one step makes, and the optimizer after it."""
        ...


@dataclass(frozen=True, eq=False)
class Adam:
    """Adam (Kingma & Ba 2015, arXiv:1412.6980)."""

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
    """Stochastic gradient ascent with momentum: the velocity is a sum of gradients that decays by MOMENTUM."""

    velocity: Floats  # [P]
    updates: int

    @classmethod
    def fresh(cls, size: int) -> "SGD":
        """Return SGD before its first step, for P = size parameters."""
        return cls(np.zeros(size), 0)

    def step(self, gradient: Floats, learning_rate: float) -> tuple[Floats, "SGD"]:
        """Return the change [P] that one step makes, and the optimizer after it."""
        velocity = MOMENTUM * self.velocity + gradient
        return learning_rate * velocity, SGD(velocity, self.updates + 1)


@dataclass(frozen=True, eq=False)
class ClipUp:
    """ClipUp (Toklu et al. 2020, arXiv:2008.02387): normalized gradients, and a velocity of bounded length."""

    velocity: Floats  # [P], the last step
    updates: int

    @classmethod
    def fresh(cls, size: int) -> "ClipUp":
        """Return ClipUp before its first step, for P = size parameters."""
        return cls(np.zeros(size), 0)

    def step(self, gradient: Floats, learning_rate: float) -> tuple[Floats, "ClipUp"]:
        """Return the change [P] that one step makes, at most twice `learning_rate` long, and the optimizer after it."""
        norm = _norm(gradient)
        direction = gradient / norm if norm else gradient
        velocity = MOMENTUM * self.velocity + learning_rate * direction
        speed, limit = _norm(velocity), SPEED_RATIO * learning_rate
        velocity = velocity * (limit / speed) if speed > limit else velocity
        return velocity, ClipUp(velocity, self.updates + 1)


OPTIMIZERS: Mapping[OptimizerName, Callable[[int], Optimizer]] = {
    "adam": Adam.fresh,
    "sgd": SGD.fresh,
    "clipup": ClipUp.fresh,
}


def state_of(optimizer: Optimizer) -> dict[str, Any]:
    """Return the arrays and the counter of an optimizer, from which `restore` makes it again."""
    return vars(optimizer).copy()


def restore(name: OptimizerName, state: Mapping[str, Any]) -> Optimizer:
    """Return the optimizer that `state_of` described."""
    return replace(OPTIMIZERS[name](0), **state)  # type: ignore[type-var]


def _norm(vector: Floats) -> float:
    # Not np.linalg.norm, a BLAS product whose last bits depend on the processor.
    return float(np.sqrt(np.sum(vector**2)))
