"""What every head promises: which actions there are, and how the outputs of a network become actions."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float32]
Path = tuple[str | int, ...]
Graph = Any  # `onnx_graph.Graph`, whose module imports this one

NO_LOG_STD = np.zeros(0, np.float32)  # of what is not drawn


class Head(abc.ABC):
    """Which actions there are, and how the outputs [B, W] of a network become actions.

    Actions inside are [B, K]: what the distribution is over, before it is scaled to the environment's bounds. They are
    int64 if all are whole numbers, else float32, which is exact for choices below 2^24.
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
    def learns_in_c(self) -> bool:
        """Whether dense networks with this head may learn in C; see `networks/dense`."""

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
    def sample_noise(self, generator: np.random.Generator, lead: tuple[int, ...]) -> Floats:
        """Noise [*lead, ...] that `sample` turns into actions."""

    @abc.abstractmethod
    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Actions [B, K] of outputs [B, W]; the most likely ones where there is no noise."""

    @abc.abstractmethod
    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        """Log-probability, or log-density, [B] of actions [B, K] under outputs [B, W].

        Of numbers it is the density of what the environment gets, before it is clipped.
        """

    @abc.abstractmethod
    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        """Log-probability and entropy, both [B], of actions [B, K] under outputs [B, W], in torch."""

    @abc.abstractmethod
    def log_slope(self, action: Floats) -> Floats:
        """Logarithm [B] of how far the map to bounds spreads actions [B, K], which log-densities are less by; or 0."""

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


@dataclass(frozen=True)
class LeafHead(Head):
    """Actions of one kind: a space that is no Dict or Tuple, or one leaf of such. Each kind has a class and a file."""

    shape: tuple[int, ...]  # of one action, as the environment takes it
    low: tuple[float, ...]  # first choice of each component, or lower bound
    high: tuple[float, ...]  # upper bound of each component; () for choices
    dtype: str
    path: Path  # where it lies in the action space; () alone
    sizes: tuple[int, ...] = ()  # choices of each component; () where there are none

    kind: ClassVar[str]  # its name, for `dry_run=true` and for errors
    is_stochastic: ClassVar[bool] = True  # training draws actions from it
    learns_in_c: ClassVar[bool] = True  # a constant of each class
    native_mode: ClassVar[str | None] = None  # what native code calls its most likely actions; None: it has none
    native_sampler: ClassVar[str | None] = None  # what native code calls its drawn actions; None: it has none

    @property
    def leaves(self) -> "tuple[LeafHead, ...]":
        return (self,)

    @property
    def components(self) -> int:
        return len(self.low)

    @property
    def num_log_std(self) -> int:
        return 0

    @property
    def noise_width(self) -> int:
        """Numbers of noise for one action."""
        return self.components

    @property
    def dense_components(self) -> tuple[int, ...]:
        """Choices of each component as dense networks in C have them; 0 for a number drawn from a Gaussian."""
        return self.sizes

    @property
    def inner_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    @property
    def compact_dtype(self) -> np.dtype[Any]:
        return self.inner_dtype

    @property
    def columns(self) -> Mapping[Path, slice]:
        return {}

    def describe(self) -> str:
        return self.kind

    def sample_noise(self, generator: np.random.Generator, lead: tuple[int, ...]) -> Floats:
        return generator.standard_normal((*lead, self.components), dtype=np.float32)

    def activate(self, out: Floats) -> Floats:
        """Map outputs as the last layer gives them to those that `sample` takes, where it is one leaf of several."""
        return out

    def log_slope(self, action: Floats) -> Floats:
        return np.zeros(len(action), np.float32)

    def masked(self, out: Floats, legal: NDArray[np.bool_]) -> Floats:
        return out

    @abc.abstractmethod
    def to_onnx(self, graph: Graph, out: str) -> str:
        """Add the most likely actions [B, K] of the outputs called `out`, as the environment takes them; their name."""


def sum_terms(terms: "Sequence[Tensor]") -> "Tensor":
    """Return the sum of tensors [B] of which there is at least one."""
    if len(terms) == 1:
        return terms[0]
    import torch

    return torch.stack(list(terms)).sum(0)
