"""Action heads: what they promise, and those of one kind: distributions where actions are drawn, else plain maps."""

import abc
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError, require
from paddock.envs.native.functions import log_tangent_slope, quick_exp, quick_log, quick_tangent
from paddock.envs.spaces.legal import MASK
from paddock.envs.spaces.parts import dotted
from paddock.envs.vector.contract import EnvError

Floats = NDArray[np.float32]
Path = tuple[str | int, ...]
Gaussian = Literal["clipped", "squashed"]  # how what is drawn comes between bounds

NO_LOG_STD = np.zeros(0, np.float32)  # of what is not drawn
ALLOWED = "Dict, Tuple, Discrete, MultiDiscrete, MultiBinary or a Box of floats"
# The last three are never drawn. "soft" and "tanh" have no log standard deviations beside the network: in the first
# these are outputs, behind the means; in the second noise comes onto the tanh of outputs.
Kind = Literal["choices", "gaussian", "squashed", "soft", "tanh", "bounded", "unbounded", "binary"]

LOG_2, LOG_2PI = math.log(2), math.log(2 * math.pi)
LOG_STD = -20.0, 2.0  # between which a log standard deviation that is an output is clipped
LOWEST = float(np.finfo(np.float32).min)  # the score of a choice that may not be taken: its probability is exactly 0


