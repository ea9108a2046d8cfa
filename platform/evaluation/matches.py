"""Matches between a run's policies and other players: wins, draws and Elo ratings."""

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paddock.algos.multiagent.selfplay import matches
from paddock.algos.multiagent.selfplay.ratings import Ratings, rate
from paddock.algos.pool.protocol import Pool
from paddock.algos.pool.serial import SerialPool
from paddock.algos.protocol import LearnsInEnv
from paddock.envs.errors import ConfigError, require

from ..compute.recipes import Local
from ..runs.folder import finite
from ..tracking.console import LiveLine
from .players import MatchPlayer, find_players, is_dotted, players_of


@dataclass(frozen=True, eq=False)
class Matches:
    """Results of matches between P players."""

    players: tuple[MatchPlayer, ...]
    results: matches.Results
    ratings: Ratings | None  # None unless it was a round robin
    sampled: tuple[bool, ...]  # [P], whether actions are sampled; True for scripted players

    def actions(self) -> str:
        """Describe how learned policies chose their actions."""
        deterministic = [player.name for player in self.players if player.deterministic]
        if len(deterministic) == sum(player.learned for player in self.players):
            return "deterministic: the learned policies have no action distribution"
        if not any(sampled for player, sampled in zip(self.players, self.sampled, strict=True) if player.learned):
            return "deterministic"
        rest = f"; deterministic for {', '.join(deterministic)}, without a distribution" if deterministic else ""
        return f"sampled, as in training{rest}"

    def deterministic_opponents(self) -> list[str]:
        """Return the deterministic policies that met another one: all their games are alike."""
        fixed = [k for k, player in enumerate(self.players) if player.learned and not self.sampled[k]]
        return [self.players[k].name for k in fixed if self.results.games[k, fixed].any()]

    def table(self) -> Iterator[str]:
        """Yield lines of text: each player's totals over all its games, the highest rating first."""
        results, ratings = self.results, self.ratings
        wide = max(6, *(len(player.name) for player in self.players))
        elo = "" if ratings is None else f"  {'elo':>6}  {'95 %':^16}"
        yield f"{'player':{wide}}{elo}  {'games':>6}  {'won':>6}  {'drawn':>6}  {'lost':>6}  {'points':>6}"
        order = range(len(self.players)) if ratings is None else np.argsort(-ratings.elo, kind="stable")
        for k in order:
            games, won, drawn = (int(of[k].sum()) for of in (results.games, results.wins, results.draws))
            elo = ""
            if ratings is not None:
                interval = f"[{ratings.low[k]:.0f}, {ratings.high[k]:.0f}]"
                elo = f"  {ratings.elo[k]:6.0f}  {interval:^16}"
            shares = "  ".join(f"{_share(n, games):>6}" for n in (won, drawn, games - won - drawn, won + drawn / 2))
            yield f"{self.players[k].name:{wide}}{elo}  {games:>6,}  {shares}"

    def plain(self) -> dict[str, Any]:
        """Return the results as strict JSON."""
        results = self.results
        rated = [
            {}
            if self.ratings is None
            else {name: float(getattr(self.ratings, name)[k]) for name in ("elo", "low", "high")}
            for k in range(len(self.players))
        ]
        return {
            "players": [
                {
                    "name": player.name,
                    "iteration": player.iteration,
                    **({"population": player.population} if player.population else {}),
                    **({"drawn": sampled} if player.learned else {}),
                    **rating,
                }
                for player, sampled, rating in zip(self.players, self.sampled, rated, strict=True)
            ],
            **{name: getattr(results, name).tolist() for name in ("wins", "draws")},
            **{name: finite(getattr(results, name).tolist()) for name in ("points", "returns")},
        }


def play_matches(
    algorithm: Any,
    run: Path,
    iteration: int,
    seeds: Sequence[int],
    words: Sequence[str],
    *,
    round_robin: bool,
    stochastic: bool | None,
    workers: int | None,
    max_steps: int,
) -> Matches:
    """Play a run's policies against each other and against other players, on this machine.

    Args:
        algorithm: as `load` returns it.
        run: the algorithm's run, for messages.
        iteration: iteration of its current policy.
        seeds: of games; each pair plays two games per seed, with sides exchanged.
        words: other players, as `find_players` takes them.
        round_robin: every pair meets, kept versions included; otherwise the run's policy meets each other player.
        stochastic: learned policies sample their actions; None: those with an action distribution do.
        workers: number of worker processes; None plays in this process.
        max_steps: longer games are cut off here.
    """
    multiagent = isinstance(algorithm, LearnsInEnv) and algorithm.env.seats > 1
    require(multiagent, f"{run} is a single-agent run; matches need a run in a multi-agent environment")
    env = algorithm.env
    own = players_of(algorithm, iteration, round_robin)
    players = (*own, *find_players(words, env))
    names = [player.name for player in players]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"players: {twice} is listed twice; list each player once")
    require(len(players) > 1, "players= is empty, and the run keeps no earlier versions; try players=random")
    deterministic = [player.name for player in players if player.deterministic]
    lacking = f"{', '.join(deterministic)} has no action distribution to sample from; remove stochastic="
    require(not (stochastic and deterministic), f"stochastic=true: {lacking}")
    pairs = list(itertools.combinations(range(len(players)), 2))
    pairs = pairs if round_robin else [(i, j) for i, j in pairs if i < len(own) <= j]
    sampled = tuple(not one.learned or (stochastic is not False and not one.deterministic) for one in players)
    seated = matches.MatchPlayers(env, tuple(player.policy for player in players), sampled, max_steps)
    with closing(_pool(env.id, words, workers)) as pool, closing(LiveLine(sys.stderr)) as line:
        show = lambda n, total: line.show(f"played {n:,} of {total:,} matches")  # noqa: E731
        results = matches.play_all(seated, pairs, seeds, pool, show)
    return Matches(players, results, rate(results.wins, results.draws) if round_robin else None, sampled)


def _pool(id: str, words: Sequence[str], workers: int | None) -> Pool:
    if workers is None:
        return SerialPool()
    dotted = [*([id.partition(":")[0]] if ":" in id else []), *(word for word in words if is_dotted(word))]
    packages = {word.partition(".")[0] for word in dotted}
    return Local(workers=workers, retries=3, task_timeout_s=None).open({"paddock", *packages})


def _share(count: float, games: int) -> str:
    return "-" if not games else f"{count / games:.1%}"
