"""Small feed-forward networks whose outputs are bit-identical on every CPU.

Sums start at the bias and add products in the order of the inputs with fused multiply-adds in single precision; tanh is
approximated by a polynomial. Native code plays whole episodes with this arithmetic (`paddock.envs.native.rollout`) and
single steps here. Where it was not built, NumPy computes outputs that differ in the last bits.
"""

import ctypes
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError
from paddock.envs.native import library
from paddock.envs.native.functions import activate, fast_tanh
from paddock.envs.spaces.sparse import SparseFeatures

SPARE_FLOATS = 128  # of networks.h

Rows = NDArray[np.float32]  # [S, width]


@dataclass(frozen=True)
class DenseLayout:
    """Layout of a dense network's layers in a flat vector: the weights of each layer, then its bias."""

    sizes: tuple[int, ...]  # widths from input to output
    out_first: bool = False  # weights are [out, in], as in torch; else [in, out], as in native code

    @property
    def num_parameters(self) -> int:
        """Number P of parameters, the length of the flat vector."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in itertools.pairwise(self.sizes))

    def layers(self, flat: NDArray[np.float32]) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Return weights [..., in, out] and bias [..., out] of each layer, views of flat vectors [..., P] or longer."""
        layers, start = [], 0
        for shape in itertools.pairwise(self.sizes):
            stop = start + math.prod(shape)
            weights = flat[..., start:stop].reshape(*flat.shape[:-1], *(shape[::-1] if self.out_first else shape))
            start, stop = stop, stop + shape[1]
            layers.append((weights.swapaxes(-1, -2) if self.out_first else weights, flat[..., start:stop]))
            start = stop
        return layers


@dataclass(frozen=True)
class Network:
    """Feed-forward network with one flat vector of parameters."""

    sizes: tuple[int, ...]  # widths from observation to output
    activation: str  # between layers: "tanh" or "relu"
    # "discrete": argmax; "bounded": tanh, scaled to the bounds; "clipped": clipped to the bounds; others: not native.
    head: str
    low: tuple[float, ...] = ()  # [A] bounds of a bounded or clipped action
    high: tuple[float, ...] = ()
    features: SparseFeatures | None = None  # inputs extracted from rows of bytes; None: float observations

    @functools.cached_property
    def layout(self) -> DenseLayout:
        """Layout of the layers in the flat vector."""
        return DenseLayout(self.sizes)

    @property
    def num_parameters(self) -> int:
        """Number P of parameters, the length of the flat vector."""
        return self.layout.num_parameters


@dataclass(frozen=True)
class Normalizer:
    """Normalization of observations to zero mean and unit standard deviation, then clipped."""

    mean: NDArray[np.float32]  # [O]
    std: NDArray[np.float32]  # [O], positive
    clip: float  # in standard deviations

    def __call__(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Normalize observations [B, O], in the precision of the observations."""
        out = obs - self.mean
        out /= self.std
        # Twice as fast as np.clip on arrays this small.
        return np.minimum(np.maximum(out, -self.clip, out=out), self.clip, out=out)


class Networks:
    """S networks of one shape with separate parameters; each row of outputs depends only on its row of inputs."""

    def __init__(self, network: Network, slots: int) -> None:
        self._network = network
        self._memory = np.zeros(slots * network.num_parameters + SPARE_FLOATS, np.float32)
        self.parameters = self._memory[:-SPARE_FLOATS].reshape(slots, network.num_parameters)
        try:
            self._run: Callable[[Rows], Rows] = _Compiled(network, self._memory, slots).run
        except ConfigError as error:
            library.warn_missing(str(error))
            self._run = self._run_in_numpy

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the network and its parameters."""
        return _rebuild, (self._network, self.parameters)

    def __call__(self, obs: Rows) -> Rows:
        """Map observations [S, O] to outputs [S, W], in [-1, 1] for bounded heads."""
        return self._run(obs)

    def _run_in_numpy(self, obs: Rows) -> Rows:
        out = run_in_numpy(self._network.layout.layers(self.parameters), obs, self._network.activation)
        return fast_tanh(out) if self._network.head == "bounded" else out


def _rebuild(network: Network, parameters: Rows) -> Networks:
    networks = Networks(network, len(parameters))
    networks.parameters[:] = parameters
    return networks


class _CNetworks(ctypes.Structure):
    """`struct networks` of networks.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("parameters", "input", "output", "scratch", "sizes")),
        *((name, ctypes.c_int64) for name in ("slots", "num_parameters")),
        *((name, ctypes.c_int32) for name in ("layers", "relu", "bounded")),
    )


class _Compiled:
    """Forward passes in native code, which releases the GIL."""

    def __init__(self, network: Network, memory: NDArray[np.float32], slots: int) -> None:
        self._call = library.load().run_networks
        self._set = library.widest().encode()
        self._shape = (slots, network.sizes[0])
        self._width = network.sizes[-1]
        self._kept = (
            memory,
            np.zeros(2 * (max(network.sizes) + SPARE_FLOATS), np.float32),
            np.array(network.sizes, np.int32),
        )
        parameters, scratch, sizes = (array.ctypes.data for array in self._kept)
        self._struct = _CNetworks(
            parameters=parameters,
            scratch=scratch,
            sizes=sizes,
            slots=slots,
            num_parameters=network.num_parameters,
            layers=len(network.sizes) - 1,
            relu=network.activation == "relu",
            bounded=network.head == "bounded",
        )
        self._at = ctypes.byref(self._struct)

    def run(self, obs: Rows) -> Rows:
        obs = np.ascontiguousarray(obs, np.float32)
        assert obs.shape == self._shape, obs.shape
        out = np.empty((len(obs), self._width), np.float32)
        self._struct.input, self._struct.output = obs.ctypes.data, out.ctypes.data
        self._call(self._set, self._at)
        return out


def run_in_numpy(layers: Sequence[tuple[Rows, Rows]], obs: Rows, activation: str) -> Rows:
    """Map observations [B, I] to outputs [B, W]; rows are multiplied one by one, so that none depends on the others."""
    hidden = np.asarray(obs, np.float32)
    with np.errstate(all="ignore"):  # as in native code
        for k, (weights, bias) in enumerate(layers):
            hidden = (activate(hidden, activation) if k else hidden)[:, None]
            hidden = (hidden @ weights)[:, 0] + bias
    return hidden
