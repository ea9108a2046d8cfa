"""Actions of a Dict or Tuple: a head for each leaf, all at once."""

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads.head import Floats, Head, LeafHead, Path, sum_terms
from paddock.envs.spaces.codecs import dotted
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.views import flatten

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Section:
    """Where one leaf's numbers lie in a head of several."""

    leaf: LeafHead
    outputs: slice  # of W
    action: slice  # of K
    log_std: slice  # of the log standard deviations
    noise: slice  # of the noise


@final
@dataclass(frozen=True)
class Composite(Head):
    """Actions of a Dict or Tuple: all its leaves at once, drawn independently of each other."""

    parts: tuple[LeafHead, ...]
    layout: Layout  # of the actions that the environment takes

    @property
    def leaves(self) -> tuple[LeafHead, ...]:
        return self.parts

    @functools.cached_property
    def sections(self) -> tuple[Section, ...]:
        """Where each leaf's numbers lie."""
        found, starts = [], (0, 0, 0, 0)
        for leaf in self.leaves:
            ends = tuple(map(operator.add, starts, (leaf.width, leaf.components, leaf.num_log_std, leaf.noise_width)))
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
    def learns_in_c(self) -> bool:
        return all(leaf.learns_in_c for leaf in self.leaves)

    @functools.cached_property
    def inner_dtype(self) -> np.dtype[Any]:
        whole = all(leaf.inner_dtype == np.int64 for leaf in self.leaves)
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

    def sample_noise(self, generator: np.random.Generator, lead: tuple[int, ...]) -> Floats:
        return np.concatenate([leaf.sample_noise(generator, lead) for leaf in self.leaves], axis=-1)

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        action = np.empty((len(out), self.components), self.inner_dtype)
        for at in self.sections:
            own, drawn = at.leaf.activate(out[:, at.outputs]), None if noise is None else noise[:, at.noise]
            action[:, at.action] = at.leaf.sample(own, log_std[at.log_std], drawn)
        return action

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        total = np.zeros(len(out), np.float32)
        for at in self.sections:
            total += at.leaf.logprob(out[:, at.outputs], log_std[at.log_std], self.part(at, action))
        return total

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        logprobs, entropies = [], []
        for at in self.sections:
            part = action[:, at.action]
            whole = part.long() if at.leaf.sizes else part
            logprob, entropy = at.leaf.logprob_and_entropy(out[:, at.outputs], log_std[at.log_std], whole)
            logprobs.append(logprob)
            entropies.append(entropy)
        return sum_terms(logprobs), sum_terms(entropies)

    def log_slope(self, action: Floats) -> Floats:
        total = np.zeros(len(action), np.float32)
        for at in self.sections:
            total += at.leaf.log_slope(action[:, at.action])
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
