"""The comparison of games with MinAtar's plays both sides by the same policies, and tells what they come to."""

import sys
from pathlib import Path

import numpy as np
import pytest

from scripts.bench.contenders.minatar_games import LONGEST, PAIRS, POLICIES, follow, play_ours, policy_of
from scripts.bench.native_fidelity import compare_games, describe_sample, render_game

MINATAR = """
import numpy as np

NAMES = ("paddle", "ball", "trail", "brick")


class Environment:
    def __init__(self, name, sticky_action_prob):
        assert sticky_action_prob == 0.0
        self.env = type("Game", (), {"channels": {name: k for k, name in enumerate(NAMES)}})

    def seed(self, seed):
        self._left = 3 + seed % 2

    def reset(self):
        self._at = self._left

    def act(self, action):
        assert action in range(6)
        self._at -= 1
        return 1, self._at == 0

    def state(self):
        seen = np.zeros((10, 10, len(NAMES)), bool)
        seen[9, 4, 0] = seen[5, 3, 1] = seen[4, 2, 2] = True
        return seen
"""


def planes(ball: int, trail: int, *paddle: int) -> dict[str, np.ndarray]:
    seen = {name: np.zeros((10, 10), np.bool_) for name in ("ball", "trail", "paddle")}
    seen["ball"][5, ball] = seen["trail"][4, trail] = True
    seen["paddle"][9, list(paddle)] = True
    return seen


@pytest.mark.parametrize(
    "seen, letter",
    [
        (planes(3, 2, 5, 6), "l"),  # to 4
        (planes(4, 3, 5, 6), "n"),
        (planes(6, 5, 5), "r"),
        (planes(9, 8, 8), "n"),  # a wall: back to 8
        (planes(0, 1, 4), "l"),
    ],
)
def test_the_paddle_follows_the_ball(seen: dict[str, np.ndarray], letter: str) -> None:
    assert follow(seen, 0, np.random.default_rng(0)) == letter


@pytest.mark.parametrize("game", PAIRS)
def test_a_policy_does_what_our_game_has_and_plays_the_same_on_a_seed(game: str) -> None:
    seeds = (0, 1) if game == "Road" else (0, 3)
    for policy in POLICIES:
        played = play_ours(game, policy, *seeds)
        assert played == play_ours(game, policy, *seeds)
        assert len(played["returns"]) == seeds[1] and all(0 < length <= LONGEST for length in played["lengths"])
    draws = {policy_of(PAIRS[game], "random")({}, 0, np.random.default_rng(k)) for k in range(100)}
    assert draws == set(PAIRS[game].letters)


def test_games_are_compared_by_returns_and_lengths_of_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "minatar.py").write_text(MINATAR)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("scripts.bench.contenders.minatar_games.PAIRS", {"Bricks": PAIRS["Bricks"]})
    monkeypatch.setattr("scripts.bench.contenders.minatar_games.LONGEST", 100)
    random, scripted = compare_games(sys.executable, 4)
    for row in (random, scripted):
        assert row["returns"]["minatar"] == row["lengths"]["minatar"] and row["lengths"]["minatar"]["mean"] == 3.5
    assert scripted["returns"]["ours"]["mean"] > random["returns"]["ours"]["mean"]
    assert render_game(scripted) in capsys.readouterr().out
    assert describe_sample([1.0, 1.0]) == {"mean": 1.0, "low": 1.0, "high": 1.0}