class Head(abc.ABC):
    """Which actions there are, and how the outputs [B, W] of a network become actions.

    Actions inside are [B, K]: indices of choices; Gaussian samples, before they are clipped or squashed; numbers in
    [-1, 1], where they are soft or tanh; or, where none is drawn, the outputs themselves, of which bounded ones lie in
    [-1, 1], and the signs of binary ones. They are int64 if all are choices, else float32, which is exact for choices
    below 2^24.
    """

    @property
    @abc.abstractmethod
    def leaves(self) -> "tuple[LeafHead, ...]":
        """The parts of an action, each of one kind, in the order of their outputs."""

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """W, outputs the network must have."""

    @property
    @abc.abstractmethod
    def components(self) -> int:
        """K, numbers in one action."""

    @property
    @abc.abstractmethod
    def num_log_std(self) -> int:
        """Log standard deviations that are learned beside the network: one for each output of a Gaussian."""

    @property
    @abc.abstractmethod
    def inner_dtype(self) -> np.dtype[Any]:
        """Of actions inside."""

    @property
    @abc.abstractmethod
    def compact_dtype(self) -> np.dtype[Any]:
        """The smallest that holds every action inside."""

    @property
    @abc.abstractmethod
    def columns(self) -> Mapping[Path, slice]:
        """By the path of each leaf of choices in the action space, its outputs: an action mask has as many bits."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Name the kinds of actions, for `dry_run=true`."""

    @abc.abstractmethod
    def draw(self, generator: np.random.Generator, lead: tuple[int, ...]) -> Floats:
        """Noise [*lead, W] that `sample` turns into actions: Gumbel for choices, else standard normal [*lead, K]."""

    @abc.abstractmethod
    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Actions [B, K] of outputs [B, W]; the most likely ones where there is no noise."""

    @abc.abstractmethod
    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        """Log-probability, or log-density, [B] of actions [B, K] under outputs [B, W].

        Of squashed numbers it is the density of what the environment gets.
        """

    @abc.abstractmethod
    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        """Actions as `VectorEnv.send` takes them: inside the bounds, or shifted to the first choice.

        Returns:
            Arrays [B, *shape]; of a Dict or Tuple rows [B] of its `Layout`.
        """

    @abc.abstractmethod
    def masked(self, out: Floats, legal: NDArray[np.bool_]) -> Floats:
        """Return outputs [B, W] of which choices that may not be taken have probability 0, and the others theirs.

        Args:
            legal: [B, W], true for choices that may be taken; what is no choice is left as it is.

        Raises:
            EnvError: some choice has nothing legal.
        """

    def __call__(self, out: Floats) -> NDArray[Any]:
        """The most likely actions of outputs [B, W], as the environment takes them."""
        return self.to_env(self.sample(out, NO_LOG_STD, None))


@final
@dataclass(frozen=True)
class LeafHead(Head):
    """Actions of one kind: a space that is no Dict or Tuple, or one leaf of such."""

    kind: Kind
    shape: tuple[int, ...]  # of one action, as the environment takes it
    sizes: tuple[int, ...]  # choices of each component; () where there are none
    low: tuple[float, ...]  # first choice of each component, or lower bound
    high: tuple[float, ...]  # upper bound of each component; () for choices
    dtype: str
    path: Path  # where it lies in the action space; () alone

    @classmethod
    def for_leaf(
        cls, space: gymnasium.Space, path: Path, drawn: bool, gaussian: Gaussian, *, chosen: bool
    ) -> "LeafHead":
        """The head for one leaf of an action space; see `make_head`.

        Args:
            chosen: whether bits are choices between two outputs, and not signs.
        """
        if isinstance(space, spaces.Discrete):
            return cls("choices", (), (int(space.n),), (float(space.start),), (), str(space.dtype), path)
        if isinstance(space, spaces.MultiDiscrete):
            sizes, start = tuple(map(int, space.nvec.ravel())), tuple(map(float, space.start.ravel()))
            return cls("choices", space.shape, sizes, start, (), str(space.dtype), path)
        if isinstance(space, spaces.MultiBinary):
            count = math.prod(space.shape)
            if not chosen:
                return cls("binary", space.shape, (), (0.0,) * count, (), str(space.dtype), path)
            return cls("choices", space.shape, (2,) * count, (0.0,) * count, (), str(space.dtype), path)
        at = f" at {dotted(path)}" if path else ""
        if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            low, high = tuple(map(float, space.low.ravel())), tuple(map(float, space.high.ravel()))
            kind: Kind = "gaussian" if drawn else "bounded" if _has_width(space) else "unbounded"
            if drawn and gaussian == "squashed":
                bounds = f"gaussian=squashed needs bounds, which the action space{at} {space} lacks"
                require(_has_width(space), f"{bounds}; use gaussian=clipped, or wrap the environment")
                kind = "squashed"
            return cls(kind, space.shape, (), low, high, str(space.dtype), path)
        raise ConfigError(
            f"env: the action space{at} {space} is not supported; allowed: {ALLOWED}; wrap the environment"
        )

    @classmethod
    def for_replay(cls, space: gymnasium.Space, kind: Literal["soft", "tanh"], algorithm: str) -> "LeafHead":
        """The head of an off-policy actor, of one array of numbers between bounds.

        Raises:
            ConfigError: the action space is none.
        """
        bounded = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and _has_width(space)
        others = "algo=dqn and algo=sac take one choice, algo=ppo actions of every kind"
        wanted = f"algo={algorithm} takes one Box of floats between finite bounds, less than 3.4e38 apart"
        require(bounded, f"{wanted}, not {space}; {others}")
        return replace(cls.for_leaf(space, (), True, "squashed", chosen=True), kind=kind)

    @property
    def leaves(self) -> "tuple[LeafHead, ...]":
        return (self,)

    @property
    def width(self) -> int:
        return sum(self.sizes) or len(self.low) * (2 if self.kind == "soft" else 1)

    @property
    def components(self) -> int:
        return len(self.low)

    @property
    def is_gaussian(self) -> bool:
        """Whether actions are drawn from a Gaussian."""
        return self.kind in ("gaussian", "squashed")

    @property
    def num_log_std(self) -> int:
        return self.width if self.is_gaussian else 0

    @property
    def inner_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64 if self.kind in ("choices", "binary") else np.float32)

    @property
    def compact_dtype(self) -> np.dtype[Any]:
        return np.min_scalar_type(max(self.sizes) - 1) if self.sizes else self.inner_dtype

    @property
    def columns(self) -> Mapping[Path, slice]:
        return {self.path: slice(0, self.width)} if self.sizes else {}

    def describe(self) -> str:
        return self.kind

    def draw(self, generator: np.random.Generator, lead: tuple[int, ...]) -> Floats:
        if not self.sizes:
            return generator.standard_normal((*lead, self.components), dtype=np.float32)
        exponential = generator.standard_exponential((*lead, self.width), dtype=np.float32)
        noise = quick_log(np.maximum(exponential, np.finfo(np.float32).tiny, out=exponential))
        return np.negative(noise, out=noise)

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        if self.kind == "binary":
            return out > 0
        if self.kind in ("soft", "tanh"):
            return self._between(out, noise)
        if not self.sizes:
            return out if noise is None else out + quick_exp(log_std) * noise
        scores = out if noise is None else out + noise
        if len(self.sizes) == 1:
            return scores.argmax(axis=1)[:, None]
        blocks = np.split(scores, np.cumsum(self.sizes)[:-1], axis=1)
        return np.stack([block.argmax(axis=1) for block in blocks], axis=1)

    def _between(self, out: Floats, noise: Floats | None) -> Floats:
        """Soft and tanh actions of outputs [B, W], in [-1, 1]."""
        one = np.float32(1)
        if self.kind == "tanh":
            action = quick_tangent(out)
            return action if noise is None else np.minimum(np.maximum(action + noise, -one), one)
        mean, log_std = out[:, : out.shape[1] // 2], out[:, out.shape[1] // 2 :]
        if noise is None:
            return quick_tangent(mean)
        low, high = map(np.float32, LOG_STD)
        return quick_tangent(mean + quick_exp(np.minimum(np.maximum(log_std, low), high)) * noise)

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        if self.kind in ("soft", "tanh"):  # whose algorithms ask for that of actions they draw themselves
            return np.zeros(len(out), np.float32)
        if self.is_gaussian:
            scaled = (action - out) * quick_exp(-log_std)
            terms = (scaled * scaled) * np.float32(-0.5) - log_std - np.float32(0.5 * LOG_2PI)
            logprob = sum_columns(terms)
            return logprob - self.log_slope(action) if self.kind == "squashed" else logprob
        total = np.zeros(len(out), np.float32)
        for k, block in enumerate(np.split(out, np.cumsum(self.sizes)[:-1], axis=1)):
            top = block.max(axis=1)
            shares = quick_exp(block - top[:, None])
            normalizer = shares[:, 0].copy()
            for share in shares.T[1:]:
                normalizer += share
            total += (block[np.arange(len(block)), action[:, k]] - top) - quick_log(normalizer)
        return total

    def log_slope(self, action: Floats) -> Floats:
        """Return by how much squashing spreads samples [B, K] apart: the logarithm [B] of its Jacobian determinant."""
        return sum_columns(log_tangent_slope(action) + self.log_half)

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        if self.high:
            low, half, high = self.bounds
            if self.kind not in ("gaussian", "unbounded"):
                action = (quick_tangent(action) if self.kind == "squashed" else action) + np.float32(1)
                action *= half
                action += low
            # Also of what was bounded: rounding may step over a bound by one unit in the last place. Of what is called
            # unbounded a part may have bounds, or a side.
            action = np.minimum(np.maximum(action, low), high)
        elif self.sizes and any(self.low):
            action = action + np.array(self.low, np.int64)
        return action.reshape(-1, *self.shape).astype(self.dtype, copy=False)

    def masked(self, out: Floats, legal: NDArray[np.bool_]) -> Floats:
        if not self.sizes:
            return out
        possible = np.logical_or.reduceat(legal, np.cumsum((0, *self.sizes[:-1])), axis=1)
        if not possible.all():
            row, k = np.argwhere(~possible)[0]
            which = f", component {k}," if len(self.sizes) > 1 else ""
            raise EnvError(
                f"{dotted((MASK, *self.path))}{which} allows none of {self.sizes[k]} choices in row {row}; an "
                "environment must leave at least one as long as its episode lasts"
            )
        return np.where(legal, out, np.float32(LOWEST))

    @functools.cached_property
    def bounds(self) -> tuple[Floats, Floats, Floats]:
        """Lower bound, half the width and upper bound, each [K]."""
        with np.errstate(over="ignore"):  # of what is called unbounded
            low, high = np.array(self.low, np.float32), np.array(self.high, np.float32)
            return low, np.float32(0.5) * (high - low), high

    @functools.cached_property
    def log_half(self) -> Floats:
        """Logarithm [K] of half the width between bounds; 0 where they are equal, and nothing has a density."""
        half = self.bounds[1]
        return quick_log(np.where(half > 0, half, np.float32(1)))


def _has_width(box: spaces.Box) -> bool:
    """Whether all bounds of a Box are so far apart as single precision can tell."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(box.high.astype(np.float32) - box.low.astype(np.float32)).all())


def sum_columns(terms: Floats) -> Floats:
    """Sums [B] of rows [B, K], from the first to the last: NumPy's own would depend on how rows lie in memory."""
    total = np.zeros(len(terms), np.float32)
    for column in terms.T:
        total += column
    return total
