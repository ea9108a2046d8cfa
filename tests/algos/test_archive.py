"""Archives of quality diversity, by hand-worked examples and properties."""

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from paddock.algos.evolution.archive import CVT, Added, Archive, Cells, Grid
from paddock.algos.evolution.centroids import spread_centroids

LOW, HIGH = np.array([0.0, 0.0]), np.array([1.0, 2.0])
GRID = Grid(LOW, HIGH, (2, 4))


def archive(cells: Cells = GRID, learning_rate: float = 1.0, threshold_min: float = float("-inf")) -> Archive:
    return Archive(cells, 1, learning_rate, threshold_min)


def add(to: Archive, *members: tuple[float, float, float], iteration: int = 1) -> Added:
    """Add members (objective, two descriptors), whose only parameter is their position in the batch."""
    values = np.array(members, np.float64)
    return to.add(np.arange(len(values), dtype=np.float32)[:, None], values[:, 0], values[:, 1:], iteration)


def contents(of: Archive) -> dict[str, Any]:
    return {name: array.tolist() for name, array in of.state_dict().items()}


def test_cells_are_in_row_major_order_and_the_outermost_are_open() -> None:
    places = [[0, 0], [0.49, 0.5], [0.5, 1.99], [1, 2], [-9, 9], [9, -9]]
    assert GRID.index_of(np.array(places)).tolist() == [0, 1, 7, 7, 3, 4]
    added = add(archive(), (1, 0, 0), (1, 1, 2), (1, -9, 0.6), (1, 9, -9))
    assert (added.new, added.clipped) == (4, 2)  # the edges are inside


def test_the_best_of_a_batch_wins_and_the_first_of_equals() -> None:
    one = archive()
    added = add(one, (1, 0.1, 0.1), (3, 0.2, 0.2), (3, 0.3, 0.3), (2, 0.4, 0.4), (5, 0.9, 0.1))
    assert (one.occupied.tolist(), one.best) == ([0, 4], 4)
    assert (one.solutions[0, 0], one.objective[0], one.descriptors[0].tolist()) == (1, 3, [0.2, 0.2])
    assert (added.new, added.improved) == (2, 0)
    added = add(one, (3, 0.1, 0.1), (4, 0.4, 0.4), (5, 0.9, 0.1), iteration=2)
    assert added.improvement.tolist() == [0, 1, 0]  # an equal member does not replace an elite
    assert (one.born[[0, 4]].tolist(), added.new, added.improved) == ([2, 1], 0, 1)


def test_the_order_of_a_batch_changes_nothing_without_ties() -> None:
    generator = np.random.default_rng(1)
    members = generator.normal(size=(50, 3))
    one, other = archive(learning_rate=0.3, threshold_min=-1), archive(learning_rate=0.3, threshold_min=-1)
    order = generator.permutation(50)
    one.add(members[:, :1].astype(np.float32), members[:, 0], members[:, 1:], 1)
    other.add(members[order, :1].astype(np.float32), members[order, 0], members[order, 1:], 1)
    for name, array in one.state_dict().items():
        np.testing.assert_allclose(array, getattr(other, name), atol=1e-12)


def test_what_is_not_finite_enters_nothing() -> None:
    one = archive()
    added = add(one, (np.nan, 0.1, 0.1), (np.inf, 0.1, 0.1), (1, np.nan, 0.1), (-7, 0.1, 0.1))
    assert np.isnan(added.improvement).tolist() == [True, True, True, False]
    assert (one.occupied.tolist(), one.objective[0]) == ([0], -7)


def test_thresholds_rise_as_far_as_that_many_single_steps() -> None:
    one = archive(learning_rate=0.1, threshold_min=-10)
    added = add(one, (0, 0.1, 0.1), (4, 0.2, 0.1), (-11, 0.1, 0.1), (-11, 0.9, 0.1))
    # Two of three are accepted: 0.9^2 of the way from their mean, 2, is left of -10.
    assert one.threshold[0] == pytest.approx(0.81 * -10 + 0.19 * 2, abs=1e-12)
    assert added.improvement.tolist() == [10, 14, -1, -1]
    assert one.occupied.tolist() == [0]  # the last member does not exceed the minimum
    before, threshold = one.objective[0], one.threshold[0]
    assert add(one, (3, 0.1, 0.1)).improved == 0  # accepted by the threshold, but the elite is better
    assert (one.objective[0], one.threshold[0]) == (before, pytest.approx(0.9 * threshold + 0.1 * 3))


def test_the_qd_score_never_falls_with_a_learning_rate_of_1() -> None:
    generator, one = np.random.default_rng(2), archive()
    scores = []
    for _ in range(30):
        members = generator.normal(size=(20, 3))
        add(one, *map(tuple, members))
        scores.append(one.score(offset=-10))
    assert np.diff(scores).min() >= 0 and scores[-1] > scores[0]
    assert one.score(-10) == pytest.approx(sum(one.objective[cell] + 10 for cell in one.occupied))


def test_centroids_do_not_depend_on_threads_and_are_spread_evenly() -> None:
    with threadpool_limits(1):
        alone = spread_centroids(64, 2, seed=3)
    with threadpool_limits(2):
        np.testing.assert_array_equal(spread_centroids(64, 2, seed=3), alone)
    assert not np.array_equal(alone, spread_centroids(64, 2, seed=4))
    tessellation = CVT(np.zeros(2), np.ones(2), alone)
    assert tessellation.index_of(alone).tolist() == list(range(64))
    shares = np.bincount(tessellation.index_of(np.random.default_rng(0).random((64_000, 2))), minlength=64) / 1000
    assert shares.std() < 0.35  # around random points 0.5


def test_distances_are_relative_to_the_ranges_of_descriptors() -> None:
    centroids = np.array([[0.25, 0.5], [0.75, 0.5]])
    wide = CVT(np.array([0.0, -100]), np.array([1.0, 100]), centroids)
    assert wide.index_of(np.array([[0.3, 99.0], [0.7, -99.0]])).tolist() == [0, 1]
    one = archive(Grid(np.array([0.0, -100]), np.array([1.0, 100]), (2, 2)))
    add(one, (1, 0.1, 40), (1, 0.9, -10))
    assert one.nearest([0.2, -10]) == 1  # 0.1 and 0.25 away against 0.7 and 0


def test_a_state_restores_the_archive() -> None:
    one, other = archive(), archive()
    add(one, (1, 0.1, 0.1), (5, 0.9, 0.1))
    other.load_state_dict({name: array.copy() for name, array in one.state_dict().items()})
    assert contents(other) == contents(one)
    assert [add(each, (3, 0.1, 0.1)).improved for each in (one, other)] == [1, 1]
    assert contents(other) == contents(one)
