"""Who meets whom: the share of episodes in which each policy learns against which, drawn by key (arXiv:1710.03748).

One policy meets itself and its earlier versions. In a league several do, each with a table of its own, after AlphaStar
(Vinyals et al. 2019): one that all others train for, and others that look for what beats it.
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

LEARNER, FROZEN = "learner", "opponents"  # names of the parts, where one policy learns
EARLIER = "@"  # behind a policy's name: its earlier versions
KEYS = ("keep", "every", "newest", "league", "fresh")
SUCH_AS = "such as opponents={keep: 10, every: 20, newest: 0.8}"


@dataclass(frozen=True)
class Meeting:
    """A policy that learns in a share of episodes, and whom it meets in them."""

    learner: int  # number of a policy
    opponent: int  # the same; itself: both sides learn
    earlier: bool  # it meets versions that were kept
    share: float


@dataclass(frozen=True)
class Settings:
    """How many versions are kept of each policy, and how often who meets whom."""

    keep: PositiveInt
    every: PositiveInt  # iterations from one version that is kept to the next
    names: tuple[str, ...]  # of the policies; "" of one alone
    meetings: tuple[Meeting, ...]
    fresh: tuple[int, ...] = ()  # iterations after which each policy begins anew; 0: never; (): none does

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Settings":
        """Read settings.

        Raises:
            ConfigError: a key is unknown or missing, or a value is none that is allowed.
        """
        for key, value in given.items():
            require(key in KEYS, f"opponents.{key} is not a key of opponents; {nearest(str(key), KEYS)}")
            if key not in ("league", "fresh"):
                allowed = "a number" if key == "newest" else "a whole number"
                _check_number(f"opponents.{key}", value, allowed, whole=key != "newest")
        missing = [key for key in ("keep", "every") if key not in given]
        missing += [] if {"newest", "league"} & given.keys() else ["newest"]
        require(not missing, f"opponents: {', '.join(missing)} is missing; {SUCH_AS}")
        both = "opponents.newest and opponents.league both say who meets whom; leave one out"
        require(not {"newest", "league"} <= given.keys(), both)
        try:
            if "league" in given:
                names, meetings = _read_league(given["league"])
            else:
                newest = given["newest"]
                require(0 <= newest <= 1, f"newest={newest} must lie in [0, 1]")
                names, meetings = ("",), (Meeting(0, 0, False, newest), Meeting(0, 0, True, 1 - newest))
            return cls(given["keep"], given["every"], names, meetings, _read_fresh(given.get("fresh"), names))
        except ConfigError as error:
            raise ConfigError(f"opponents.{error}") from error

    @property
    def frozen(self) -> dict[int, tuple[bool, int]]:
        """Of each policy that is met without learning: whether as it is now, and by how many kept versions."""
        others = [meeting for meeting in self.meetings if meeting.earlier or meeting.opponent != meeting.learner]
        found = {}
        for k in sorted({meeting.opponent for meeting in others}):
            as_what = {meeting.earlier for meeting in others if meeting.opponent == k}
            found[k] = (False in as_what, self.keep if True in as_what else 0)
        return found

    @property
    def drawn(self) -> tuple[tuple[int, tuple[int, ...], float], ...]:
        """Each meeting as a `Draw` has it: players are numbered in the order of parts, those who learn first."""
        first, before = {}, len(self.names)
        for k, (now, versions) in self.frozen.items():
            first[k], before = before, before + now + versions
        found = []
        for one in self.meetings:
            others: tuple[int, ...] = (one.learner,)
            if one.earlier or one.opponent != one.learner:
                start = first[one.opponent] + (self.frozen[one.opponent][0] if one.earlier else 0)
                others = tuple(range(start, start + (self.keep if one.earlier else 1)))
            found.append((one.learner, others, one.share))
        return tuple(found)


@dataclass(frozen=True)
class Draw:
    """Who plays in each seat; see `Cast`.

    The side that learns alternates from episode to episode, and from world to world.

    Attributes:
        meetings: who learns, whom of these it meets, and in what share of episodes.
    """

    seed: int
    meetings: tuple[tuple[int, tuple[int, ...], float], ...]
    sides: tuple[tuple[int, ...], ...]

    def __call__(self, world: NDArray[np.intp], episode: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return who plays in the seats of worlds [W] in their episodes [W], [W, seats]."""
        return np.array([_seated(self, *pair) for pair in zip(world.tolist(), episode.tolist(), strict=True)], np.intp)


