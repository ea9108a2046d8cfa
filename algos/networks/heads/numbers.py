"""Base of the heads for continuous actions (Box)."""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.algos.networks.heads.head import Floats, Graph, LeafHead, Path
from paddock.envs.errors import require
from paddock.envs.native.functions import fast_log
from paddock.envs.spaces.codecs import dotted

AnyNumbers = TypeVar("AnyNumbers", bound="Numbers")


@dataclass(frozen=True)
class Numbers(LeafHead):
    """Head of a Box of floats."""

    family: ClassVar[str]  # distribution with the same map from outputs to most likely actions
    needs_bounds: ClassVar[bool] = False
    learns_log_std: ClassVar[bool] = False  # log standard deviations are separate parameters

    @classmethod
    def of(cls: type[AnyNumbers], space: spaces.Box, path: Path = ()) -> AnyNumbers:
        """Return the head of a Box; raise ConfigError if the distribution needs bounds that are missing."""
        at = f" at {dotted(path)}" if path else ""
        lacks = f"continuous_distribution={cls.family} needs bounds, which the action space{at} {space} lacks"
        remedy = "use continuous_distribution=gaussian, or wrap the environment"
        require(not cls.needs_bounds or has_width(space), f"{lacks}; {remedy}")
        low, high = tuple(map(float, space.low.ravel())), tuple(map(float, space.high.ravel()))
        return cls(space.shape, low, high, str(space.dtype), path)

    @classmethod
    def for_replay(cls: type[AnyNumbers], space: gymnasium.Space) -> AnyNumbers:
        """Return the head of an off-policy actor; raise ConfigError unless the space is a bounded Box of floats."""
        bounded = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and has_width(space)
        others = "algo=dqn and algo=sac support Discrete, algo=ppo all action spaces"
        require(bounded, f"the algorithm needs a bounded Box of floats, not {space}; {others}")
        assert isinstance(space, spaces.Box)
        return cls.of(space)

    @property
    def width(self) -> int:
        """Number of network outputs W."""
        return self.components

    @property
    def num_log_std(self) -> int:
        """Number of learned log standard deviations."""
        return self.components if self.learns_log_std else 0

    @property
    def dense_components(self) -> tuple[int, ...]:
        """Zeros, one per Gaussian component."""
        return (0,) * self.num_log_std

    @functools.cached_property
    def bounds(self) -> tuple[Floats, Floats, Floats]:
        """Lower bound, half width and upper bound, each [K]."""
        with np.errstate(over="ignore"):  # infinite bounds
            low, high = np.array(self.low, np.float32), np.array(self.high, np.float32)
            return low, np.float32(0.5) * (high - low), high

    @functools.cached_property
    def log_half(self) -> Floats:
        """Logarithm [K] of the half width; 0 where the bounds are equal."""
        half = self.bounds[1]
        return fast_log(np.where(half > 0, half, np.float32(1)))

    def clip(self, action: Floats) -> NDArray[Any]:
        """Clip actions [B, K] to the bounds, and reshape them for the environment."""
        low, _, high = self.bounds
        clipped = np.minimum(np.maximum(action, low), high).astype(self.dtype, copy=False)
        if clipped.dtype == np.float64:  # bounds may lie between two float32 values
            clipped = np.clip(clipped, self.low, self.high)
        return clipped.reshape(-1, *self.shape)

    def scale(self, action: Floats) -> NDArray[Any]:
        """Scale actions [B, K] from [-1, 1] to the bounds; clipped, since rounding may exceed them."""
        low, half, _ = self.bounds
        action = action + np.float32(1)
        action *= half
        action += low
        return self.clip(action)

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        """Scale actions to the bounds."""
        return self.scale(action)

    def to_onnx(self, graph: Graph, out: str) -> str:
        """Add tanh and scaling to the graph."""
        return self.scale_in_onnx(graph, graph.add("Tanh", out))

    def clip_in_onnx(self, graph: Graph, out: str) -> str:
        """Add `clip` to the graph."""
        low, _, high = self.bounds
        return graph.clipped(out, low, high)

    def scale_in_onnx(self, graph: Graph, out: str) -> str:
        """Add `scale` to the graph."""
        low, half, _ = self.bounds
        shifted = graph.add("Add", out, graph.constant(1.0, np.float32))
        return self.clip_in_onnx(
            graph, graph.add("Add", graph.add("Mul", shifted, graph.constant(half)), graph.constant(low))
        )


def has_width(box: spaces.Box) -> bool:
    """Return True if the widths of all bounds are finite in float32."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(box.high.astype(np.float32) - box.low.astype(np.float32)).all())
