"""Evenly spread centroids of a CVT archive (Vassiliades, Chatzilygeroudis & Mouret 2018, arXiv:1610.05729)."""

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, keyed_generator

SAMPLES_PER_CELL = 20
ROUNDS = 25


def spread_centroids(cells: int, dimensions: int, seed: int) -> NDArray[np.float64]:
    """Return centroids [cells, dimensions] of uniform samples in the unit cube, by Lloyd's algorithm.

    They depend only on the arguments: distances and sums have a fixed order, unlike those of a threaded k-means.
    """
    from scipy.spatial import KDTree  # slow to import

    generator = keyed_generator(seed, Stream.CENTROIDS)
    samples = generator.random((cells * SAMPLES_PER_CELL, dimensions))
    centroids = samples[:cells].copy()
    for _ in range(ROUNDS):
        nearest = KDTree(centroids).query(samples)[1]
        counts = np.bincount(nearest, minlength=cells)
        filled = counts > 0
        for k in range(dimensions):
            centroids[filled, k] = np.bincount(nearest, samples[:, k], cells)[filled] / counts[filled]
    return centroids
