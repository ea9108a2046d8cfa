"""Scores of few seeds: by hand, and against rliable, whose numbers they are."""

import importlib.util
import logging
import sys
import types
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import bootstrap, trim_mean

from paddock.reports import statistics

Array = NDArray[np.float64]


@pytest.fixture
def table() -> tuple[Array, Array]:
    """Scores of two algorithms on three tasks, of 7 and 5 seeds; some are equal."""
    generator = np.random.default_rng(0)
    return generator.normal(size=(7, 3)).round(1), generator.normal(0.5, size=(5, 3)).round(1)


@pytest.fixture
def rliable(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.SimpleNamespace]:
    """rliable's modules; of arch, the bootstrap that it needs alone, since the rest of arch 7 lags behind pandas 3."""
    pytest.importorskip("rliable", reason="rliable is not installed: pip install rliable")
    before = set(sys.modules)
    spec = importlib.util.find_spec("arch")
    assert spec is not None and spec.submodule_search_locations is not None
    arch = types.ModuleType("arch")
    arch.__path__ = list(spec.submodule_search_locations)
    monkeypatch.setitem(sys.modules, "arch", arch)
    # Nor absl's logging, which would close the streams of the tests that come after.
    absl = types.ModuleType("absl")
    absl.__dict__["logging"] = logging
    monkeypatch.setitem(sys.modules, "absl", absl)
    from rliable import library, metrics

    yield types.SimpleNamespace(library=library, metrics=metrics)
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("arch", "rliable"):
            del sys.modules[name]


# By hand


def test_interquartile_mean_is_that_of_the_middle_half() -> None:
    # Of 1 to 8, a quarter is two: what is left is 3, 4, 5 and 6.
    assert statistics.interquartile_mean(np.arange(1.0, 9)[:, None]) == 4.5
    assert statistics.interquartile_mean([[1, 100], [3, 4], [5, 6], [-50, 8]]) == 4.5
    # Of three, a quarter is less than one: nothing is cut.
    assert statistics.interquartile_mean([[0], [0], [9]]) == 3
    assert statistics.interquartile_mean(np.zeros((2, 4, 5, 3))).shape == (2, 4)


def test_profile_is_the_share_above_each_threshold() -> None:
    share, low, high = statistics.performance_profile([[1, 2], [3, 4]], [0, 1, 2.5, 4])
    assert share.tolist() == [1, 0.75, 0.5, 0]
    assert ((low <= share) & (share <= high)).all()
    assert (low[0], high[0], low[3], high[3]) == (1, 1, 0, 0)


def test_improvement_counts_wins_and_half_the_ties() -> None:
    # 2 beats 1 and ties with 2; 3 beats both: 3.5 of 4.
    assert statistics.improvement([[2], [3]], [[1], [2]]) == 0.875
    assert statistics.improvement([[1], [2]], [[2], [3]]) == 0.125
    assert statistics.improvement([[1], [1]], [[1], [1]]) == 0.5
    # On a second task it always loses: (0.875 + 0) / 2.
    assert statistics.improvement([[2, 0], [3, 0]], [[1, 1], [2, 1]]) == 0.4375


def test_intervals_are_reproducible_whatever_the_chunks(
    table: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = table
    first = statistics.interval(x, seed=3), statistics.improvement_interval(x, y, seed=3)
    assert (statistics.interval(x, seed=3), statistics.improvement_interval(x, y, seed=3)) == first
    assert statistics.interval(x, seed=4) != first[0]
    monkeypatch.setattr(statistics, "CHUNK", 1000)
    assert statistics.interval(x, seed=3) == first[0]


def test_single_seed_has_no_interval() -> None:
    assert np.isnan(statistics.interval([[1.0, 2.0]])).all()
    assert np.isnan(statistics.improvement_interval([[1.0]], [[1.0], [2.0]])).all()


def test_intervals_agree_with_scipy(table: tuple[Array, Array]) -> None:
    tasks = tuple(table[0].T)
    found = bootstrap(
        tasks,
        lambda *drawn, axis: trim_mean(np.concatenate(drawn, axis=axis), 0.25, axis=axis),
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    low, high = statistics.interval(table[0], resamples=20_000)
    # The ends of such intervals are sure to about 1/100 of their width of 0.7.
    assert (low, high) == (pytest.approx(found.low, abs=0.02), pytest.approx(found.high, abs=0.02))


# Against rliable


def test_points_equal_those_of_rliable(table: tuple[Array, Array], rliable: types.SimpleNamespace) -> None:
    x, y = table
    assert statistics.interquartile_mean(x) == pytest.approx(rliable.metrics.aggregate_iqm(x), rel=1e-12)
    assert statistics.mean(x) == pytest.approx(rliable.metrics.aggregate_mean(x), rel=1e-12)
    for a, b in ((x, y), (y, x), (x, x)):
        assert statistics.improvement(a, b) == pytest.approx(
            rliable.metrics.probability_of_improvement(a, b), rel=1e-12
        )
    thresholds = np.linspace(-2, 2, 9)
    profile = rliable.library.create_performance_profile({"x": x}, thresholds, reps=10)[0]["x"]
    np.testing.assert_allclose(statistics.performance_profile(x, thresholds)[0], profile, rtol=1e-12)


def test_intervals_equal_those_of_rliable_for_equal_draws(
    table: tuple[Array, Array], rliable: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, resamples = table[0], 500
    draws = iter(np.random.Generator(np.random.Philox(key=3)).integers(len(x), size=(resamples, *x.shape)))
    monkeypatch.setattr("numpy.random.choice", lambda n, size, replace: next(draws))
    _, theirs = rliable.library.get_interval_estimates(
        {"x": x}, lambda s: np.array([rliable.metrics.aggregate_iqm(s)]), reps=resamples
    )
    np.testing.assert_allclose(statistics.interval(x, seed=3, resamples=resamples), theirs["x"][:, 0], rtol=1e-12)
