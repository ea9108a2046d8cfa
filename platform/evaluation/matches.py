"""Matches of a run's policies against each other and against others: wins, draws, Elo ratings, as numbers and text."""

import csv
import io
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
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
from ..reports.drawing import encode_picture
from ..reports.plots.matches import draw_points
from ..runs.folder import finite
from ..tracking.console import LiveLine
from .players import MatchPlayer, find_players, is_dotted, players_of

FORMATS = (".json", ".csv", ".png", ".pdf", ".svg")


@dataclass(frozen=True, eq=False)
class Matches:
    """What P players came to against each other."""

    players: tuple[MatchPlayer, ...]
    results: matches.Results
    ratings: Ratings | None  # None: not all met all
    drawn: tuple[bool, ...]  # of each player, whether its actions were drawn; of a scripted one, if it can

    def actions(self) -> str:
        """Say how learned policies chose their actions."""
        certain = [player.name for player in self.players if player.certain]
        if len(certain) == sum(player.learned for player in self.players):
            return "the most likely ones, of learned policies, which have no distribution to draw from"
        if not any(drawn for player, drawn in zip(self.players, self.drawn, strict=True) if player.learned):
            return "the most likely ones, of learned policies"
        but = f"; the most likely ones of {', '.join(certain)}, without a distribution to draw from" if certain else ""
        return f"drawn, as in training, of learned policies{but}"

    def alike(self) -> list[str]:
        """Return the learned policies that did the same every time, where two such met or more: see `docs/selfplay`."""
        same = [k for k, player in enumerate(self.players) if player.learned and not self.drawn[k]]
        return [self.players[k].name for k in same if self.results.games[k, same].any()]

    def table(self) -> Iterator[str]:
        """Lines of text: each player with what it came to in all its games, the highest rating first."""
        results, ratings = self.results, self.ratings
        wide = max(6, *(len(player.name) for player in self.players))
        elo = "" if ratings is None else f"  {'elo':>6}  {'95 %':^16}"
        yield f"{'player':{wide}}{elo}  {'games':>6}  {'won':>6}  {'drawn':>6}  {'lost':>6}  {'points':>6}"
        order = range(len(self.players)) if ratings is None else np.argsort(-ratings.elo, kind="stable")
        for k in order:
            games, won, drawn = (int(of[k].sum()) for of in (results.games, results.wins, results.draws))
            said = ""
            if ratings is not None:
                interval = f"[{ratings.low[k]:.0f}, {ratings.high[k]:.0f}]"
                said = f"  {ratings.elo[k]:6.0f}  {interval:^16}"
            shares = "  ".join(f"{_share(n, games):>6}" for n in (won, drawn, games - won - drawn, won + drawn / 2))
            yield f"{self.players[k].name:{wide}}{said}  {games:>6,}  {shares}"

    def plain(self) -> dict[str, Any]:
        """All of it, as strict JSON has it."""
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
                    **({"drawn": drawn} if player.learned else {}),
                    **of,
                }
                for player, drawn, of in zip(self.players, self.drawn, rated, strict=True)
            ],
            **{name: getattr(results, name).tolist() for name in ("wins", "draws")},
            **{name: finite(getattr(results, name).tolist()) for name in ("points", "returns")},
        }

    def encode(self, suffix: str, told: Mapping[str, Any]) -> bytes:
        """Return the content of a file of one of `FORMATS`.

        Args:
            told: what JSON has, of which this is part.
        """
        if suffix == ".json":
            return json.dumps(told, indent=2).encode()
        return self._csv() if suffix == ".csv" else encode_picture(draw_points(told, ""), suffix)

    def _csv(self) -> bytes:
        """Share of points of each row's player against each column's, beside ratings."""
        text, plain = io.StringIO(), self.plain()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["player", "elo", "low", "high", *(player.name for player in self.players)])
        for player, row in zip(plain["players"], plain["points"], strict=True):
            writer.writerow([player["name"], *(player.get(key) for key in ("elo", "low", "high")), *row])
        return text.getvalue().encode()


def play_matches(
    algorithm: Any,
    run: Path,
    iteration: int,
    seeds: Sequence[int],
    words: Sequence[str],
    *,
    everybody: bool,
    stochastic: bool | None,
    workers: int | None,
    max_steps: int,
) -> Matches:
    """Let a run's policies play against each other and against others, on this machine.

    Args:
        run: where the algorithm is from, for messages.
        iteration: that its policy is of.
        seeds: of games; each two play two from each seed, on exchanged sides.
        words: others, as `find_players` takes them.
        everybody: the versions that it keeps play too, and all against all; else its policy against each other.
        stochastic: learned policies draw their actions; None: those that have a distribution of them.
        workers: processes; None: this one alone.
        max_steps: after which a game is cut off.

    Raises:
        PaddockError: it learned in no world, a player is none there, or one has nothing to draw from and is to.
    """
    in_world = isinstance(algorithm, LearnsInEnv) and algorithm.env.seats > 1
    require(in_world, f"{run} is a run of one agent, which has nobody to play against; name a run in a world")
    env = algorithm.env
    own = players_of(algorithm, iteration, everybody)
    players = (*own, *find_players(words, env))
    names = [player.name for player in players]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"players: {twice} plays already; name each once")
    require(len(players) > 1, "players= names nobody, and the run keeps no earlier versions; such as players=random")
    certain = [player.name for player in players if player.certain]
    lacking = f"{', '.join(certain)} without a distribution of actions to draw from; leave stochastic= out"
    require(not (stochastic and certain), f"stochastic=true: {lacking}")
    pairs = list(itertools.combinations(range(len(players)), 2))
    pairs = pairs if everybody else [(i, j) for i, j in pairs if i < len(own) <= j]
    drawn = tuple(not player.learned or (stochastic is not False and not player.certain) for player in players)
    who = matches.MatchPlayers(env, tuple(player.policy for player in players), drawn, max_steps)
    with closing(_pool(env.id, words, workers)) as pool, closing(LiveLine(sys.stderr)) as line:
        results = matches.play_all(who, pairs, seeds, pool, lambda n, of: line.show(f"played {n:,} of {of:,} matches"))
    return Matches(players, results, rate(results.wins, results.draws) if everybody else None, drawn)


def _pool(id: str, words: Sequence[str], workers: int | None) -> Pool:
    """Return who plays: processes, or this one, which has no start to wait for."""
    if workers is None:
        return SerialPool()
    dotted = [*([id.partition(":")[0]] if ":" in id else []), *(word for word in words if is_dotted(word))]
    packages = {word.partition(".")[0] for word in dotted}
    return Local(workers=workers, retries=3, task_timeout_s=None).open({"paddock", *packages})


def _share(count: float, games: int) -> str:
    return "-" if not games else f"{count / games:.1%}"
