"""Deterministic heads, for TD3 and evolution strategies."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads.head import Floats, Graph, LeafHead
from paddock.algos.networks.heads.numbers import Numbers
from paddock.envs.native.functions import fast_tanh

if TYPE_CHECKING:
    from torch import Tensor


class _Deterministic:
    is_stochastic = False

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        return np.zeros(len(out), np.float32)

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        """Raise NotImplementedError."""
        raise NotImplementedError(f"{type(self).__name__} has no distribution")


@final
@dataclass(frozen=True)
class Tanh(_Deterministic, Numbers):
    """TD3's head: tanh of the outputs plus exploration noise; unscaled actions lie in [-1, 1]."""

    kind, family = "tanh", "squashed_gaussian"
    native_mode, native_sampler = "bounded", "tanh"
    needs_bounds = True

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Return tanh of the outputs plus noise, clipped to [-1, 1]."""
        one, action = np.float32(1), fast_tanh(out)
        return action if noise is None else np.minimum(np.maximum(action + noise, -one), one)


@final
@dataclass(frozen=True)
class Bounded(_Deterministic, Numbers):
    """Bounded actions: tanh of the outputs, which networks with this head alone apply themselves."""

    kind, family = "bounded", "squashed_gaussian"

    def activate(self, out: Floats) -> Floats:
        """Apply tanh to raw outputs."""
        return fast_tanh(out)

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Return the outputs, to which tanh has been applied."""
        return out

    def to_onnx(self, graph: Graph, out: str) -> str:
        """Add the most likely actions to the graph; return their name."""
        return self.scale_in_onnx(graph, graph.add("Tanh", out) if self.path else out)


@final
@dataclass(frozen=True)
class Unbounded(_Deterministic, Numbers):
    """Actions without finite bounds: the outputs, clipped to the bounds that exist."""

    kind, family = "unbounded", "gaussian"

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Return the outputs."""
        return out

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        """Clip actions to the bounds."""
        return self.clip(action)

    def to_onnx(self, graph: Graph, out: str) -> str:
        """Add the most likely actions to the graph; return their name."""
        return self.clip_in_onnx(graph, out)


@final
@dataclass(frozen=True)
class Binary(_Deterministic, LeafHead):
    """MultiBinary actions: the signs of the outputs."""

    kind = "binary"

    @property
    def width(self) -> int:
        """Number of network outputs W."""
        return self.components

    @property
    def inner_dtype(self) -> np.dtype[Any]:
        """Dtype of unscaled actions."""
        return np.dtype(np.int64)

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Return the signs of the outputs."""
        return out > 0

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        """Reshape the bits."""
        return action.reshape(-1, *self.shape).astype(self.dtype, copy=False)

    def to_onnx(self, graph: Graph, out: str) -> str:
        """Add the most likely actions to the graph; return their name."""
        return graph.as_float(graph.add("Greater", out, graph.constant(0.0, np.float32)))
