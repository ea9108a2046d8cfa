"""Actions of several kinds at once, and the head that an action space has."""

import functools
import operator
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.algos.networks.heads.head import ALLOWED, Floats, Gaussian, Head, LeafHead, Path
from paddock.envs.errors import require
from paddock.envs.native.functions import quick_tangent
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.parts import dotted
from paddock.envs.spaces.views import flatten


def make_head(
    space: gymnasium.Space, *, drawn: bool = True, gaussian: Gaussian = "clipped", masked: Collection[Path] = ()
) -> Head:
    """Return the head for an action space.

    Args:
        drawn: whether actions may be drawn from a distribution; if not, a number between bounds is the network's
            tanh scaled to them, and a bit is the sign of one output.
        gaussian: of numbers that are drawn: clipped to their bounds as the environment takes them, or squashed into
            them by tanh, which has a density of its own.
        masked: paths of the leaves that an action mask is about: bits there have an output for each value, drawn or
            not, so that a mask has as many bits in every algorithm.

    Raises:
        ConfigError: a part of the space is none that is allowed, or squashed numbers have no bounds.
    """
    leaves = tuple(
        [
            LeafHead.for_leaf(leaf, path, drawn, gaussian, chosen=drawn or path in masked)
            for path, leaf in _walk(space, ())
        ]
    )
    require(bool(leaves), f"env: the action space {space} has no parts; allowed: {ALLOWED}; wrap the environment")
    if not leaves[0].path:
        return leaves[0]
    return MixedHead(leaves, Layout.of(space, {}, ()))


@dataclass(frozen=True)
class Section:
    """Where one leaf's numbers lie in a head of several."""

    leaf: LeafHead
    outputs: slice  # of W
    action: slice  # of K
    log_std: slice  # of the log standard deviations


@final
@dataclass(frozen=True)
class MixedHead(Head):
    """Actions of a Dict or Tuple: all its leaves at once, drawn independently of each other."""

    parts: tuple[LeafHead, ...]
    layout: Layout  # of the actions that the environment takes

    @property
    def leaves(self) -> tuple[LeafHead, ...]:
        return self.parts

    @functools.cached_property
    def sections(self) -> tuple[Section, ...]:
        """Where each leaf's numbers lie."""
        found, starts = [], (0, 0, 0)
        for leaf in self.leaves:
            ends = tuple(map(operator.add, starts, (leaf.width, leaf.components, leaf.num_log_std)))
            found.append(Section(leaf, *map(slice, starts, ends)))
            starts = ends
        return tuple(found)

    @functools.cached_property
    def width(self) -> int:
        return sum(leaf.width for leaf in self.leaves)

    @functools.cached_property
    def components(self) -> int:
        return sum(leaf.components for leaf in self.leaves)

    @functools.cached_property
    def num_log_std(self) -> int:
        return sum(leaf.num_log_std for leaf in self.leaves)

    @functools.cached_property
    def inner_dtype(self) -> np.dtype[Any]:
        whole = all(leaf.kind in ("choices", "binary") for leaf in self.leaves)
        return np.dtype(np.int64 if whole else np.float32)

    @property
    def compact_dtype(self) -> np.dtype[Any]:
        if self.inner_dtype == np.float32:
            return self.inner_dtype
        return np.min_scalar_type(max(max(leaf.sizes, default=2) for leaf in self.leaves) - 1)

    @functools.cached_property
    def columns(self) -> Mapping[Path, slice]:
        return {at.leaf.path: at.outputs for at in self.sections if at.leaf.sizes}

    def describe(self) -> str:
        return ", ".join(f"{dotted(leaf.path)}: {leaf.kind}" for leaf in self.leaves)

    def draw(self, generator: np.random.Generator, lead: tuple[int, ...]) -> Floats:
        return np.concatenate([leaf.draw(generator, lead) for leaf in self.leaves], axis=-1)

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        action = np.empty((len(out), self.components), self.inner_dtype)
        for at in self.sections:
            own = out[:, at.outputs]
            if at.leaf.kind == "bounded":  # a network gives it as it is where it has several kinds of outputs
                own = quick_tangent(own)
            drawn = None if noise is None else noise[:, at.outputs]
            action[:, at.action] = at.leaf.sample(own, log_std[at.log_std], drawn)
        return action

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        total = np.zeros(len(out), np.float32)
        for at in self.sections:
            total += at.leaf.logprob(out[:, at.outputs], log_std[at.log_std], self.part(at, action))
        return total

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        rows = self.layout.zeros(len(action))
        for at, view in zip(self.sections, flatten(self.layout.fields(rows)), strict=True):
            view[...] = at.leaf.to_env(self.part(at, action))
        return rows

    def masked(self, out: Floats, legal: NDArray[np.bool_]) -> Floats:
        return np.concatenate(
            [at.leaf.masked(out[:, at.outputs], legal[:, at.outputs]) for at in self.sections], axis=1
        )

    def part(self, at: Section, action: NDArray[Any]) -> NDArray[Any]:
        """One leaf's part of actions [B, K]; choices as whole numbers again."""
        part = action[:, at.action]
        return part.astype(np.int64, copy=False) if at.leaf.sizes else part


def _walk(space: gymnasium.Space, path: Path) -> Iterator[tuple[Path, gymnasium.Space]]:
    """Every space in a space that is no Dict or Tuple, with its path, in the order of `Layout`."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from _walk(part, (*path, key))
    else:
        yield path, space
