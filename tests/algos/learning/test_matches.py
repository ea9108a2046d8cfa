"""Matches, ratings and scripted players, by the laws they obey."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_agents import config  # type: ignore[import-not-found]  # pytest puts this folder on the path

from paddock.algos.multiagent.joint_policy import JointPolicy
from paddock.algos.multiagent.selfplay.matches import MatchPlayers, play_against, play_all, play_match, scores
from paddock.algos.multiagent.selfplay.ratings import rate
from paddock.algos.multiagent.selfplay.scripted import Random, random_player
from paddock.algos.multiagent.selfplay.sides import is_symmetric, sides_of
from paddock.algos.networks.inputs import spaces_of
from paddock.algos.pool.protocol import Done, WorkerLost
from paddock.algos.pool.serial import SerialPool
from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from scripts.board_players import Perfect, TwoPly

TURNS = config("agents:Turns").env


def spec(id: str) -> EnvSpec:
    return EnvSpec(id, {}, (), None, fresh=False)


def tictactoe() -> EnvSpec:
    pytest.importorskip("pettingzoo.classic", reason="install the extra multiagent")
    return spec("pettingzoo.classic.tictactoe_v3:env")


class Steady:
    """Moves as many as it says, each time."""

    def __init__(self, move: int) -> None:
        self._move = move

    def act(self, obs: Any, state: Any = None) -> Any:
        return np.full(len(obs), self._move), {}, None


def players(*policies: Any, env: EnvSpec = TURNS, drawn: bool = True) -> MatchPlayers:
    return MatchPlayers(env, policies, (drawn,) * len(policies), 1000)


# Matches


def test_wins_are_counted_for_whoever_made_them() -> None:
    # Both move 3 at a time, so that whoever moves n-th wins, where n is a third of the limit, rounded up.
    env, steady = TURNS, players(Steady(2), Steady(2))
    world = env.make()
    for seed in range(8):
        world.reset(seed=seed)
        first_wins = -(-world._limit // 3) % 2 == 1
        games = play_match(steady, 0, 1, [seed])
        assert games.returns.tolist() == ([[1, -1], [-1, 1]] if first_wins else [[-1, 1], [1, -1]])
        assert games.lengths.tolist() == [-(-world._limit // 3)] * 2


def test_a_player_of_several_policies_has_the_right_one_in_each_seat() -> None:
    both = JointPolicy(TURNS, [Steady(0), Steady(2)], [0, 1])
    whole, slow, fast = (play_match(players(one, Steady(1)), 0, 1, range(8)) for one in (both, Steady(0), Steady(2)))
    np.testing.assert_array_equal(whole.returns[:8], slow.returns[:8])
    np.testing.assert_array_equal(whole.returns[8:], fast.returns[8:])
    assert (slow.returns[:8] != fast.returns[:8]).any() and (slow.returns[8:] != fast.returns[8:]).any()


class Heard:
    """Notes who of two players acts for which role, and in which game."""

    def __init__(self, player: str, role: str, heard: list[tuple[str, str]]) -> None:
        self._who, self._heard = (player, role), heard

    def act(self, obs: Any, state: Any = None) -> Any:
        self._heard.append(self._who)
        return (np.zeros((len(obs), 2), np.float32) if self._who[1] == "other" else np.zeros(len(obs), int)), {}, None


def test_players_of_several_roles_swap_sides_in_pairs_of_games() -> None:
    env = EnvSpec("toy_worlds:Skirmish", {"kinds": 2}, (), None, fresh=False)
    heard: list[tuple[str, str]] = []
    each = [JointPolicy(env, [Heard(name, role, heard) for role in ("other", "one")], [0, 1, 1, 0]) for name in "ab"]
    for first, second, expected in ((0, 1, {("a", "other"), ("b", "one")}), (1, 0, {("b", "other"), ("a", "one")})):
        heard.clear()
        play_match(players(*each, env=env), first, second, [3])
        games = heard.copy()
        heard.clear()
        play_against(players(each[first], each[second], env=env), [3], 0)
        assert set(heard) == expected and games[: len(heard)] == heard and set(games) - set(heard)
    assert not is_symmetric(env) and is_symmetric(TURNS) and is_symmetric(spec("toy_worlds:Skirmish"))
    # From two seeds, then with sides exchanged: 3 + 1 to 2 + 1 in the first, 0 + 4 to 4 + 0 in the second.
    returns = np.array([[3.0, 2], [0, 4], [1, 1], [4, 0]])
    assert scores(env, returns).tolist() == [[2, 1.5], [2, 2]] and scores(TURNS, returns) is returns
    results = play_all(players(*each, random_player(env), env=env), [(0, 1), (0, 2)], range(4), SerialPool())
    assert results.games.tolist() == [[0, 4, 4], [4, 0, 0], [4, 0, 0]]


class Backwards(SerialPool):
    """Gives results in the opposite order, and loses the first task."""

    def __init__(self, lose: bool) -> None:
        super().__init__()
        self._lose = lose

    def imap_unordered(self, *arguments: Any, **more: Any) -> Iterator[Done]:
        for done in reversed(list(super().imap_unordered(*arguments, **more))):
            lost = self._lose and done.index == 0
            yield Done(0, error=WorkerLost("it died")) if lost else done


def test_no_pool_changes_a_number_and_what_it_loses_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    three, pairs = players(Steady(0), Steady(2), Random(TURNS)), [(0, 1), (0, 2), (1, 2)]
    here, there, lost = (
        play_all(three, pairs, range(5), pool) for pool in (SerialPool(), Backwards(False), Backwards(True))
    )
    for name in ("wins", "draws", "returns"):
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name))
    assert (here.games + 10 * np.eye(3) == 10).all() and here.draws.sum() == 0
    np.testing.assert_array_equal(here.points + here.points.T, np.where(np.eye(3), np.nan, 1.0))
    assert "games of players 0 and 1 were lost: WorkerLost: it died" in caplog.text
    assert lost.games[0, 1] == 0 and np.isnan(lost.points[0, 1]) and (lost.wins[2] == here.wins[2]).all()


def test_sides_are_teams_by_their_names_or_else_each_seat() -> None:
    assert sides_of(TURNS) == ((0,), (1,))
    assert sides_of(spec("toy_worlds:Skirmish")) == ((0,), (1,), (2,), (3,))
    assert sides_of(EnvSpec("toy_worlds:Skirmish", {"kinds": 2}, (), None, fresh=False)) == ((0, 3), (1, 2))
    with pytest.raises(ConfigError, match="has one agent; opponents and matches need"):
        sides_of(spec("CartPole-v1"))


# Ratings


def test_two_players_are_as_far_apart_as_their_points() -> None:
    # 3 wins, 1 loss and the draw that each two are given: 3.5 of 5 points.
    ratings = rate(np.array([[0, 3], [1, 0]]), np.zeros((2, 2)))
    apart = 400 * np.log10(3.5 / 1.5)
    np.testing.assert_allclose(ratings.elo, [apart / 2, -apart / 2])
    # The variance of the difference is 1 / (n p q) in log-odds, and each has half the difference.
    np.testing.assert_allclose(ratings.error, 0.5 * 400 / np.log(10) / np.sqrt(5 * 0.7 * 0.3))
    np.testing.assert_allclose(ratings.high - ratings.low, 2 * 1.959964 * ratings.error)


def test_a_draw_is_half_a_win_for_both_players_in_any_order() -> None:
    wins = np.random.default_rng(1).integers(0, 9, (5, 5)) * (1 - np.eye(5, dtype=int))
    draws = np.zeros((5, 5))
    draws[0, 3] = draws[3, 0] = 4
    halves = wins + draws / 2
    np.testing.assert_allclose(rate(wins, draws).elo, rate(halves, np.zeros((5, 5))).elo)
    order = [3, 0, 4, 1, 2]
    again = rate(wins[np.ix_(order, order)], draws[np.ix_(order, order)])
    np.testing.assert_allclose(again.elo, rate(wins, draws).elo[order], atol=1e-6)


# Scripted players


def test_chance_takes_every_legal_action_as_often() -> None:
    layout, _ = spaces_of(TURNS)
    rows = layout.zeros(3000)
    layout.fields(rows)["action_mask"][:] = [1, 0, 1]
    actions = Random(TURNS).drawing(np.random.default_rng(1)).act(rows)[0]
    assert Counter(actions.tolist()).keys() == {0, 2} and abs((actions == 0).mean() - 0.5) < 4 * 0.5 / 3000**0.5
    pendulum = spec("Pendulum-v1")
    torques = Random(pendulum).drawing(np.random.default_rng(1)).act(np.zeros((3000, 3), np.float32))[0]
    assert (
        torques.shape == (3000, 1)
        and abs(torques.mean()) < 0.1
        and torques.std() == pytest.approx(2 / 3**0.5, abs=0.05)
    )


def test_a_perfect_player_never_loses_and_draws_with_its_like() -> None:
    env = tictactoe()
    three = players(Perfect(env), Perfect(env), TwoPly(env), Random(env), env=env)
    results = play_all(three, [(0, 1), (0, 2), (0, 3)], range(5), SerialPool())
    assert results.draws[0, 1] == 10 and results.wins[:, 0].sum() == 0 and results.wins[0, 3] >= 5
