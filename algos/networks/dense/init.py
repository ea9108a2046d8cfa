"""Parameter initialization of dense networks, bit-identical on every CPU."""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.dense.shape import DenseShape, Floats

GAIN, POLICY_GAIN, VALUE_GAIN = 2**0.5, 0.01, 1.0  # hidden layers, policy output, value output


def init_parameters(shape: DenseShape, initial_log_std: float, seed: int) -> Floats:
    """Return flat parameters [P] with orthogonal weights and zero biases."""
    generator = np.random.default_rng(seed % 2**63)
    arrays = [np.full(shape.log_stds, initial_log_std, np.float32)]
    for sizes, last in zip(shape.chains, (GAIN, POLICY_GAIN, VALUE_GAIN), strict=True):
        for k, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            gain = last if k == len(sizes) - 2 else GAIN
            weights = gain * init_orthogonal(fan_out, fan_in, generator)
            arrays += [weights.astype(np.float32).ravel(), np.zeros(fan_out, np.float32)]
    return np.concatenate(arrays)


def init_uniform(sizes: Sequence[int], generator: np.random.Generator) -> Floats:
    """Return flat parameters of layers [out, in], if any, uniform within 1 / sqrt(inputs), as in torch's `Linear`."""
    arrays = [np.zeros(0, np.float32)]
    for fan_in, fan_out in itertools.pairwise(sizes):
        limit = 1 / np.sqrt(fan_in) if fan_in else 0.0  # observations without features
        arrays += [generator.uniform(-limit, limit, count).astype(np.float32) for count in (fan_in * fan_out, fan_out)]
    return np.concatenate(arrays)


def init_orthogonal(rows: int, columns: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return a random matrix with orthonormal rows, or columns if fewer (Saxe et al. 2014).

    Gram-Schmidt is applied twice; LAPACK's factorizations differ in the last bits between CPUs.
    """
    count, length = sorted((rows, columns))
    vectors = generator.standard_normal((count, length))
    for k, vector in enumerate(vectors):
        for _ in range(2):
            shares = (vectors[:k] * vector).sum(axis=1)
            vector -= (shares[:, None] * vectors[:k]).sum(axis=0)
        vector /= np.sqrt((vector * vector).sum())
    return vectors if rows <= columns else vectors.T
