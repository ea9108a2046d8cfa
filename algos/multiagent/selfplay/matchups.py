"""Self-play matchups: the share of episodes that each policy learns in against each opponent (arXiv:1710.03748).

A single policy plays itself and its earlier versions. In a league, after AlphaStar (Vinyals et al. 2019), each policy has
its own table of opponents: a main policy, and exploiters that look for strategies that beat it.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.multiagent.divide import NAME
from paddock.envs.errors import ConfigError, nearest, require
from paddock.envs.ranges import PositiveInt, check_fields

LEARNER, FROZEN = "learner", "opponents"  # policy names, if one policy learns
EARLIER = "@"  # suffix of a policy's name: its earlier versions
KEYS = ("keep", "every", "newest", "league")
SUCH_AS = "such as opponents={keep: 10, every: 20, newest: 0.8}"


@dataclass(frozen=True)
class Matchup:
    """A share of the episodes in which a policy learns against an opponent."""

    learner: int  # index of a policy
    opponent: int  # index of a policy; the learner's: both sides learn
    earlier: bool  # the opponent is a kept earlier version
    share: float


@dataclass(frozen=True)
class SelfPlaySettings:
    """Number of versions kept of each policy, and the matchups."""

    keep: PositiveInt
    every: PositiveInt  # iterations between kept versions
    names: tuple[str, ...]  # of the policies; ("",) for a single one
    matchups: tuple[Matchup, ...]

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "SelfPlaySettings":
        """Read the key `algo.opponents`; raise ConfigError if it is invalid."""
        for key, value in given.items():
            require(key in KEYS, f"opponents.{key} is not a key of opponents; {nearest(str(key), KEYS)}")
            if key != "league":
                allowed = "a number" if key == "newest" else "an integer"
                _check_number(f"opponents.{key}", value, allowed, whole=key != "newest")
        missing = [key for key in ("keep", "every") if key not in given]
        missing += [] if {"newest", "league"} & given.keys() else ["newest"]
        require(not missing, f"opponents: {', '.join(missing)} is missing; {SUCH_AS}")
        both = "opponents.newest and opponents.league are mutually exclusive; remove one"
        require(not {"newest", "league"} <= given.keys(), both)
        try:
            if "league" in given:
                names, matchups = _read_league(given["league"])
            else:
                newest = given["newest"]
                require(0 <= newest <= 1, f"newest={newest} must be in [0, 1]")
                names, matchups = ("",), (Matchup(0, 0, False, newest), Matchup(0, 0, True, 1 - newest))
            return cls(given["keep"], given["every"], names, matchups)
        except ConfigError as error:
            raise ConfigError(f"opponents.{error}") from error

    @property
    def frozen(self) -> dict[int, tuple[bool, int]]:
        """Policies that play without learning: whether in their newest version, and their number of kept versions."""
        others = [matchup for matchup in self.matchups if matchup.earlier or matchup.opponent != matchup.learner]
        found = {}
        for k in sorted({matchup.opponent for matchup in others}):
            earlier = {matchup.earlier for matchup in others if matchup.opponent == k}
            found[k] = (False in earlier, self.keep if True in earlier else 0)
        return found

    @property
    def numbered(self) -> tuple[tuple[int, tuple[int, ...], float], ...]:
        """Matchups as `SampledMatchups` has them; policies are numbered in the order of specs, learning ones first."""
        first, before = {}, len(self.names)
        for k, (now, versions) in self.frozen.items():
            first[k], before = before, before + now + versions
        found = []
        for one in self.matchups:
            others: tuple[int, ...] = (one.learner,)
            if one.earlier or one.opponent != one.learner:
                start = first[one.opponent] + (self.frozen[one.opponent][0] if one.earlier else 0)
                others = tuple(range(start, start + (self.keep if one.earlier else 1)))
            found.append((one.learner, others, one.share))
        return tuple(found)


@dataclass(frozen=True)
class SampledMatchups:
    """Policy mapping that samples a matchup per episode; the learning side alternates by episode and environment."""

    seed: int  # of the run
    matchups: tuple[tuple[int, tuple[int, ...], float], ...]  # (learner, opponents to choose from, share of episodes)
    sides: tuple[tuple[int, ...], ...]  # seats of each side

    def __call__(self, env_index: NDArray[np.intp], episode: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the policies in the seats of environments [W] in their episodes [W], [W, seats]."""
        return np.array(
            [_assign_seats(self, *pair) for pair in zip(env_index.tolist(), episode.tolist(), strict=True)], np.intp
        )


@functools.lru_cache(maxsize=65_536)
def _assign_seats(mapping: SampledMatchups, env_index: int, episode: int) -> tuple[int, ...]:
    generator = keyed_generator(mapping.seed, Stream.OPPONENT, episode, env_index)
    sampled, upto = generator.random(), np.cumsum([share for *_, share in mapping.matchups[:-1]])
    learner, others, _ = mapping.matchups[int(np.searchsorted(upto, sampled, side="right"))]
    opponent = learner if others == (learner,) else others[int(generator.integers(len(others)))]
    seats = [learner] * sum(map(len, mapping.sides))
    for number, side in enumerate(mapping.sides):
        if (number + env_index + episode) % 2:
            for seat in side:
                seats[seat] = opponent
    return tuple(seats)


def _read_league(league: Any) -> tuple[tuple[str, ...], tuple[Matchup, ...]]:
    what = f"league={_format(league)}"
    such = "such as {main: {main: 0.5, main@: 0.3}, exploiter: {main: 0.2}}"
    require(isinstance(league, Mapping) and bool(league), f"{what} must list the opponents of each policy; {such}")
    names, matchups = tuple(map(str, league)), []
    for learner, (name, opponents) in enumerate(league.items()):
        fits = NAME.fullmatch(str(name)) is not None
        require(fits, f"{what}: '{name}' is not a valid policy name; use a letter, then letters, digits, _ or -")
        require(
            isinstance(opponents, Mapping) and bool(opponents),
            f"{what}: {name} needs a share for each opponent; {such}",
        )
        for word, share in opponents.items():
            opponent, earlier = re.fullmatch(r"(.*?)(@?)", str(word), re.DOTALL).groups()  # type: ignore[union-attr]
            known = f"league: {name}'s opponent '{word}' is neither a policy of the league nor its earlier versions"
            close = nearest(str(word), [*names, *(f"{one}{EARLIER}" for one in names)])
            require(opponent in names, f"{known}; {close}")
            _check_number(f"league.{name}.{word}", share, "a number", whole=False)
            require(0 <= share <= 1, f"league.{name}.{word}={share} must be in [0, 1]")
            matchups.append(Matchup(learner, names.index(opponent), bool(earlier), share))
    total = sum(matchup.share for matchup in matchups)
    require(abs(total - 1) < 1e-6, f"league: shares sum to {total:g}; change them to sum to 1")
    return names, tuple(matchups)


def _check_number(name: str, value: Any, allowed: str, *, whole: bool) -> None:
    fits = isinstance(value, int) and not isinstance(value, bool)
    fits = fits or (not whole and isinstance(value, float))
    require(fits, f"{name}={value!r} must be {allowed}")


def _format(value: Any) -> str:
    return str(value).replace("'", "")


def name_opponent(names: Sequence[str], matchup: Matchup) -> str:
    """Return the opponent's name, as in the configuration."""
    return f"{names[matchup.opponent]}{EARLIER if matchup.earlier else ''}"
