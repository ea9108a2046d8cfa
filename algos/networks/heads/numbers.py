"""Numbers of a Box: their bounds, and what all heads of numbers share."""

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
    """Numbers of a Box of floats."""

    family: ClassVar[str]  # the distribution whose most likely numbers come of outputs in the same way
    needs_bounds: ClassVar[bool] = False
    learns_log_std: ClassVar[bool] = False  # log standard deviations are learned beside the network

    @classmethod
    def of(cls: type[AnyNumbers], space: spaces.Box, path: Path = ()) -> AnyNumbers:
        """Return the head of a Box.

        Raises:
            ConfigError: it needs bounds, and has none.
        """
        at = f" at {dotted(path)}" if path else ""
        lacks = f"continuous_distribution={cls.family} needs bounds, which the action space{at} {space} lacks"
        remedy = "use continuous_distribution=gaussian, or wrap the environment"
        require(not cls.needs_bounds or has_width(space), f"{lacks}; {remedy}")
        low, high = tuple(map(float, space.low.ravel())), tuple(map(float, space.high.ravel()))
        return cls(space.shape, low, high, str(space.dtype), path)

    @classmethod
    def for_replay(cls: type[AnyNumbers], space: gymnasium.Space, algorithm: str) -> AnyNumbers:
        """Return the head of an off-policy actor, of one array of numbers between bounds.

        Raises:
            ConfigError: the action space is none.
        """
        bounded = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and has_width(space)
        others = "algo=dqn and algo=sac take one choice, algo=ppo actions of every kind"
        wanted = f"algo={algorithm} takes one Box of floats between finite bounds, less than 3.4e38 apart"
        require(bounded, f"{wanted}, not {space}; {others}")
        assert isinstance(space, spaces.Box)
        return cls.of(space)

    @property
    def width(self) -> int:
        return self.components

    @property
    def num_log_std(self) -> int:
        return self.components if self.learns_log_std else 0

    @property
    def dense_components(self) -> tuple[int, ...]:
        return (0,) * self.num_log_std

    @functools.cached_property
    def bounds(self) -> tuple[Floats, Floats, Floats]:
        """Lower bound, half the width and upper bound, each [K]."""
        with np.errstate(over="ignore"):  # of what has no bounds
            low, high = np.array(self.low, np.float32), np.array(self.high, np.float32)
            return low, np.float32(0.5) * (high - low), high

    @functools.cached_property
    def log_half(self) -> Floats:
        """Logarithm [K] of half the width between bounds; 0 where they are equal, and nothing has a density."""
        half = self.bounds[1]
        return fast_log(np.where(half > 0, half, np.float32(1)))

    def clip(self, action: Floats) -> NDArray[Any]:
        """Clip numbers [B, K] to the bounds, of which some may be infinite, and give them the environment's shape."""
        low, _, high = self.bounds
        clipped = np.minimum(np.maximum(action, low), high).astype(self.dtype, copy=False)
        if clipped.dtype == np.float64:  # whose bounds may be between two numbers of single precision
            clipped = np.clip(clipped, self.low, self.high)
        return clipped.reshape(-1, *self.shape)

    def scale(self, action: Floats) -> NDArray[Any]:
        """Map numbers [B, K] in [-1, 1] to the bounds; clipped, as rounding may step over them by one unit."""
        low, half, _ = self.bounds
        action = action + np.float32(1)
        action *= half
        action += low
        return self.clip(action)

    def clip_in_onnx(self, graph: Graph, out: str) -> str:
        """Add what `clip` does."""
        low, _, high = self.bounds
        return graph.clipped(out, low, high)

    def scale_in_onnx(self, graph: Graph, out: str) -> str:
        """Add what `scale` does."""
        low, half, _ = self.bounds
        shifted = graph.add("Add", out, graph.constant(1.0, np.float32))
        return self.clip_in_onnx(
            graph, graph.add("Add", graph.add("Mul", shifted, graph.constant(half)), graph.constant(low))
        )


def has_width(box: spaces.Box) -> bool:
    """Return whether all bounds of a Box are so far apart as single precision can tell."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(box.high.astype(np.float32) - box.low.astype(np.float32)).all())
