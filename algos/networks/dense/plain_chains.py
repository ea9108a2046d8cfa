"""Chains of dense layers in NumPy, to the bits of `src/chains.h`, `src/descent.h` and `src/network.h`."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.dense.shape import AdamState, DenseShape, Floats
from paddock.algos.networks.flat import Activation
from paddock.algos.networks.heads import LOWEST
from paddock.envs.native.forward import gather
from paddock.envs.native.functions import activate
from paddock.envs.native.networks import DenseLayout
from paddock.envs.spaces.sparse import SparseRows

BLOCK, MOST_PARTS, CHUNK = 32, 16, 16  # of dense.h
AT_ONCE = 1 << 18  # products that are held in memory together
ZERO, ONE = np.float32(0), np.float32(1)

Layers = list[tuple[Floats, Floats]]  # weights [in, out] and bias [out]


def split(flat: Floats, chains: Sequence[Sequence[int]], leading: int = 0) -> list[Layers]:
    """Return views of a flat vector, layer by layer of each chain; () and (width,) have no layers.

    Args:
        leading: how many numbers come before the layers.
    """
    found = []
    for sizes in chains:
        layout = DenseLayout(tuple(sizes), out_first=True)
        found.append(layout.layers(flat[leading:]))
        leading += layout.num_parameters
    return found


def go_forward(layers: Layers, x: Floats | SparseRows, activation: Activation, *, activated: bool = False) -> list[Any]:
    """What a chain makes of rows [B, in], layer by layer, behind the rows.

    Args:
        activated: whether the last layer is activated too.
    """
    values: list[Any] = [x]
    for k, (weights, bias) in enumerate(layers):
        x = (gather(x, weights) if isinstance(x, SparseRows) else product(x, weights)) + bias
        if activated or k + 1 < len(layers):
            x = activate(x, activation)
        values.append(x)
    return values


def go_back(
    layers: Layers, values: list[Any], by: Floats, activation: Activation, slots: Layers | None, *, further: bool
) -> Floats:
    """Go back through a chain, given gradients by what its last layer gave before it was activated [B, out].

    Args:
        values: what `go_forward` made.
        slots: where gradients by weights and biases are written; None: nobody asks for them.
        further: whether gradients by what the chain took are asked for.

    Returns:
        Those [B, in], before an activation that what it took went through; without `further`, anything.
    """
    for k in range(len(layers) - 1, -1, -1):
        if slots is not None:
            weights, bias = slots[k]
            if isinstance(values[k], SparseRows):
                scatter(values[k], by, weights)
            else:
                weights[:] = product(values[k].T, by)
            bias[:] = ZERO
            for row in by:
                bias += row
        if k == 0 and not further:
            break
        by = product(by, layers[k][0].T)
        if k > 0:
            by = activation_gradient(by, values[k], activation)
    return by


def activation_gradient(by: Floats, h: Floats, activation: Activation) -> Floats:
    """Turn gradients by what an activation gave, h, into those by what it took."""
    return np.where(h > 0, by, ZERO) if activation == "relu" else by * (ONE - h * h)


def scatter(rows: SparseRows, by: Floats, onto: Floats) -> None:
    """Set gradients by weights [in, out] of sparse rows, given those by their products [B, out], row by row."""
    onto[:] = ZERO
    for number, own in enumerate(by):
        index, value = rows.row(number)
        onto[index] += value[:, None] * own


def compute(
    shape: DenseShape, chains: list[Layers], observation: Floats, sparse: SparseRows | None = None
) -> list[list[Any]]:
    """What the trunk, the policy and the value make of rows of observations, layer by layer, behind what each takes."""
    features = observation[:, : shape.numbers] if sparse is None else sparse
    trunk = go_forward(chains[0], features, shape.activation, activated=True)
    return [trunk, *(go_forward(layers, trunk[-1], shape.activation) for layers in chains[1:])]


def forbid(shape: DenseShape, observation: Floats, out: Floats) -> Floats:
    """Return outputs [B, W] of which those are LOWEST that rows of observations say are not legal."""
    return np.where(observation[:, -shape.outputs :] != 0, out, np.float32(LOWEST)) if shape.masked else out


def differentiate(
    shape: DenseShape,
    chains: list[Layers],
    values: list[list[Any]],
    by_out: Floats,
    by_value: Floats | None,
    slots: list[Layers],
) -> None:
    """Fill the gradients of a network, given those by its outputs [B, W] and, where there are any, values [B, 1]."""
    trunk = bool(chains[0])
    by = go_back(chains[1], values[1], by_out, shape.activation, slots[1], further=trunk)
    if by_value is not None:
        by_features = go_back(chains[2], values[2], by_value, shape.activation, slots[2], further=trunk)
        by = by + by_features if trunk else by
    if trunk:
        by = activation_gradient(by, values[0][-1], shape.activation)
        go_back(chains[0], values[0], by, shape.activation, slots[0], further=False)


def product(a: Floats, b: Floats) -> Floats:
    """Return a [M, K] times b [K, N], each sum from the first product to the last."""
    out = np.empty((len(a), b.shape[1]), np.float32)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)  # so that the products lie row by row
    at_once = max(AT_ONCE // max(b.size, 1), 1)
    for first in range(0, len(a), at_once):
        products = a[first : first + at_once, :, None] * b
        # Row by row; NumPy sums pairwise only along the axis that is contiguous in memory.
        out[first : first + at_once] = products.sum(axis=1) if b.shape[1] > 1 else np.cumsum(products, axis=1)[:, -1]
    return out


def cut(count: int) -> list[slice]:
    """Return the parts that a minibatch of so many rows is cut into, each of which has a gradient of its own."""
    parts = min(max(count // BLOCK, 1), MOST_PARTS)
    borders = [count * part // parts for part in range(parts + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(borders)]


def rows_of(x: Any, among: slice) -> Any:
    """Return some rows of an array, or of sparse rows."""
    return x.pick(np.arange(len(x))[among]) if isinstance(x, SparseRows) else x[among]


def in_order(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of [S, B] over B, from the first to the last."""
    return np.asarray(np.cumsum(terms, axis=1)[:, -1])


