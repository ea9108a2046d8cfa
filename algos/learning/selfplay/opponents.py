"""Opponents of a policy that learns: earlier versions of itself, drawn by key for every episode (arXiv:1710.03748).

In some of the episodes the newest policy plays all seats of a world. In the others it has one side, and a version that
was kept has the other; that side's rows are no experience. Who plays is a function of run seed, world and episode, so
any process can enter an episode in its middle.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from algos.common.keys import Stream, keyed_generator
from algos.learning.rollouts.collector import RolloutConfig
from algos.learning.selfplay.sides import sides_of
from algos.networks.architecture import Weights
from algos.networks.multiagent.parts import Parts
from algos.networks.multiagent.versions import stack
from envs.errors import ConfigError, nearest, require
from envs.ranges import PositiveInt, UnitFloat, check_fields

LEARNER, FROZEN = "learner", "opponents"  # names of the parts


@dataclass(frozen=True)
class Settings:
    """How many versions are kept, and how often they play."""

    keep: PositiveInt
    every: PositiveInt  # iterations from one version that is kept to the next
    newest: UnitFloat  # share of episodes in which the newest policy plays itself

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Settings":
        """Read settings.

        Raises:
            ConfigError: a key is unknown or missing, or a value is none that is allowed.
        """
        names = [item.name for item in fields(cls)]
        for key, value in given.items():
            require(key in names, f"opponents.{key} is not a key of opponents; {nearest(str(key), names)}")
            whole = isinstance(value, int) and not isinstance(value, bool)
            fits = whole or (key == "newest" and isinstance(value, float))
            require(
                fits,
                f"opponents.{key}={value!r} has the wrong type; allowed: a {'' if key == 'newest' else 'whole '}number",
            )
        missing = ", ".join(name for name in names if name not in given)
        require(not missing, f"opponents: {missing} is missing; such as opponents={{keep: 10, every: 20, newest: 0.8}}")
        try:
            return cls(**given)
        except ConfigError as error:
            raise ConfigError(f"opponents.{error}") from error


@dataclass(frozen=True)
class Draw:
    """Who plays in each seat; see `Cast`. 0 is who learns, 1 and more are versions.

    The side that learns alternates from episode to episode, and from world to world.
    """

    seed: int
    newest: float
    keep: int
    sides: tuple[tuple[int, ...], ...]

    def __call__(self, world: NDArray[np.intp], episode: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return who plays in the seats of worlds [W] in their episodes [W], [W, seats]."""
        return np.array([_seated(self, *pair) for pair in zip(world.tolist(), episode.tolist(), strict=True)], np.intp)


@functools.lru_cache(maxsize=65_536)
def _seated(draw: Draw, world: int, episode: int) -> tuple[int, ...]:
    """Return who plays in the seats of a world in an episode."""
    generator = keyed_generator(draw.seed, Stream.OPPONENT, episode, world)
    seats = [0] * sum(map(len, draw.sides))
    if generator.random() >= draw.newest:
        version = 1 + int(generator.integers(draw.keep))
        for number, side in enumerate(draw.sides):
            if (number + world + episode) % 2:
                for seat in side:
                    seats[seat] = version
    return tuple(seats)


@final
class Opponents:
    """The versions that are kept: spread over all of the run, as the newest alone are beaten in one way.

    In the beginning the first policy is in all places. Once all have versions of their own, every second one makes room
    for others that are twice as far apart, and so on. A world whose opponent is replaced goes on against the other.
    """

    def __init__(self, given: Mapping[str, Any] | None, first: Sequence[Weights]) -> None:
        """Read settings; None: nobody is played against.

        Args:
            first: the weights of the policies that learn, which must be one.

        Raises:
            ConfigError: see `Settings.of`, or several policies learn.
        """
        self._settings = None if given is None else Settings.of(given)
        what = f"opponents: {len(first)} policies learn in this world, each of some of the agents"
        require(given is None or len(first) == 1, f"{what}; leave it at null, or have one policy for all agents")
        self.begin(first)

    def add_to(self, config: RolloutConfig) -> RolloutConfig:
        """Return how rollouts are played with them.

        Raises:
            ConfigError: there is nobody to play against.
        """
        settings, env = self._settings, config.env
        if settings is None:
            return config
        draw = Draw(config.seed, settings.newest, settings.keep, sides_of(env))
        (alone,) = config.parts.each
        each = replace(alone, name=LEARNER), replace(alone, name=FROZEN, versions=settings.keep)
        return replace(config, policies=Parts.of(each, env, draw))

    def describe(self) -> dict[str, str]:
        """Return the line of `dry_run=true`; nothing where there are none."""
        settings = self._settings
        if settings is None:
            return {}
        share = f"in {1 - settings.newest:.0%} of episodes one of {settings.keep} earlier versions of the policy"
        return {FROZEN: f"{share}, of every {settings.every} iterations"}

    def begin(self, first: Sequence[Weights]) -> None:
        """Have this first policy."""
        self._places = [first[0]] * (0 if self._settings is None else self._settings.keep)

    def observe(self, newest: Sequence[Weights]) -> None:
        """Keep the policy after an iteration, if it is the turn of that one."""
        apart, number = 0 if self._settings is None else self._settings.every, newest[0].version
        while apart and number % apart == 0:
            kept = [weights.version for weights in self._places]
            free = [k for k, version in enumerate(kept) if version % apart or version in kept[:k]]
            if free:
                self._places[min(free, key=lambda k: kept[k])] = newest[0]
                return
            apart *= 2

    def acting(self, newest: Sequence[Weights]) -> list[Weights]:
        """Return the weights of each part: of who learns, and of all places."""
        return [*newest, *([stack(self._places)] if self._places else [])]

    @property
    def versions(self) -> list[int]:
        """The iterations that versions are of, the oldest first."""
        return sorted({weights.version for weights in self._places})

    def version(self, iteration: int) -> Weights:
        """Return the version of an iteration."""
        return next(weights for weights in self._places if weights.version == iteration)

    def state_dict(self) -> dict[str, Any]:
        """All versions, as plain data under a name of their own; nothing where there are none."""
        return {FROZEN: {str(k): vars(weights) for k, weights in enumerate(self._places)}} if self._places else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, beside whatever else is in a state."""
        self._places = [Weights(**state[FROZEN][str(k)]) for k in range(len(self._places))]
