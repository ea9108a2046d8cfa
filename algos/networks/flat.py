"""Policies over flat parameters: a small network, a population of them evaluated at once, and one alone."""

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.errors import ConfigError
from envs.native.networks import Network, Networks

Activation = Literal["tanh", "relu"]


class Policy(Protocol):
    """What acts. One row of `obs` is one environment."""

    parameters: NDArray[np.float32]  # [P]

    def act(self, obs: NDArray[Any], state: Any) -> tuple[NDArray[Any], dict[str, NDArray[Any]], Any]:
        """Map obs [B, ...] and the recurrent state to (actions [B, ...], extras, next state)."""
        ...


@dataclass(frozen=True)
class ActionHead:
    """Turns the network's outputs into actions of a space: argmax for choices, tanh scaled to the bounds otherwise."""

    kind: Literal["discrete", "multi_discrete", "binary", "bounded", "unbounded"]
    shape: tuple[int, ...]  # of one action
    sizes: tuple[int, ...]  # choices per component, where there are any
    low: tuple[float, ...]  # lower bound, or first choice, per component
    high: tuple[float, ...]
    dtype: str

    @classmethod
    def of(cls, space: gymnasium.Space) -> "ActionHead":
        """The head for an action space.

        Raises:
            ConfigError: the space is neither Discrete, MultiDiscrete, MultiBinary nor a float Box.
        """
        if isinstance(space, spaces.Discrete):
            return cls("discrete", (), (int(space.n),), (float(space.start),), (), str(space.dtype))
        if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
            start = tuple(float(first) for first in space.start)
            return cls("multi_discrete", space.shape, tuple(map(int, space.nvec)), start, (), str(space.dtype))
        if isinstance(space, spaces.MultiBinary):
            return cls("binary", space.shape, (), (), (), str(space.dtype))
        if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            low, high = tuple(map(float, space.low.ravel())), tuple(map(float, space.high.ravel()))
            return cls("bounded" if space.is_bounded() else "unbounded", space.shape, (), low, high, str(space.dtype))
        allowed = "Discrete, MultiDiscrete, MultiBinary or a Box of floats"
        raise ConfigError(f"env: the action space {space} is not supported; allowed: {allowed}; wrap the environment")

    @property
    def width(self) -> int:
        """Outputs the network must have."""
        return sum(self.sizes) or math.prod(self.shape)

    def __call__(self, out: NDArray[np.float32]) -> NDArray[Any]:
        """Map outputs [B, width], for bounded actions in [-1, 1], to actions [B, *shape]."""
        if self.kind == "discrete":
            return (out.argmax(axis=1) + int(self.low[0])).astype(self.dtype)
        if self.kind == "multi_discrete":
            blocks = np.split(out, np.cumsum(self.sizes)[:-1], axis=1)
            choice = [block.argmax(axis=1) + int(first) for block, first in zip(blocks, self.low, strict=True)]
            return np.stack(choice, axis=1).astype(self.dtype)
        if self.kind == "binary":
            return (out > 0).reshape(-1, *self.shape).astype(self.dtype)
        if self.kind == "bounded":
            low, half, high = self._bounds
            out = out + np.float32(1)
            out *= half
            out += low
            # Rounding may step over a bound by one unit in the last place.
            np.minimum(np.maximum(out, low, out=out), high, out=out)
        return out.reshape(-1, *self.shape).astype(self.dtype)

    @functools.cached_property
    def _bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Lower bound, half the width and upper bound, each [width]."""
        low, high = np.array(self.low, np.float32), np.array(self.high, np.float32)
        return low, np.float32(0.5) * (high - low), high


@dataclass(frozen=True)
class MLP:
    """A feed-forward network whose parameters are one flat vector: each layer's weights [in, out], then its bias."""

    sizes: tuple[int, ...]  # widths from observation to output
    activation: Activation  # between layers
    head: ActionHead

    @classmethod
    def for_spaces(
        cls, observation: gymnasium.Space, action: gymnasium.Space, hidden: tuple[int, ...], activation: Activation
    ) -> "MLP":
        """The network for an environment; observations are flattened.

        Raises:
            ConfigError: the action space is not supported, or a width is not positive.
        """
        head = ActionHead.of(action)
        if any(width < 1 for width in hidden):
            raise ConfigError(f"hidden={list(hidden)} must list positive widths; try [40, 40]")
        return cls((math.prod(observation.shape or ()), *hidden, head.width), activation, head)

    @functools.cached_property
    def network(self) -> Network:
        """What computes it."""
        bounds = (self.head.low, self.head.high) if self.head.kind == "bounded" else ((), ())
        return Network(self.sizes, self.activation, self.head.kind, *bounds)

    @property
    def num_parameters(self) -> int:
        """P, the length of the flat vector."""
        return self.network.num_parameters


class Population:
    """S networks of one architecture, each with parameters of its own, in one call.

    A network's output depends on its own row alone: the arithmetic of a row is the same for every S.
    """

    def __init__(self, mlp: MLP, slots: int) -> None:
        self.mlp = mlp
        self._networks = Networks(mlp.network, slots)

    def load(self, slot: int, parameters: NDArray[np.float32]) -> None:
        """Give network `slot` the flat parameters [P]."""
        self._networks.parameters[slot] = parameters

    def act(self, obs: NDArray[np.float32]) -> NDArray[Any]:
        """Map observations [S, O] to actions [S, ...], row by row through its own network."""
        return self.mlp.head(self.outputs(obs))

    def outputs(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Map observations [S, O] to what the head takes [S, W]."""
        return self._networks(obs)


@dataclass(frozen=True)
class Normalizer:
    """Observations to zero mean and unit deviation, clipped; frozen for as long as members are compared."""

    mean: NDArray[np.float32]  # [O]
    std: NDArray[np.float32]  # [O], positive
    clip: float  # in deviations

    def __call__(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Map [B, O] to [B, O]."""
        out = obs - self.mean
        out /= self.std
        # Half the time of np.clip on arrays this small.
        return np.minimum(np.maximum(out, -self.clip, out=out), self.clip, out=out)


class FlatPolicy:
    """One network alone, with its normalizer; keeps no state between calls."""

    def __init__(self, mlp: MLP, parameters: NDArray[np.float32], normalizer: Normalizer | None) -> None:
        self.parameters = parameters
        self.mlp = mlp
        self.normalizer = normalizer
        self._network = Population(mlp, 1)
        self._network.load(0, parameters)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.mlp, self.parameters, self.normalizer)

    def act(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[Any], dict[str, NDArray[Any]], Any]:
        """Map obs [B, ...] to actions [B, ...]."""
        out, state = self.outputs(obs, state)
        return self.mlp.head(out), {}, state

    def outputs(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[np.float32], Any]:
        """Map obs [B, ...] to what the head takes [B, W]; there is no state."""
        flat = obs.reshape(len(obs), -1).astype(np.float32)
        if self.normalizer is not None:
            flat = self.normalizer(flat)
        return np.concatenate([self._network.outputs(row[None]) for row in flat]), state
