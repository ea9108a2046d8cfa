"""Policies with flat parameters: a small MLP, batched evaluation of a population, and a single policy."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads import Head, LeafHead, make_head
from paddock.algos.networks.inputs import Inputs, masked_paths
from paddock.envs.errors import require
from paddock.envs.machine import format_bytes, memory_bytes
from paddock.envs.native.networks import Network, Networks, Normalizer
from paddock.envs.spaces.layout import Layout

Activation = Literal["tanh", "relu"]
HiddenSizes = int | tuple[int, ...]


def as_sizes(hidden_sizes: HiddenSizes) -> tuple[int, ...]:
    """Return the sizes of the hidden layers; a number is one layer."""
    return (hidden_sizes,) if isinstance(hidden_sizes, int) else tuple(hidden_sizes)


def check_hidden_sizes(hidden_sizes: Sequence[int], usual: Sequence[int], features: int = 0) -> None:
    """Raise ConfigError unless hidden sizes are positive and fit in memory; `features` is the width of an LSTM or 0."""
    setting = f"hidden_sizes={list(hidden_sizes)}"
    require(all(width >= 1 for width in hidden_sizes), f"{setting} must list positive widths; try {list(usual)}")
    count = sum(math.prod(two) for two in itertools.pairwise((1, *hidden_sizes, 1)))
    # Each of an LSTM's four gates has weights for the input and the hidden state.
    check_memory(setting + " with an LSTM" * bool(features), count + 8 * features**2, "weights", list(usual))


def check_memory(setting: str, count: int, what: str, usual: object) -> None:
    """Raise ConfigError unless `count` float32 values fit in memory; `usual` is a typical value of the setting."""
    needed, memory = 4 * count, memory_bytes()
    problem = f"{setting} needs {format_bytes(needed)} of {what}, but this machine has {format_bytes(memory)}"
    require(needed <= memory, f"{problem}; reduce it, for example to {usual}")


@dataclass(frozen=True)
class MLP:
    """Feed-forward network on a flat parameter vector, with its action head."""

    inputs: Inputs
    hidden_sizes: tuple[int, ...]
    activation: Activation  # between layers

    @classmethod
    def for_spaces(
        cls, observations: Layout, action: gymnasium.Space, hidden_sizes: tuple[int, ...], activation: Activation
    ) -> "MLP":
        """Return the network for an environment; raise ConfigError for unsupported action spaces or widths."""
        head = make_head(action, stochastic=False, masked=masked_paths(observations))
        check_hidden_sizes(hidden_sizes, [40, 40])
        return cls(Inputs(observations, head), hidden_sizes, activation)

    @property
    def head(self) -> Head:
        """Action head."""
        return self.inputs.head

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """Layer widths from features to outputs."""
        return self.inputs.width, *self.hidden_sizes, self.head.width

    @functools.cached_property
    def network(self) -> Network:
        """Native implementation."""
        head = self.head
        if not isinstance(head, LeafHead):
            return Network(self.sizes, self.activation, "unbounded")  # the head applies tanh
        kind = str(head.kind)
        if head.sizes:
            kind = "discrete" if head.shape == () else "multi_discrete"
        features = self.inputs.sparse if kind == "discrete" else None
        if features is not None and self.inputs.legal_width and features.legal < 0:
            features = None  # native code needs contiguous masks
        low, high = (head.low, head.high) if kind == "bounded" else ((), ())
        return Network(self.sizes, self.activation, kind, low, high, features)

    def describe(self) -> str:
        """Return a summary for `dry_run=true`."""
        actions = self.network.head if isinstance(self.head, LeafHead) else self.head.describe()
        return f"{'-'.join(map(str, self.sizes))} {self.activation}, {actions} actions"

    @property
    def num_parameters(self) -> int:
        """Number of parameters P."""
        return self.network.num_parameters


class Population:
    """S networks of one architecture, evaluated in one call, each bit-identical for every S."""

    def __init__(self, mlp: MLP, slots: int) -> None:
        self.mlp, self.inputs = mlp, mlp.inputs
        self._networks = Networks(mlp.network, slots)

    def load(self, slot: int, parameters: NDArray[np.float32]) -> None:
        """Set the flat parameters [P] of network `slot`."""
        self._networks.parameters[slot] = parameters

    def forget(self, slot: int) -> None:
        """Do nothing: these networks have no recurrent state."""

    def act(
        self, obs: NDArray[Any], legal: NDArray[np.bool_] | None = None, acts: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Map observations [S, O] to actions [S, ...], one network per row; `legal` is an action mask [S, W]."""
        out = self.outputs(obs)
        return self.mlp.head(out if legal is None else self.mlp.head.masked(out, legal))

    def outputs(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Map observations [S, O] to head outputs [S, W]."""
        return self._networks(obs)


class FlatPolicy:
    """Stateless policy of one network, with its observation normalizer."""

    def __init__(self, mlp: MLP, parameters: NDArray[np.float32], normalizer: Normalizer | None) -> None:
        self.parameters = parameters
        self.mlp = mlp
        self.normalizer = normalizer
        self._network = Population(mlp, 1)
        self._network.load(0, parameters)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.mlp, self.parameters, self.normalizer)

    @property
    def inputs(self) -> Inputs:
        """Input specification."""
        return self.mlp.inputs

    def act(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[Any], dict[str, NDArray[Any]], Any]:
        """Map obs [B, ...] to actions [B, ...]."""
        out, state = self.outputs(obs, state)
        return self.mlp.head(out), {}, state

    def outputs(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[np.float32], Any]:
        """Map obs [B, ...] to head outputs [B, W]; the state is returned unchanged."""
        flat = self.mlp.inputs.numbers(obs).astype(np.float32)
        if self.normalizer is not None:
            flat = self.normalizer(flat)
        out, legal = np.concatenate([self._network.outputs(row[None]) for row in flat]), self.mlp.inputs.legal(obs)
        return out if legal is None else self.mlp.head.masked(out, legal), state
