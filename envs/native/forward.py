"""Forward pass of a dense network on a batch of observations, with the arithmetic of `paddock.envs.native.networks`.

A row's outputs depend only on that row, not on the batch size or the CPU; without native code the last bits differ.
"""

import ctypes

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError
from paddock.envs.native import library
from paddock.envs.native.networks import DenseLayout, Normalizer, Rows, run_in_numpy
from paddock.envs.spaces.codecs import Array
from paddock.envs.spaces.sparse import SparseFeatures, SparseRows

WHOLE = 16  # WHOLE and FORWARD_ROWS of networks.h
FORWARD_ROWS = 32


class DenseForward:
    """Feed-forward network for batches of any size, whose weights can be reloaded."""

    def __init__(self, layout: DenseLayout, activation: str) -> None:
        """Allocate buffers; `activation`, "tanh" or "relu", is applied between layers."""
        self._made = layout, activation
        try:
            self._network: _Compiled | _NumPyForward = _Compiled(layout, activation)
        except ConfigError as error:
            library.warn_missing(str(error))
            self._network = _NumPyForward(layout, activation)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the layout and the activation; weights are not kept."""
        return type(self), self._made

    def load(self, flat: NDArray[np.float32]) -> None:
        """Copy parameters [P]; a longer vector is accepted."""
        self._network.load(flat)

    def __call__(self, obs: Rows | SparseRows) -> Rows:
        """Map observations [B, O] to outputs [B, W].

        Sums over sparse rows skip zeros, which gives the same bits as dense rows.
        """
        return self._network.run(obs)


class CFeatures(ctypes.Structure):
    """`struct features` of features.h."""

    kept: tuple[Array, ...]
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("numbers", "mean", "std")),
        ("row_bytes", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("count", "most", "ones", "legal")),
        ("clip", ctypes.c_float),
    )

    @classmethod
    def of(cls, features: SparseFeatures, normalizer: Normalizer | None) -> "CFeatures":
        """Build the C structure, which keeps the arrays that it points to alive."""
        made = cls(
            numbers=features.numbers.ctypes.data,
            row_bytes=features.itemsize,
            count=len(features.numbers),
            most=features.most,
            ones=features.ones and normalizer is None,
            legal=features.legal,
        )
        made.kept = (features.numbers,)
        if normalizer is not None:
            mean, std = (np.ascontiguousarray(each, np.float32) for each in (normalizer.mean, normalizer.std))
            made.kept += (mean, std)
            made.mean, made.std, made.clip = mean.ctypes.data, std.ctypes.data, normalizer.clip
        return made


def expand(features: SparseFeatures, octets: Array, normalizer: Normalizer | None) -> SparseRows:
    """Return the non-zero features of rows of bytes [B, itemsize], normalized if a normalizer is given."""
    if library.usable() is None:
        numbers = features.spread(octets)
        return SparseRows.of(
            numbers if normalizer is None else normalizer(numbers), features.ones and normalizer is None
        )
    octets, described, count = np.ascontiguousarray(octets), CFeatures.of(features, normalizer), len(octets)
    starts, index = np.empty(count + 1, np.int64), np.empty(count * features.most, np.uint16)
    value = None if described.ones else np.empty(count * features.most, np.float32)
    written = starts.ctypes.data, index.ctypes.data, None if value is None else value.ctypes.data
    library.load().expand_rows(ctypes.byref(described), octets.ctypes.data, count, *written)
    return SparseRows(starts, index[: starts[-1]], None if value is None else value[: starts[-1]])


class CSparseRows(ctypes.Structure):
    """`struct sparse` of sparse.h."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("starts", "index", "value"))

    @classmethod
    def of(cls, rows: SparseRows) -> "CSparseRows":
        """Point to rows, which must outlive the structure."""
        arrays = (rows.starts, rows.index, rows.value)
        return cls(*(None if array is None else array.ctypes.data for array in arrays))


class PackedWeights:
    """Layers as native code reads them: [in + 1, out], the bias last, each row zero-padded to a multiple of `WHOLE`."""

    def __init__(self, layout: DenseLayout) -> None:
        self._layout = layout
        whole = [-(-size // WHOLE) * WHOLE for size in layout.sizes]
        shapes = [(fan_in + 1, wide) for fan_in, wide in zip(layout.sizes[:-1], whole[1:], strict=True)]
        ends = np.cumsum([rows * wide for rows, wide in shapes])
        self.array = np.zeros(ends[-1], np.float32)
        blocks = np.split(self.array, ends[:-1])
        self._layers = [block.reshape(shape) for block, shape in zip(blocks, shapes, strict=True)]

    def load(self, flat: NDArray[np.float32]) -> None:
        """Copy parameters [P]; a longer vector is accepted."""
        for rows, (weights, bias) in zip(self._layers, self._layout.layers(flat), strict=True):
            rows[:-1, : len(bias)], rows[-1, : len(bias)] = weights, bias


class _CForward(ctypes.Structure):
    """`struct forward` of networks.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weights", "input", "output", "scratch", "sizes")),
        ("rows", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("layers", "relu")),
        ("sparse", ctypes.c_void_p),
    )


class _Compiled:
    """Forward pass in native code, which releases the GIL."""

    def __init__(self, layout: DenseLayout, activation: str) -> None:
        self._call = library.load().run_forward
        self._set = library.widest().encode()
        self._layout, sizes = layout, layout.sizes
        self._weights = PackedWeights(layout)
        self.load = self._weights.load
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

    def run(self, obs: Rows | SparseRows) -> Rows:
        out, struct = np.empty((len(obs), self._layout.sizes[-1]), np.float32), self._struct
        if isinstance(obs, SparseRows):
            sparse = CSparseRows.of(obs)
            struct.input, struct.sparse = None, ctypes.addressof(sparse)
        else:
            obs = np.ascontiguousarray(obs, np.float32)
            assert obs.ndim == 2 and obs.shape[1] == self._layout.sizes[0], obs.shape
            struct.input, struct.sparse = obs.ctypes.data, None
        struct.output, struct.rows = out.ctypes.data, len(obs)
        self._call(self._set, self._at)
        return out


class _NumPyForward:
    """Forward pass in NumPy."""

    def __init__(self, layout: DenseLayout, activation: str) -> None:
        self._layout, self._activation = layout, activation

    def load(self, flat: NDArray[np.float32]) -> None:
        self._layers = self._layout.layers(np.array(flat, np.float32))

    def run(self, obs: Rows | SparseRows) -> Rows:
        if isinstance(obs, SparseRows):
            sparse, obs = obs, np.zeros((len(obs), self._layout.sizes[0]), np.float32)
            for number, row in enumerate(obs):
                index, value = sparse.row(number)
                row[index] = value
        return run_in_numpy(self._layers, obs, self._activation)
