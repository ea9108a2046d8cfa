"""Advantages, returns and the flow of plans; expected numbers are worked by hand."""

import threading
from collections.abc import Generator

import numpy as np
import pytest

from algos.learning.flow import minibatches, prefetch
from algos.learning.returns import gae, n_step, vtrace

REWARD, VALUE, FOLLOWING = ([[1.0], [2.0], [3.0]], [[0.5], [0.4], [0.3]], [[0.4], [0.3], [0.2]])
NEVER = np.zeros((3, 1), bool)
AT_1 = np.array([[False], [True], [False]])


def column(values: list[list[float]]) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("terminated", "truncated", "following_1", "expected"),
    [
        # Errors 0.86, 1.87, 2.88, each carried back by 0.9 x 0.8 = 0.72.
        (NEVER, NEVER, 0.3, [3.699392, 3.9436, 2.88]),
        # Step 1 ends the episode for good: 2 - 0.4, and nothing of step 2.
        (AT_1, NEVER, 99.0, [2.012, 1.6, 2.88]),
        # Step 1 is cut off where the final observation is worth 0.7: 2 + 0.9 x 0.7 - 0.4.
        (NEVER, AT_1, 0.7, [2.4656, 2.23, 2.88]),
    ],
    ids=["running", "terminated", "truncated"],
)
def test_generalized_advantages(
    terminated: np.ndarray, truncated: np.ndarray, following_1: float, expected: list[float]
) -> None:
    following = column([FOLLOWING[0], [following_1], FOLLOWING[2]])
    advantage = gae(column(REWARD), column(VALUE), following, terminated, truncated, 0.9, 0.8)
    np.testing.assert_allclose(advantage[:, 0], expected, rtol=1e-6)
    assert advantage.dtype == np.float32


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [
        (NEVER, NEVER, [1 + 0.9 * (2 + 0.9 * 3.18), 2 + 0.9 * 3.18, 3.18]),
        (AT_1, NEVER, [1 + 0.9 * 2, 2, 3.18]),
        (NEVER, AT_1, [1 + 0.9 * 2.27, 2 + 0.9 * 0.3, 3.18]),
    ],
    ids=["running", "terminated", "truncated"],
)
def test_n_step_returns(terminated: np.ndarray, truncated: np.ndarray, expected: list[float]) -> None:
    returns = n_step(column(REWARD), column(FOLLOWING), terminated, truncated, 0.9)
    np.testing.assert_allclose(returns[:, 0], expected, rtol=1e-6)


def test_vtrace_of_the_policy_itself_gives_lambda_returns() -> None:
    generator = np.random.default_rng(0)
    reward, value, following = generator.standard_normal((3, 20, 4)).astype(np.float32)
    terminated = generator.random((20, 4)) < 0.1
    truncated = ~terminated & (generator.random((20, 4)) < 0.1)
    ends = (terminated, truncated)
    target, _ = vtrace(reward, value, following, *ends, 0.9, 0.8, np.ones((20, 4), np.float32))
    advantage = gae(reward, value, following, *ends, 0.9, 0.8)
    np.testing.assert_allclose(target, value + advantage, rtol=1e-5, atol=1e-5)


def test_vtrace_weighs_steps_by_bounded_ratios() -> None:
    ratio = column([[0.5], [3.0], [1.0]])
    target, advantage = vtrace(column(REWARD), column(VALUE), column(FOLLOWING), NEVER, NEVER, 0.9, 1.0, ratio)
    # Errors 0.43, 1.87 (3 counts as 1), 2.88; carried back by 0.9 x 0.5, 0.9 and 0.9.
    corrections = [0.43 + 0.45 * (1.87 + 0.9 * 2.88), 1.87 + 0.9 * 2.88, 2.88]
    np.testing.assert_allclose(target[:, 0], np.array([0.5, 0.4, 0.3]) + corrections, rtol=1e-6)
    np.testing.assert_allclose(advantage[0, 0], 0.5 * (1 + 0.9 * (0.4 + corrections[1]) - 0.5), rtol=1e-6)


# Flow


def test_prefetch_keeps_the_order_and_stays_within_its_depth() -> None:
    pulled = []

    def source() -> Generator[int, None, None]:
        for k in range(20):
            pulled.append(k)
            yield k

    ahead = prefetch(source(), 2)
    for k in range(20):
        assert next(ahead) == k
        assert len(pulled) <= k + 4  # the one handed over, two waiting, one in the thread's hand
    assert next(ahead, None) is None


def test_prefetch_raises_in_its_place() -> None:
    def source() -> Generator[int, None, None]:
        yield 1
        raise ZeroDivisionError("two")

    ahead = prefetch(source(), 4)
    assert next(ahead) == 1
    with pytest.raises(ZeroDivisionError, match="two"):
        next(ahead)


def test_closing_prefetch_closes_its_source_and_ends_its_thread() -> None:
    closed = []

    def source() -> Generator[int, None, None]:
        try:
            while True:
                yield 0
        finally:
            closed.append(threading.current_thread().name)

    before = threading.active_count()
    ahead = prefetch(source(), 1)
    next(ahead)
    ahead.close()
    assert closed == ["prefetch"] and threading.active_count() == before


def test_minibatches_are_a_shuffle_cut_in_parts() -> None:
    parts = list(minibatches(10, 4, np.random.default_rng(0)))
    assert [len(part) for part in parts] == [4, 4, 2]
    assert sorted(np.concatenate(parts)) == list(range(10))
    assert [list(part) for part in parts] == [list(part) for part in minibatches(10, 4, np.random.default_rng(0))]
