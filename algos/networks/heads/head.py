"""Base of action heads."""

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

NO_LOG_STD = np.zeros(0, np.float32)  # of heads without standard deviations


@dataclass(frozen=True)
class LeafHead(abc.ABC):
    """Map from network outputs [B, W] to the actions of one space, other than Dict and Tuple, or of one of their leaves.

    Unscaled actions [B, K] are samples of the distribution, before scaling to the action bounds. They are int64 if all
    components are discrete, else float32, which is exact for discrete actions below 2^24.
    """

    shape: tuple[int, ...]  # of one action in the environment
    low: tuple[float, ...]  # first discrete action or lower bound of each component
    high: tuple[float, ...]  # upper bound of each component; () if discrete
    dtype: str
    path: Path  # in the action space; () for a single leaf
    sizes: tuple[int, ...] = ()  # number of discrete actions of each component; () if continuous

    kind: ClassVar[str]  # name in messages
    is_stochastic: ClassVar[bool] = True  # training samples actions
    learns_in_c: ClassVar[bool] = True  # dense networks with this head can be trained in C
    native_mode: ClassVar[str | None] = None  # native name of its most likely actions; None: unsupported
    native_sampler: ClassVar[str | None] = None  # native name of its samples; None: unsupported

    @property
    def leaves(self) -> "tuple[LeafHead, ...]":
        """Heads of the leaves of the action space, in the order of their outputs: this one alone."""
        return (self,)

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """Number of network outputs W."""

    @property
    def components(self) -> int:
        """Number of action components K."""
        return len(self.low)

    @property
    def num_log_std(self) -> int:
        """Number of log standard deviations learned as separate parameters, one per Gaussian component."""
        return 0

    @property
    def noise_width(self) -> int:
        """Number of noise values per action."""
        return self.components

    @property
    def dense_components(self) -> tuple[int, ...]:
        """Number of discrete actions of each component for training in C; 0 for a Gaussian."""
        return self.sizes

    @property
    def inner_dtype(self) -> np.dtype[Any]:
        """Dtype of unscaled actions."""
        return np.dtype(np.float32)

    @property
    def compact_dtype(self) -> np.dtype[Any]:
        """Smallest dtype that holds every unscaled action."""
        return self.inner_dtype

    @property
    def columns(self) -> Mapping[Path, slice]:
        """Output columns of each discrete leaf, by path in the action space; action masks have the same width."""
        return {}

    def describe(self) -> str:
        """Name the kinds of actions, for `dry_run=true`."""
        return self.kind

    def sample_noise(self, generator: np.random.Generator, lead: tuple[int, ...]) -> Floats:
        """Return noise [*lead, ...] for `sample`: standard normal numbers [*lead, K], unless overridden."""
        return generator.standard_normal((*lead, self.components), dtype=np.float32)

    def activate(self, out: Floats) -> Floats:
        """Activate raw outputs for `sample`, if it is one leaf of several."""
        return out

    @abc.abstractmethod
    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Return actions [B, K] for outputs [B, W]; the most likely ones without noise."""

    @abc.abstractmethod
    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        """Return log-probabilities [B] of actions [B, K]; for continuous ones, log-densities after scaling."""

    @abc.abstractmethod
    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        """Return log-probabilities and entropies [B] of actions [B, K] for outputs [B, W], in torch."""

    def log_slope(self, action: Floats) -> Floats:
        """Return the log-derivative [B] of scaling actions [B, K], which is subtracted from log-densities."""
        return np.zeros(len(action), np.float32)

    @abc.abstractmethod
    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        """Convert actions for `VectorEnv.send`: arrays [B, *shape], or rows [B] of a `Layout` for Dict and Tuple."""

    def masked(self, out: Floats, legal: NDArray[np.bool_]) -> Floats:
        """Give actions that are not `legal` [B, W] probability 0; a component without legal action is an EnvError."""
        return out

    @abc.abstractmethod
    def to_onnx(self, graph: Graph, out: str) -> str:
        """Add nodes that compute the most likely actions from `out` in the environment's format; return their name."""

    def __call__(self, out: Floats) -> NDArray[Any]:
        """Return the most likely actions for outputs [B, W], in the environment's format."""
        return self.to_env(self.sample(out, NO_LOG_STD, None))


def sum_terms(terms: "Sequence[Tensor]") -> "Tensor":
    """Return the sum of one or more tensors [B]."""
    if len(terms) == 1:
        return terms[0]
    import torch

    return torch.stack(list(terms)).sum(0)
