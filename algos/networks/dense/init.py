"""The parameters that dense networks begin with, drawn to the same bits on every processor."""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.dense.shape import DenseShape, Floats

GAIN, POLICY_GAIN, VALUE_GAIN = 2**0.5, 0.01, 1.0  # of hidden layers, the policy's outputs and the value


def init_parameters(shape: DenseShape, initial_log_std: float, seed: int) -> Floats:
    """Return flat parameters [P]: weights are orthogonal, biases 0."""
    generator = np.random.default_rng(seed % 2**63)
    parts = [np.full(shape.log_stds, initial_log_std, np.float32)]
    for sizes, last in zip(shape.chains, (GAIN, POLICY_GAIN, VALUE_GAIN), strict=True):
        for k, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            gain = last if k == len(sizes) - 2 else GAIN
            weights = gain * init_orthogonal(fan_out, fan_in, generator)
            parts += [weights.astype(np.float32).ravel(), np.zeros(fan_out, np.float32)]
    return np.concatenate(parts)


def init_uniform(sizes: Sequence[int], generator: np.random.Generator) -> Floats:
    """Return flat parameters of a chain of dense layers, drawn within 1 / sqrt(inputs), weights [out, in] and biases.

    So do torch's `Linear` layers begin.

    Args:
        sizes: widths from input to output; (), or one alone, has no layers.
    """
    parts = [np.zeros(0, np.float32)]
    for fan_in, fan_out in itertools.pairwise(sizes):
        limit = 1 / np.sqrt(fan_in) if fan_in else 0.0  # as where an observation is a text or a mask alone
        parts += [generator.uniform(-limit, limit, count).astype(np.float32) for count in (fan_in * fan_out, fan_out)]
    return np.concatenate(parts)


def init_orthogonal(rows: int, columns: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return a random matrix whose rows, or columns if they are fewer, are orthonormal (Saxe et al. 2014).

    By Gram and Schmidt, twice over, as a library's factorization has other last bits on other processors.
    """
    count, length = sorted((rows, columns))
    vectors = generator.standard_normal((count, length))
    for k, vector in enumerate(vectors):
        for _ in range(2):
            shares = (vectors[:k] * vector).sum(axis=1)
            vector -= (shares[:, None] * vectors[:k]).sum(axis=0)
        vector /= np.sqrt((vector * vector).sum())
    return vectors if rows <= columns else vectors.T
