"""Protocol of evolution strategies: sample members, and update the state from their returns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Noise = Callable[[int], NDArray[np.float32]]  # index -> standard normal vector [P], the same for each call
Metrics = dict[str, float]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Members of a normal distribution, which workers rebuild from the keys of their noise."""

    mean: NDArray[np.float32]  # [P]
    scale: np.float32 | NDArray[np.float32]  # standard deviation, of all parameters or [P]
    mirrored: bool  # members 2k and 2k + 1 are mean + scale * noise(k) and mean - scale * noise(k)

    def member(self, index: int, noise: Noise) -> NDArray[np.float32]:
        """Return the parameters [P] of a member."""
        if not self.mirrored:
            return self.mean + self.scale * noise(index)
        pair, negative = divmod(index, 2)
        return self.mean + (-self.scale if negative else self.scale) * noise(pair)


@dataclass(frozen=True, eq=False)
class Members:
    """Members given by their parameters."""

    parameters: NDArray[np.float32]  # [M, P]
    mirrored: ClassVar[bool] = False

    def member(self, index: int, noise: Noise) -> NDArray[np.float32]:
        """Return the parameters [P] of a member."""
        return self.parameters[index]


class Strategy(Protocol):
    """Evolution strategy, an immutable dataclass: its `settings`, and its state in arrays, numbers and optimizers."""

    @property
    def mean(self) -> Floats:
        """Parameters [P] that are evaluated."""

    def sample(self, noise: Noise) -> Gaussian | Members:
        """Return the members of the next generation."""

    def tell(self, returns: Floats, noise: Noise) -> tuple[Self, Metrics]:
        """Return the strategy after a generation, and metrics.

        Args:
            returns: [pairs, 2] of members 2k and 2k + 1; NaN for a lost member, both of a mirrored pair.
            noise: as in `sample`.
        """


class Recombines(Strategy, Protocol):
    """Strategy that adapts its distribution to a chosen number of parents, such as CMA-ES."""

    @property
    def axes(self) -> tuple[float, float]:
        """Smallest and largest standard deviation along an axis of the distribution."""

    def tell(self, returns: Floats, noise: Noise, parents: int | None = None) -> tuple[Self, Metrics]:
        """See `Strategy.tell`; `parents` is the number of best members to recombine, None: the better half."""


class StrategySettings(Protocol):
    """Settings of a strategy; conf/algo/strategy explains each."""

    def start(self, mean: Floats, population: int) -> Strategy:
        """Return the strategy before its first generation; raise ConfigError if a setting does not fit."""


def state_of(component: Any) -> dict[str, Any]:
    """Return the state of a strategy or an optimizer, for `restored`: arrays and plain data."""
    values = {one.name: getattr(component, one.name) for one in fields(component) if one.name != "settings"}
    return {name: state_of(value) if is_dataclass(value) else value for name, value in values.items()}


def restored(component: T, state: Mapping[str, Any]) -> T:
    """Return a strategy or an optimizer like `component` with a state from `state_of`."""
    values = {name: restored(getattr(component, name), v) if isinstance(v, Mapping) else v for name, v in state.items()}
    return replace(component, **values)  # type: ignore[type-var]


def sum_noise(weights: Floats, noise: Noise, size: int) -> Floats:
    """Return the sum [size] of noise vectors, each multiplied by its weight.

    They are added in index order, since the rounding of a matrix product may depend on its number of threads.
    """
    total = np.zeros(size)
    for index in np.flatnonzero(weights):
        total += weights[index] * noise(int(index))
    return total


def sum_pairs(weights: Floats, noise: Noise, size: int) -> tuple[Floats, Floats]:
    """Return the sums [size] of noise, and of its squares less 1, over mirrored members weighted by [pairs, 2]."""
    along, squares = np.zeros(size), np.zeros(size)
    for index in np.flatnonzero(weights.any(axis=1)):
        z, (up, down) = noise(int(index)).astype(np.float64), weights[index]
        along += (up - down) * z
        squares += (up + down) * (z**2 - 1)
    return along, squares


def metrics_of(
    sigma: float, update: Floats, mean: Floats, rate: float | None = None, gradient: Floats | None = None
) -> Metrics:
    """Return the metrics of an update of the mean [P], given the standard deviation that was sampled from."""
    size = np.sum(mean**2)
    return {
        "es/sigma": float(sigma),
        **({} if rate is None else {"es/learning_rate": rate}),
        **({} if gradient is None else {"es/gradient_norm": norm(gradient)}),
        "es/update_ratio": float(np.sqrt(np.sum(update**2) / size)) if size else 0.0,
    }


def norm(vector: Floats) -> float:
    """Return the Euclidean norm; np.linalg.norm is a BLAS product, whose last bits depend on the processor."""
    return float(np.sqrt(np.sum(vector**2)))
