"""Action heads of all policies: distributions where actions are drawn, and plain maps of outputs; NumPy's half.

`algos.networks.actor_critic` has what gradients need. Actors on workers need no more than this: they start without
torch.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.errors import ConfigError

LOG_2PI = math.log(2 * math.pi)
Kind = Literal["choices", "gaussian", "bounded", "unbounded", "binary"]  # the last three are never drawn
NO_LOG_STD = np.zeros(0, np.float32)  # of what is not drawn


@dataclass(frozen=True)
class Head:
    """Which actions there are, and how the outputs of a network become actions.

    Actions inside are [B, K]: indices of choices, one for each component; unclipped Gaussian samples; or, where none is
    drawn, the outputs themselves, of which bounded ones lie in [-1, 1], and the signs of binary ones.
    """

    kind: Kind
    shape: tuple[int, ...]  # of one action, as the environment takes it
    sizes: tuple[int, ...]  # choices of each component; () where there are none
    low: tuple[float, ...]  # first choice of each component, or lower bound
    high: tuple[float, ...]  # upper bound of each component; () for choices
    dtype: str

    @classmethod
    def of(cls, space: gymnasium.Space, *, drawn: bool = True) -> "Head":
        """The head for an action space.

        Args:
            drawn: whether actions may be drawn from a distribution; if not, a number between bounds is the network's
                tanh scaled to them, and a bit is the sign of one output.

        Raises:
            ConfigError: the space is neither Discrete, MultiDiscrete, MultiBinary nor a float Box.
        """
        if isinstance(space, spaces.Discrete):
            return cls("choices", (), (int(space.n),), (float(space.start),), (), str(space.dtype))
        if isinstance(space, spaces.MultiDiscrete):
            sizes, start = tuple(map(int, space.nvec.ravel())), tuple(map(float, space.start.ravel()))
            return cls("choices", space.shape, sizes, start, (), str(space.dtype))
        if isinstance(space, spaces.MultiBinary):
            count = math.prod(space.shape)
            if not drawn:
                return cls("binary", space.shape, (), (0.0,) * count, (), str(space.dtype))
            return cls("choices", space.shape, (2,) * count, (0.0,) * count, (), str(space.dtype))
        if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            low, high = tuple(map(float, space.low.ravel())), tuple(map(float, space.high.ravel()))
            kind: Kind = "gaussian" if drawn else "bounded" if space.is_bounded() else "unbounded"
            return cls(kind, space.shape, (), low, high, str(space.dtype))
        allowed = "Discrete, MultiDiscrete, MultiBinary or a Box of floats"
        raise ConfigError(f"env: the action space {space} is not supported; allowed: {allowed}; wrap the environment")

    @property
    def width(self) -> int:
        """W, outputs the network must have."""
        return sum(self.sizes) or len(self.low)

    @property
    def components(self) -> int:
        """K, numbers in one action."""
        return len(self.low)

    @property
    def num_log_std(self) -> int:
        """Log standard deviations that are learned beside the network: W of a Gaussian, else 0."""
        return self.width if self.kind == "gaussian" else 0

    @property
    def inner_dtype(self) -> np.dtype[Any]:
        """Of actions inside."""
        return np.dtype(np.float32 if self.kind == "gaussian" else np.int64)

    @property
    def compact_dtype(self) -> np.dtype[Any]:
        """The smallest that holds every action inside."""
        return self.inner_dtype if self.kind == "gaussian" else np.min_scalar_type(max(self.sizes) - 1)

    def draw(self, generator: np.random.Generator, lead: tuple[int, ...]) -> NDArray[np.float32]:
        """Noise [*lead, W] that `sample` turns into actions: Gumbel for choices, else standard normal."""
        if self.kind == "gaussian":
            return generator.standard_normal((*lead, self.width), dtype=np.float32)
        exponential = generator.standard_exponential((*lead, self.width), dtype=np.float32)
        return -np.log(np.maximum(exponential, np.finfo(np.float32).tiny))

    def __call__(self, out: NDArray[np.float32]) -> NDArray[Any]:
        """The most likely actions [B, *shape] of outputs [B, W], as the environment takes them."""
        return self.to_env(self.sample(out, NO_LOG_STD, None))

    def sample(
        self, out: NDArray[np.float32], log_std: NDArray[np.float32], noise: NDArray[np.float32] | None
    ) -> NDArray[Any]:
        """Actions [B, K] of outputs [B, W]; the most likely ones where there is no noise."""
        if self.kind == "binary":
            return out > 0
        if not self.sizes:
            return out if noise is None else out + np.exp(log_std) * noise
        scores = out if noise is None else out + noise
        if len(self.sizes) == 1:
            return scores.argmax(axis=1)[:, None]
        blocks = np.split(scores, np.cumsum(self.sizes)[:-1], axis=1)
        return np.stack([block.argmax(axis=1) for block in blocks], axis=1)

    def logprob(
        self, out: NDArray[np.float32], log_std: NDArray[np.float32], action: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Log-probability, or log-density, [B] of actions [B, K] under outputs [B, W]."""
        if self.kind == "gaussian":
            scaled = (action - out) / np.exp(log_std)
            return np.sum(-0.5 * scaled**2 - log_std - np.float32(0.5 * LOG_2PI), axis=1, dtype=np.float32)
        total = np.zeros(len(out), np.float32)
        for k, block in enumerate(np.split(out, np.cumsum(self.sizes)[:-1], axis=1)):
            top = block.max(axis=1)
            normalizer = top + np.log(np.exp(block - top[:, None]).sum(axis=1))
            total += block[np.arange(len(block)), action[:, k]] - normalizer
        return total

    def to_env(self, action: NDArray[Any]) -> NDArray:
        """Actions as the environment takes them, [B, *shape]: inside the bounds, or shifted to the first choice."""
        if self.kind in ("gaussian", "bounded"):
            low, half, high = self.bounds
            if self.kind == "bounded":
                action = action + np.float32(1)
                action *= half
                action += low
            # Also of what was bounded: rounding may step over a bound by one unit in the last place.
            action = np.minimum(np.maximum(action, low), high)
        elif self.sizes and any(self.low):
            action = action + np.array(self.low, np.int64)
        return action.reshape(-1, *self.shape).astype(self.dtype, copy=False)

    @functools.cached_property
    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Lower bound, half the width and upper bound, each [K]."""
        low, high = np.array(self.low, np.float32), np.array(self.high, np.float32)
        return low, np.float32(0.5) * (high - low), high
