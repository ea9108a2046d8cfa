"""Policies over flat parameters: a small network, a population of them evaluated at once, and one alone."""

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


def check_hidden_sizes(hidden_sizes: Sequence[int], usual: Sequence[int], features: int = 0) -> None:
    """Check the widths of hidden layers.

    Args:
        features: F, the width of what an LSTM takes and gives; 0: there is none.

    Raises:
        ConfigError: one is not positive, or their weights do not fit in this machine's memory.
    """
    told = f"hidden_sizes={list(hidden_sizes)}"
    require(all(width >= 1 for width in hidden_sizes), f"{told} must list positive widths; try {list(usual)}")
    count = sum(math.prod(two) for two in itertools.pairwise((1, *hidden_sizes, 1)))
    # An LSTM has four gates, each of which takes the features and its own last output.
    check_memory(told + " with an LSTM" * bool(features), count + 8 * features**2, "weights", list(usual))


def check_memory(setting: str, count: int, what: str, usual: object) -> None:
    """Check that this machine has the memory that a setting takes at least.

    Args:
        setting: with its value.
        count: of numbers, of 4 bytes each.
        what: they are.
        usual: a value that suits most.

    Raises:
        ConfigError: it has less.
    """
    taken, memory = 4 * count, memory_bytes()
    remedy = f"take less, such as {usual}"
    require(
        taken <= memory,
        f"{setting} has {format_bytes(taken)} of {what}, and this machine has {format_bytes(memory)}; {remedy}",
    )


@dataclass(frozen=True)
class MLP:
    """A feed-forward network on a flat vector of parameters, and the head that takes its outputs."""

    inputs: Inputs
    hidden_sizes: tuple[int, ...]  # widths between the numbers of an observation and the outputs
    activation: Activation  # between layers

    @classmethod
    def for_spaces(
        cls, observations: Layout, action: gymnasium.Space, hidden_sizes: tuple[int, ...], activation: Activation
    ) -> "MLP":
        """The network for an environment; observations go in as numbers.

        Raises:
            ConfigError: the action space is not supported, or a width is not positive or too large.
        """
        head = make_head(action, stochastic=False, masked=masked_paths(observations))
        check_hidden_sizes(hidden_sizes, [40, 40])
        return cls(Inputs(observations, head), hidden_sizes, activation)

    @property
    def head(self) -> Head:
        """What takes the outputs."""
        return self.inputs.head

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """Widths from observation to output."""
        return self.inputs.width, *self.hidden_sizes, self.head.width

    @functools.cached_property
    def network(self) -> Network:
        """What computes it."""
        head = self.head
        if not isinstance(head, LeafHead):
            return Network(self.sizes, self.activation, "unbounded")  # the head squashes what is bounded
        kind = str(head.kind)
        if head.sizes:
            kind = "discrete" if head.shape == () else "multi_discrete"
        features = self.inputs.sparse if kind == "discrete" else None
        if features is not None and self.inputs.legal_width and features.legal < 0:
            features = None  # native code reads what is legal from bytes side by side
        low, high = (head.low, head.high) if kind == "bounded" else ((), ())
        return Network(self.sizes, self.activation, kind, low, high, features)

    def describe_actions(self) -> str:
        """Name the kinds of actions, for `dry_run=true`."""
        return self.network.head if isinstance(self.head, LeafHead) else self.head.describe()

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

    def act(self, obs: NDArray[np.float32], legal: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """Map observations [S, O] to actions [S, ...], row by row through its own network; `legal` is [S, W]."""
        out = self.outputs(obs)
        return self.mlp.head(out if legal is None else self.mlp.head.masked(out, legal))

    def outputs(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Map observations [S, O] to what the head takes [S, W]."""
        return self._networks(obs)


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

    @property
    def inputs(self) -> Inputs:
        """What it sees of observations."""
        return self.mlp.inputs

    def act(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[Any], dict[str, NDArray[Any]], Any]:
        """Map obs [B, ...] to actions [B, ...]."""
        out, state = self.outputs(obs, state)
        return self.mlp.head(out), {}, state

    def outputs(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[np.float32], Any]:
        """Map obs [B, ...] to what the head takes [B, W]; there is no state."""
        flat = self.mlp.inputs.numbers(obs).astype(np.float32)
        if self.normalizer is not None:
            flat = self.normalizer(flat)
        out, legal = np.concatenate([self._network.outputs(row[None]) for row in flat]), self.mlp.inputs.legal(obs)
        return out if legal is None else self.mlp.head.masked(out, legal), state
