"""One dense network on rows of observations, with the arithmetic of `envs.native.networks`.

A row's outputs depend on that row alone: not on how many there are, on the processor, or on whether native code was
built.
"""

import ctypes

import numpy as np
from numpy.typing import NDArray

from envs.errors import ConfigError
from envs.native import library
from envs.native.functions import activate
from envs.native.networks import DenseLayout, Rows, sum_in_order

WHOLE = 16  # WHOLE and FORWARD_ROWS of networks.h
FORWARD_ROWS = 32
PRODUCTS = 1 << 18  # floats that NumPy multiplies at a time, which stay in cache


class DenseForward:
    """A feed-forward network for as many rows as come; weights are loaded, again and again."""

    def __init__(self, layout: DenseLayout, activation: str) -> None:
        """Make room.

        Args:
            layout: of the flat vectors that are loaded.
            activation: between layers: "tanh" or "relu".
        """
        self._made = layout, activation
        try:
            self._network: _Compiled | _Plain = _Compiled(layout, activation)
        except ConfigError:
            self._network = _Plain(layout, activation)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._made

    def load(self, flat: NDArray[np.float32]) -> None:
        """Compute with parameters [P] from now on; the vector may be longer, and may be changed afterwards."""
        self._network.load(flat)

    def __call__(self, obs: Rows) -> Rows:
        """Map observations [B, O] to outputs [B, W]."""
        return self._network.run(obs)


class PackedWeights:
    """Layers as native code reads them: [in, whole vectors] and, as a last row, the bias; what is behind a row is 0."""

    def __init__(self, layout: DenseLayout) -> None:
        self._layout = layout
        whole = [-(-size // WHOLE) * WHOLE for size in layout.sizes]
        shapes = [(fan_in + 1, wide) for fan_in, wide in zip(layout.sizes[:-1], whole[1:], strict=True)]
        ends = np.cumsum([rows * wide for rows, wide in shapes])
        self.array = np.zeros(ends[-1], np.float32)
        parts = np.split(self.array, ends[:-1])
        self._layers = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def load(self, flat: NDArray[np.float32]) -> None:
        """Take over parameters [P], or longer."""
        for rows, (weights, bias) in zip(self._layers, self._layout.layers(flat), strict=True):
            rows[:-1, : len(bias)], rows[-1, : len(bias)] = weights, bias


class _CForward(ctypes.Structure):
    """`struct forward` of networks.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weights", "input", "output", "scratch", "sizes")),
        ("rows", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("layers", "relu")),
    )


class _Compiled:
    """One call of native code, without the interpreter lock."""

    def __init__(self, layout: DenseLayout, activation: str) -> None:
        self._call = library.load().run_forward
        self._set = library.widest().encode()
        self._layout, sizes = layout, layout.sizes
        self._weights = PackedWeights(layout)
        self.load = self._weights.load  # see `DenseForward.load`
        self._scratch = np.zeros(2 * FORWARD_ROWS * (max(sizes) + WHOLE), np.float32)
        self._sizes = np.array(sizes, np.int32)
        self._struct = _CForward(
            weights=self._weights.array.ctypes.data,
            scratch=self._scratch.ctypes.data,
            sizes=self._sizes.ctypes.data,
            layers=len(sizes) - 1,
            relu=activation == "relu",
        )
        self._at = ctypes.byref(self._struct)

    def run(self, obs: Rows) -> Rows:
        """See `DenseForward.__call__`."""
        obs = np.ascontiguousarray(obs, np.float32)
        assert obs.ndim == 2 and obs.shape[1] == self._layout.sizes[0], obs.shape
        out = np.empty((len(obs), self._layout.sizes[-1]), np.float32)
        self._struct.input, self._struct.output, self._struct.rows = obs.ctypes.data, out.ctypes.data, len(obs)
        self._call(self._set, self._at)
        return out


class _Plain:
    """The same in NumPy, some rows at a time."""

    def __init__(self, layout: DenseLayout, activation: str) -> None:
        self._layout, self._activation = layout, activation
        self._rows = max(PRODUCTS // max(a * b for a, b in zip(layout.sizes, layout.sizes[1:], strict=False)), 1)

    def load(self, flat: NDArray[np.float32]) -> None:
        """See `DenseForward.load`."""
        self._layers = [(weights.copy("C"), bias.copy()) for weights, bias in self._layout.layers(flat)]

    def run(self, obs: Rows) -> Rows:
        """See `DenseForward.__call__`."""
        obs = np.asarray(obs, np.float32)
        out = np.empty((len(obs), self._layout.sizes[-1]), np.float32)
        with np.errstate(all="ignore"):  # as in native code
            for first in range(0, len(obs), self._rows):
                rows = slice(first, first + self._rows)
                hidden = obs[rows]
                for k, (weights, bias) in enumerate(self._layers):
                    hidden = sum_in_order(hidden[:, :, None] * weights) + bias
                    if k < len(self._layers) - 1:
                        hidden = activate(hidden, self._activation)
                out[rows] = hidden
        return out
