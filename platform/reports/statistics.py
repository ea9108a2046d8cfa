"""Statistics of scores with few seeds (Agarwal et al. 2021, arXiv:2108.13264), identical to rliable's.

Scores are [..., R, N]: R runs, which differ in the seed, on each of N tasks.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..runs.lazy_imports import scipy

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]  # [..., R, N] -> [...]

LEVEL = 0.95  # of an interval
RESAMPLES = 2000
CHUNK = 1 << 21  # resampled values in memory at once


def interquartile_mean(scores: ArrayLike) -> Array:
    """Return the mean of the middle half of all scores of all tasks: [..., R, N] -> [...]."""
    scores = np.asarray(scores, np.float64)
    return np.asarray(scipy.stats.trim_mean(scores.reshape(*scores.shape[:-2], -1), 0.25, axis=-1))


def mean(scores: ArrayLike) -> Array:
    """Return the mean of all scores of all tasks: [..., R, N] -> [...]."""
    return np.mean(np.asarray(scores, np.float64), axis=(-2, -1))


def interval(
    scores: ArrayLike,
    statistic: Statistic = interquartile_mean,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[Array, Array]:
    """Return a percentile interval of a statistic by stratified bootstrap: runs are resampled within each task.

    Args:
        scores: [..., R, N].
        statistic: [..., R, N] -> [...].
        seed: of the resampling.
        resamples: number of bootstrap samples.

    Returns:
        (low [...], high [...]); NaN for a single run.
    """
    scores = np.asarray(scores, np.float64)
    if scores.shape[-2] < 2:
        nothing = np.full(scores.shape[:-2], np.nan)
        return nothing, nothing
    return _central(_resampled(statistic, [scores], _generator(seed), resamples))


def performance_profile(scores: ArrayLike, thresholds: ArrayLike) -> tuple[Array, Array, Array]:
    """Return the share of runs, over all tasks, that score above each threshold, with its interval.

    Args:
        scores: [R, N].
        thresholds: [K].

    Returns:
        (share, low, high), [K] each.
    """
    above = np.asarray(scores)[None] > np.asarray(thresholds)[:, None, None]
    return mean(above), *interval(above, mean)


def improvement(x: ArrayLike, y: ArrayLike) -> Array:
    """Return the probability that a run of X scores above one of Y, averaged over tasks; ties count half.

    X is [..., R, N], Y is [..., S, N], and the result [...].
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    # Only the U statistic is used, and the asymptotic p-value is cheaper.
    wins = scipy.stats.mannwhitneyu(x, y, axis=-2, method="asymptotic").statistic
    return np.mean(wins / (x.shape[-2] * y.shape[-2]), axis=-1)


def improvement_interval(x: ArrayLike, y: ArrayLike, *, seed: int = 0) -> tuple[float, float]:
    """Return a percentile interval of `improvement` for X [R, N] and Y [S, N], resampling runs within each task.

    Returns:
        (low, high); NaN if one side is a single run.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if min(len(x), len(y)) < 2:
        return np.nan, np.nan
    low, high = _central(_resampled(improvement, [x, y], _generator(seed), RESAMPLES))
    return float(low), float(high)


def mean_improvement_interval(tasks: Sequence[tuple[Array, Array]]) -> tuple[float, float]:
    """Return the interval of `improvement`, averaged over tasks with scores ([R], [S]) of X and Y."""
    generator = _generator(0)
    values = [_resampled(improvement, [x[:, None], y[:, None]], generator, RESAMPLES) for x, y in tasks]
    low, high = _central(np.mean(values, axis=0))
    return float(low), float(high)


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def _central(values: Array) -> tuple[Array, Array]:
    """Return the bounds of the central `LEVEL` of values [..., count]."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    return low, high


def _resampled(
    statistic: Callable[..., Array], samples: Sequence[Array], generator: np.random.Generator, resamples: int
) -> Array:
    """Return a statistic [..., resamples] of resampled samples [..., R, N]."""
    most = max(CHUNK // sum(sample.size for sample in samples), 1)
    counts = [min(most, resamples - done) for done in range(0, resamples, most)]
    values = [statistic(*(_resample(sample, n, generator) for sample in samples)) for n in counts]
    return np.concatenate(values, axis=-1)


def _resample(scores: Array, count: int, generator: np.random.Generator) -> Array:
    """Resample [..., R, N] -> [..., count, R, N], with the same indices for all leading dimensions."""
    runs, number = scores.shape[-2:]
    rows = generator.integers(runs, size=(count, runs, number))
    return scores[..., rows, np.arange(number)]