def gradient_norm(gradient: Floats, chains: Sequence[Sequence[int]], leading: int = 0) -> np.float32:
    """The norm of a flat gradient: squares summed by rows of weights, CHUNK of them together, in 16 columns."""
    chunks = [gradient[None, :leading]]
    for weights, bias in (layer for layers in split(gradient, chains, leading) for layer in layers):
        rows = np.concatenate([weights, bias[None]])
        chunks += [rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK)]
    squares = 0.0
    for rows in chunks:
        columns = np.zeros(16, np.float32)
        for row in rows:
            padded = np.zeros(-(-len(row) // 16) * 16, np.float32)
            padded[: len(row)] = row * row
            for part in padded.reshape(-1, 16):
                columns += part
        total = ZERO
        for column in columns:
            total = total + column
        squares += float(total)
    return np.float32(np.sqrt(squares))


def scale_down(gradient: Floats, norm: np.float32, max_norm: float | None) -> Floats:
    """Return a gradient of a norm, scaled down to `max_norm` where it is longer; None: as it is."""
    if max_norm is None:
        return gradient
    limit = np.float32(max_norm) / (norm + np.float32(1e-6))
    return gradient * (ONE if limit > 1 else limit)


def apply_gradient(adam: AdamState, gradient: Floats, step: np.float32, deviation: np.float32) -> None:
    """Take one step of Adam (Kingma & Ba 2015, arXiv:1412.6980); its number is the caller's to count."""
    keep_m, keep_v = np.float32(adam.momentum_decay), np.float32(adam.variance_decay)
    adam.momentum[:] = adam.momentum * keep_m + gradient * (ONE - keep_m)
    adam.variance[:] = adam.variance * keep_v + (gradient * gradient) * (ONE - keep_v)
    adam.parameters -= (adam.momentum * step) / (np.sqrt(adam.variance) * deviation + np.float32(adam.epsilon))


def approach(targets: Floats, parameters: Floats, tau: float) -> None:
    """Move targets towards the parameters by a share; all the way is a copy."""
    targets[:] = parameters if tau == 1 else targets + (parameters - targets) * np.float32(tau)
