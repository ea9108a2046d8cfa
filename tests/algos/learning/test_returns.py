"""Advantages, returns and the flow of plans; expected numbers are worked by hand."""

import threading
from collections.abc import Generator

import numpy as np
import pytest

from paddock.algos.learning.flow import minibatches, prefetch
from paddock.algos.learning.returns import gae, n_step, vtrace
from paddock.algos.multiagent.aec import completed_transitions

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


# Turns: row 0 acts first and row 1 waits; then each waits for the other, and row 0 dies in step 3, while it waits.
ACTS = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [0, 1], [0, 0]], bool)
TURN_REWARD = np.array([[1, 9], [2, 4], [3, 8], [5, 16], [0, 32]], np.float32)
TURN_VALUE = np.array([[0.5, 7], [7, 0.25], [1.5, 7], [np.nan, 1], [np.nan, 2]], np.float32)
TURN_FOLLOWING = np.array([[7, 0.25], [1.5, 7], [7, 1], [7, 2], [np.nan, 7]], np.float32)
DIES = np.array([[0, 0], [0, 0], [0, 0], [1, 0], [0, 0]], bool)
NOBODY = np.zeros((5, 2), bool)


def test_a_turn_spans_to_the_next_one_or_to_the_end_of_the_life() -> None:
    finished = completed_transitions(DIES, NOBODY, ACTS)
    # Row 0 acts in steps 0 and 2. Row 1 acts in 1, 3 and 4; what came of the last nobody saw.
    np.testing.assert_array_equal(finished, [[1, 0], [0, 1], [1, 0], [0, 1], [0, 0]])
    steps = TURN_REWARD, TURN_VALUE, TURN_FOLLOWING, DIES, NOBODY
    advantage = gae(*steps, 0.5, 0.5, ACTS)
    # Row 0: rewards 1 + 2, then 1.5 follows; rewards 3 + 5, and it is dead. The reward that row 1 had before it acted
    # is of no turn: 4 + 8, then 1 follows; 16, then 2 follows.
    last_0, last_1 = 8 - 1.5, 16 + 0.5 * 2 - 1
    expected = [
        [3 + 0.5 * 1.5 - 0.5 + 0.25 * last_0, 0],
        [0, 12 + 0.5 - 0.25 + 0.25 * last_1],
        [last_0, 0],
        [0, last_1],
    ]
    np.testing.assert_array_equal(advantage, np.array([*expected, [0, 0]], np.float32))
    returns = n_step(TURN_REWARD, TURN_FOLLOWING, DIES, NOBODY, 0.5, ACTS)
    np.testing.assert_array_equal(returns, [[3 + 0.5 * 8, 0], [0, 12 + 0.5 * 17], [8, 0], [0, 17], [0, 0]])
    target, seen = vtrace(*steps, 0.5, 0.5, np.ones((5, 2), np.float32), acts=ACTS)
    np.testing.assert_array_equal(target[finished], (TURN_VALUE + advantage)[finished])
    assert seen[2, 0] == last_0 and seen[3, 1] == last_1 and not seen[~finished].any()


def test_a_life_cut_off_while_its_row_waits_is_worth_its_final_observation() -> None:
    following = np.where(DIES, np.float32(6), TURN_FOLLOWING)
    advantage = gae(TURN_REWARD, TURN_VALUE, following, NOBODY, DIES, 0.5, 0.5, ACTS)
    assert advantage[2, 0] == 8 + 0.5 * 6 - 1.5


def test_where_every_row_acts_the_returns_are_the_same_bits() -> None:
    generator = np.random.default_rng(1)
    reward, value, following, ratio = generator.standard_normal((4, 20, 4)).astype(np.float32)
    terminated = generator.random((20, 4)) < 0.1
    ends = terminated, ~terminated & (generator.random((20, 4)) < 0.1)
    everyone = np.ones((21, 4), bool)
    with_acts = [
        gae(reward, value, following, *ends, 0.9, 0.8, everyone),
        n_step(reward, following, *ends, 0.9, everyone),
        *vtrace(reward, value, following, *ends, 0.9, 0.8, ratio, acts=everyone),
    ]
    without = [
        gae(reward, value, following, *ends, 0.9, 0.8),
        n_step(reward, following, *ends, 0.9),
        *vtrace(reward, value, following, *ends, 0.9, 0.8, ratio),
    ]
    assert [each.tobytes() for each in with_acts] == [each.tobytes() for each in without]


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

    before = {*threading.enumerate()}
    ahead = prefetch(source(), 1)
    next(ahead)
    ahead.close()
    assert closed == ["prefetch"] and before >= {*threading.enumerate()}


def test_minibatches_are_a_shuffle_cut_in_parts() -> None:
    parts = list(minibatches(10, 4, np.random.default_rng(0)))
    assert [len(part) for part in parts] == [4, 4, 2]
    assert sorted(np.concatenate(parts)) == list(range(10))
    assert [list(part) for part in parts] == [list(part) for part in minibatches(10, 4, np.random.default_rng(0))]