@functools.lru_cache(maxsize=65_536)
def _seated(draw: Draw, world: int, episode: int) -> tuple[int, ...]:
    """Return who plays in the seats of a world in an episode."""
    generator = keyed_generator(draw.seed, Stream.OPPONENT, episode, world)
    drawn, upto = generator.random(), np.cumsum([share for *_, share in draw.meetings[:-1]])
    learner, others, _ = draw.meetings[int(np.searchsorted(upto, drawn, side="right"))]
    opponent = learner if others == (learner,) else others[int(generator.integers(len(others)))]
    seats = [learner] * sum(map(len, draw.sides))
    for number, side in enumerate(draw.sides):
        if (number + world + episode) % 2:
            for seat in side:
                seats[seat] = opponent
    return tuple(seats)


def _read_league(league: Any) -> tuple[tuple[str, ...], tuple[Meeting, ...]]:
    """Return the names of the policies of a league, and who meets whom."""
    what = f"league={_spell(league)}"
    such = "such as {main: {main: 0.5, main@: 0.3}, exploiter: {main: 0.2}}"
    require(isinstance(league, Mapping) and bool(league), f"{what} must say whom each policy meets; {such}")
    names, meetings = tuple(map(str, league)), []
    for learner, (name, met) in enumerate(league.items()):
        fits = NAME.fullmatch(str(name)) is not None
        require(fits, f"{what}: '{name}' is no name for a policy; use letters, digits, _ and -, a letter first")
        require(isinstance(met, Mapping) and bool(met), f"{what}: {name} must have a share for each it meets; {such}")
        for word, share in met.items():
            opponent, earlier = re.fullmatch(r"(.*?)(@?)", str(word), re.DOTALL).groups()  # type: ignore[union-attr]
            known = f"league: {name} meets '{word}', which is neither a policy of the league nor its earlier versions"
            close = nearest(str(word), [*names, *(f"{one}{EARLIER}" for one in names)])
            require(opponent in names, f"{known}; {close}")
            _check_number(f"league.{name}.{word}", share, "a number", whole=False)
            require(0 <= share <= 1, f"league.{name}.{word}={share} must lie in [0, 1]")
            meetings.append(Meeting(learner, names.index(opponent), bool(earlier), share))
    total = sum(meeting.share for meeting in meetings)
    require(abs(total - 1) < 1e-6, f"league: shares sum to {total:g}, not 1; they are of all episodes together")
    return names, tuple(meetings)


def _read_fresh(fresh: Any, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return after how many iterations each policy of a league begins anew, 0 for never."""
    if fresh is None:
        return ()
    what = f"fresh={_spell(fresh)}"
    such = "such as {exploiter: 200} beside league"
    fits = isinstance(fresh, Mapping) and bool(fresh)
    require(fits and len(names) > 1, f"{what} must say after how many iterations whom of a league begins anew; {such}")
    for name, iterations in fresh.items():
        known = f"fresh: '{name}' is no policy of the league that may begin anew"
        require(str(name) in names[1:], f"{known}: its first is the run's; {nearest(str(name), names[1:])}")
        _check_number(f"fresh.{name}", iterations, "a whole number", whole=True)
        require(iterations >= 1, f"fresh.{name}={iterations} must be at least 1")
    return tuple(int(fresh.get(name, 0)) for name in names)


def _check_number(name: str, value: Any, allowed: str, *, whole: bool) -> None:
    fits = isinstance(value, int) and not isinstance(value, bool)
    fits = fits or (not whole and isinstance(value, float))
    require(fits, f"{name}={value!r} has the wrong type; allowed: {allowed}")


def _spell(value: Any) -> str:
    return str(value).replace("'", "")


def name_opponent(names: Sequence[str], meeting: Meeting) -> str:
    """Return whom a policy meets, as settings name it."""
    return f"{names[meeting.opponent]}{EARLIER if meeting.earlier else ''}"
