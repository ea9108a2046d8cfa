"""2048's rules, by hand."""

from typing import Any

import numpy as np
import pytest

from paddock.envs.games.game_2048 import Game2048, slide


@pytest.mark.parametrize(
    ("line", "slid", "score"),
    [
        ([0, 1, 0, 2], [1, 2, 0, 0], 0),
        ([1, 1, 0, 0], [2, 0, 0, 0], 4),
        ([1, 1, 1, 0], [2, 1, 0, 0], 4),  # the two that come first
        ([1, 1, 2, 0], [2, 2, 0, 0], 4),  # what was joined is not joined again
        ([3, 0, 3, 3], [4, 3, 0, 0], 16),
        ([5, 5, 5, 5], [6, 6, 0, 0], 128),
        ([17, 17, 0, 0], [17, 17, 0, 0], 0),
    ],
)
def test_a_line_slides_to_its_front(line: list[int], slid: list[int], score: int) -> None:
    assert slide(line) == (slid, score)


def played(board: list[int], action: int) -> tuple[list[int], float, bool, list[int]]:
    env: Any = Game2048()
    env.reset(seed=0)
    env._board = list(board)
    seen, reward, over, *_ = env.step(np.int64(action))
    return seen["board"].ravel().tolist(), reward, over, seen["action_mask"].tolist()


def test_each_action_slides_to_its_side_and_one_tile_comes() -> None:
    board = [0] * 16
    board[5] = 4
    for action, cell in enumerate((1, 7, 13, 4)):  # up, right, down, left
        after, reward, over, _ = played(board, action)
        assert after[cell] == 4 and sum(power > 0 for power in after) == 2 and reward == 0 and not over


def test_an_action_that_moves_nothing_does_nothing_and_the_mask_says_so() -> None:
    board = [1, 2, 3, 4, *[0] * 12]
    after, reward, over, mask = played(board, 0)
    assert (after, reward, over) == (board, 0.0, False) and mask == [0, 0, 1, 0]


def test_it_ends_where_no_tile_can_move() -> None:
    full = [1, 2, 1, 2, 2, 1, 2, 1, 1, 2, 1, 2, 2, 1, 2, 0]
    after, _, over, mask = played(full, 1)  # the last row slides right, and its first cell is filled
    assert over == (not any(mask)) and after[13:] == [2, 1, 2]
