"""Actions that are not drawn from a distribution: of TD3, and of evolution strategies."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads.head import Floats, Graph, LeafHead
from paddock.algos.networks.heads.numbers import Numbers
from paddock.envs.native.functions import fast_tanh

if TYPE_CHECKING:
    from torch import Tensor


class _Undrawn:
    """No distribution."""

    is_stochastic = False

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        """Return zeros [B]."""
        return np.zeros(len(out), np.float32)

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        """Raise, as there is no distribution."""
        raise NotImplementedError(f"{type(self).__name__} has no distribution")


@final
@dataclass(frozen=True)
class Tanh(_Undrawn, Numbers):
    """TD3's: tanh of the outputs, onto which exploration adds noise; actions inside lie in [-1, 1]."""

    kind, family = "tanh", "squashed_gaussian"
    native_mode, native_sampler = "bounded", "tanh"
    needs_bounds = True

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        one, action = np.float32(1), fast_tanh(out)
        return action if noise is None else np.minimum(np.maximum(action + noise, -one), one)

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        return self.scale(action)

    def to_onnx(self, graph: Graph, out: str) -> str:
        return self.scale_in_onnx(graph, graph.add("Tanh", out))


@final
@dataclass(frozen=True)
class Bounded(_Undrawn, Numbers):
    """Numbers between bounds: tanh of the outputs, which a network with this head alone applies by itself."""

    kind, family = "bounded", "squashed_gaussian"

    def activate(self, out: Floats) -> Floats:
        return fast_tanh(out)

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        return out

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        return self.scale(action)

    def to_onnx(self, graph: Graph, out: str) -> str:
        return self.scale_in_onnx(graph, graph.add("Tanh", out) if self.path else out)


@final
@dataclass(frozen=True)
class Unbounded(_Undrawn, Numbers):
    """Numbers of which at least one lacks a bound: the outputs, clipped to those that there are."""

    kind, family = "unbounded", "gaussian"

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        return out

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        return self.clip(action)

    def to_onnx(self, graph: Graph, out: str) -> str:
        return self.clip_in_onnx(graph, out)


@final
@dataclass(frozen=True)
class Binary(_Undrawn, LeafHead):
    """Bits: the signs of the outputs."""

    kind = "binary"

    @property
    def width(self) -> int:
        return self.components

    @property
    def inner_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64)

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        return out > 0

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        return action.reshape(-1, *self.shape).astype(self.dtype, copy=False)

    def to_onnx(self, graph: Graph, out: str) -> str:
        return graph.as_float(graph.add("Greater", out, graph.constant(0.0, np.float32)))
