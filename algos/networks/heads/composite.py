"""Head of Dict and Tuple action spaces."""

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads.head import NO_LOG_STD, Floats, LeafHead, Path, sum_terms
from paddock.envs.spaces.codecs import dotted
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.views import flatten

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Section:
    """Slices of one leaf in a composite head."""

    leaf: LeafHead
    outputs: slice  # of [B, W]
    action: slice  # of [B, K]
    log_std: slice
    noise: slice


@final
@dataclass(frozen=True)
class Composite:
    """Independent heads for the leaves of a Dict or Tuple action space; its members are those of `LeafHead`."""

    leaves: tuple[LeafHead, ...]  # in the order of their outputs
    layout: Layout  # of the environment's actions

    @functools.cached_property
    def sections(self) -> tuple[Section, ...]:
        """Slices of each leaf."""
        found, starts = [], (0, 0, 0, 0)
        for leaf in self.leaves:
            ends = tuple(map(operator.add, starts, (leaf.width, leaf.components, leaf.num_log_std, leaf.noise_width)))
            found.append(Section(leaf, *map(slice, starts, ends)))
            starts = ends
        return tuple(found)

    @functools.cached_property
    def width(self) -> int:
        """Number of network outputs W."""
        return sum(leaf.width for leaf in self.leaves)

    @functools.cached_property
    def components(self) -> int:
        """Number of action components K."""
        return sum(leaf.components for leaf in self.leaves)

    @functools.cached_property
    def num_log_std(self) -> int:
        """Number of learned log standard deviations."""
        return sum(leaf.num_log_std for leaf in self.leaves)

    @functools.cached_property
    def learns_in_c(self) -> bool:
        """True if all leaves can be trained in C."""
        return all(leaf.learns_in_c for leaf in self.leaves)

    @functools.cached_property
    def inner_dtype(self) -> np.dtype[Any]:
        """Dtype of unscaled actions."""
        whole = all(leaf.inner_dtype == np.int64 for leaf in self.leaves)
        return np.dtype(np.int64 if whole else np.float32)

    @property
    def compact_dtype(self) -> np.dtype[Any]:
        """Smallest dtype that holds every unscaled action."""
        if self.inner_dtype == np.float32:
            return self.inner_dtype
        return np.min_scalar_type(max(max(leaf.sizes, default=2) for leaf in self.leaves) - 1)

    @functools.cached_property
    def columns(self) -> Mapping[Path, slice]:
        """Output columns of each discrete leaf, by path."""
        return {at.leaf.path: at.outputs for at in self.sections if at.leaf.sizes}

    def describe(self) -> str:
        """Name the kinds of actions."""
        return ", ".join(f"{dotted(leaf.path)}: {leaf.kind}" for leaf in self.leaves)

    def sample_noise(self, generator: np.random.Generator, lead: tuple[int, ...]) -> Floats:
        """Return noise [*lead, ...] for `sample`."""
        return np.concatenate([leaf.sample_noise(generator, lead) for leaf in self.leaves], axis=-1)

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Return actions [B, K] for outputs [B, W]; the most likely ones without noise."""
        action = np.empty((len(out), self.components), self.inner_dtype)
        for at in self.sections:
            leaf_out, leaf_noise = at.leaf.activate(out[:, at.outputs]), None if noise is None else noise[:, at.noise]
            action[:, at.action] = at.leaf.sample(leaf_out, log_std[at.log_std], leaf_noise)
        return action

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        """Return log-probabilities [B] of actions [B, K]."""
        total = np.zeros(len(out), np.float32)
        for at in self.sections:
            total += at.leaf.logprob(out[:, at.outputs], log_std[at.log_std], self.part(at, action))
        return total

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        """Return log-probabilities and entropies [B], in torch."""
        logprobs, entropies = [], []
        for at in self.sections:
            section = action[:, at.action].long() if at.leaf.sizes else action[:, at.action]
            logprob, entropy = at.leaf.logprob_and_entropy(out[:, at.outputs], log_std[at.log_std], section)
            logprobs.append(logprob)
            entropies.append(entropy)
        return sum_terms(logprobs), sum_terms(entropies)

    def log_slope(self, action: Floats) -> Floats:
        """Return the log-derivative [B] of scaling."""
        total = np.zeros(len(action), np.float32)
        for at in self.sections:
            total += at.leaf.log_slope(action[:, at.action])
        return total

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        """Convert actions to rows [B] of the layout."""
        rows = self.layout.zeros(len(action))
        for at, view in zip(self.sections, flatten(self.layout.fields(rows)), strict=True):
            view[...] = at.leaf.to_env(self.part(at, action))
        return rows

    def masked(self, out: Floats, legal: NDArray[np.bool_]) -> Floats:
        """Give illegal actions probability 0."""
        return np.concatenate(
            [at.leaf.masked(out[:, at.outputs], legal[:, at.outputs]) for at in self.sections], axis=1
        )

    def part(self, at: Section, action: NDArray[Any]) -> NDArray[Any]:
        """Return the columns of one leaf in actions [B, K]; discrete actions as integers."""
        part = action[:, at.action]
        return part.astype(np.int64, copy=False) if at.leaf.sizes else part

    def __call__(self, out: Floats) -> NDArray[Any]:
        """Return the most likely actions for outputs [B, W], in the environment's format."""
        return self.to_env(self.sample(out, NO_LOG_STD, None))


Head = LeafHead | Composite
