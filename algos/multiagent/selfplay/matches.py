"""Matches of two players: whole episodes of a multi-agent environment, with sides exchanged."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.threads import one_thread
from paddock.algos.learning.episodes import Episodes
from paddock.algos.learning.players import RowByRow, drawn_in_row
from paddock.algos.learning.policy import Policy
from paddock.algos.learning.policy_episodes import exact_task, open_env
from paddock.algos.multiagent.episodes import play_jointly
from paddock.algos.multiagent.rows import policy_in_row
from paddock.algos.multiagent.selfplay.sides import is_symmetric, sides_of
from paddock.algos.pool.broadcast import Broadcast
from paddock.algos.pool.protocol import Pool
from paddock.envs.spec import EnvSpec

log = logging.getLogger(__name__)

Task = tuple[Broadcast["MatchPlayers"], int, int, Sequence[int]]  # players, indices of the two to play, seeds


@dataclass(frozen=True, eq=False)
class MatchPlayers:
    """Players of matches, and the environment."""

    env: EnvSpec
    policies: tuple[Policy, ...]
    drawn: tuple[bool, ...]  # whether each policy samples its actions, if it can
    max_steps: int  # step limit of an episode
    native: bool = False  # use native environments even if their numbers differ; see `EvaluationSpec`


@dataclass(frozen=True)
class Games:
    """Results of two players' G games: one per seed, then one per seed with sides exchanged."""

    returns: NDArray[np.float64]  # [G, 2], each player's mean over its seats
    lengths: NDArray[np.int64]  # [G], environment steps


@dataclass(frozen=True)
class Results:
    """Results of P players against each other; pairs that did not play have zeros.

    If sides differ, a game and the one with sides exchanged count as one game, with the returns of both.
    """

    wins: NDArray[np.int64]  # [P, P], games in which the row's player had the greater return than the column's
    draws: NDArray[np.int64]  # [P, P], games with equal returns
    returns: NDArray[np.float64]  # [P, P], mean return of the row's player against the column's; NaN: did not play
    steps: int
    seconds: float

    @property
    def games(self) -> NDArray[np.int64]:
        """Number of games of each pair, [P, P]."""
        return self.wins + self.wins.T + self.draws

    @property
    def points(self) -> NDArray[np.float64]:
        """Share [P, P] of the points that the row's player won: 1 for a win, 1/2 for a draw; NaN: did not play."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.wins + 0.5 * self.draws) / np.where(self.games > 0, self.games, np.nan))


def play_match(players: MatchPlayers, first: int, second: int, seeds: Sequence[int]) -> Games:
    """Play two games per seed, the second one with sides exchanged; player `first` starts on the even sides.

    A game depends only on its players, their seats and its seed; sampled actions depend on seed and seat.
    """
    played, seated = _play(players, (first, second), [*seeds, *seeds], [False] * len(seeds) + [True] * len(seeds))
    returns = np.stack([_own(played, seated == player).returns for player in range(2)], axis=1)
    return Games(returns, played.lengths)


def play_against(players: MatchPlayers, seeds: Sequence[int], first: int) -> Episodes:
    """Play player 0 against player 1, alternating sides from game number `first` on; return player 0's lives."""
    swapped = [(first + k) % 2 == 1 for k in range(len(seeds))]
    played, seated = _play(players, (0, 1), seeds, swapped)
    return _own(played, seated == 0)


def _play(
    players: MatchPlayers, two: tuple[int, int], seeds: Sequence[int], swapped: Sequence[bool]
) -> tuple[Episodes, NDArray[np.intp]]:
    """Play one game per seed; return all lives, and the player (0 or 1) in each seat of each game, [G, A]."""
    env, seats = players.env, np.zeros(players.env.seats, np.intp)
    for number, side in enumerate(sides_of(env)):
        seats[list(side)] = number % 2
    seated = seats ^ np.array(swapped, np.intp)[:, None]

    def policy_of(episode: int, seat: int) -> Any:
        player = two[seated[episode, seat]]
        policy = policy_in_row(players.policies[player], seat)
        return drawn_in_row(policy, seeds[episode], seat) if players.drawn[player] else policy

    with one_thread(), closing(open_env(env, exact_task(env, players.native), 1)) as venv:
        played = play_jointly(venv, env, RowByRow(env, policy_of, 1), seeds, cap=players.max_steps, metrics=env.metrics)
    return played, seated


def _own(played: Episodes, owned: NDArray[np.bool_]) -> Episodes:
    """Return only the lives in these seats [G, A], and as returns their means over the seats."""
    kept = [mask[seats] for mask, seats in zip(owned, played.rows, strict=True)]
    lives, rows = ([of[k] for of, k in zip(each, kept, strict=True)] for each in (played.lives, played.rows))
    returns = np.array([each.sum() for each in lives]) / owned.sum(axis=1)
    return replace(played, returns=returns, lives=lives, rows=rows)


def scores(env: EnvSpec, returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the scores that decide games [G, 2]: returns, averaged over both sides if sides differ."""
    return returns if is_symmetric(env) else np.asarray(returns.reshape(2, -1, 2).mean(axis=0))


def play_share(task: Task) -> Games:
    """Play a task's games of two players, on a worker."""
    shared, first, second, seeds = task
    return play_match(shared.value, first, second, seeds)


def play_all(
    players: MatchPlayers,
    pairs: Sequence[tuple[int, int]],
    seeds: Sequence[int],
    pool: Pool,
    watch: Callable[[int, int], None] = lambda done, count: None,
) -> Results:
    """Play two games per seed and pair of players on a pool; `watch` receives the numbers of finished and all pairs."""
    count, started = len(players.policies), time.perf_counter()
    wins, draws = (np.zeros((count, count), np.int64) for _ in range(2))
    returns, steps, done_pairs = np.full((count, count), np.nan), 0, 0
    shared = pool.broadcast(players)
    for done in pool.imap_unordered(play_share, [(shared, i, j, seeds) for i, j in pairs]):
        i, j = pairs[done.index]
        done_pairs += 1
        watch(done_pairs, len(pairs))
        if done.error is not None:
            what = "games of players %d and %d were lost: %s: %s"
            log.warning(what, i, j, type(done.error).__name__, done.error)
            continue
        first, others = scores(players.env, done.value.returns).T
        wins[i, j], wins[j, i] = (first > others).sum(), (others > first).sum()
        draws[i, j] = draws[j, i] = (first == others).sum()
        returns[i, j], returns[j, i] = first.mean(), others.mean()
        steps += int(done.value.lengths.sum())
    return Results(wins, draws, returns, steps, time.perf_counter() - started)
