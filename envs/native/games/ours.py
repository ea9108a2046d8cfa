"""Which games and tasks of our own have a native version, and what the C code is told of them."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from envs.native.games import sanity

Given = Mapping[str, Any]  # arguments of the constructor
Settings = tuple[ctypes.Structure, tuple[NDArray[Any], ...]]  # and arrays that they point into


class NoSettings(ctypes.Structure):
    """Of a game that has none."""

    _fields_ = ()


def _nothing(given: Given) -> Settings:
    return NoSettings(), ()


def _endless(given: Given) -> int | None:
    return None


@dataclass(frozen=True)
class Family:
    """Environments of one native task.

    Attributes:
        name: in tasks.h; the walker's also tells who forgets all before an episode, so that `fresh` changes nothing.
        keywords: arguments of the constructor that the native task has.
        settings: what the C code is told, by all arguments.
        limit: steps after which the environment itself truncates an episode; None: never.
    """

    name: str
    keywords: tuple[str, ...] = ()
    settings: Callable[[Given], Settings] = _nothing
    limit: Callable[[Given], int | None] = _endless


_CUTOFF = Family("sanity_cutoff", ("leave", "stay", "steps", "terminates"), sanity.cutoff, sanity.cutoff_limit)
GAMES = {  # by id
    "paddock/Game2048-v0": Family("game_2048"),
    "paddock/Breakout-v0": Family("breakout"),
    "paddock/Pong-v0": Family("pong"),
    "paddock/Bricks-v0": Family("bricks"),
    "paddock/Road-v0": Family("road"),
    "paddock/Harvest-v0": Family("harvest"),
    "paddock/Fleet-v0": Family("fleet"),
    "paddock/Depths-v0": Family("depths"),
    "paddock/PufferBandit-v0": Family("sanity_bandit", ("arms", "arm", "noise", "offset"), sanity.bandit),
    "paddock/Bandit-v0": Family("sanity_noisy_bandit", ("arms", "arm", "noise", "offset"), sanity.noisy_bandit),
    "paddock/Forget-v0": Family("sanity_forget", ("end", "longest"), sanity.forget),
    "paddock/Password-v0": Family("sanity_password", ("password",), sanity.password),
    "paddock/PufferPassword-v0": Family("sanity_password", ("password",), sanity.password),
    "paddock/Squared-v0": Family("sanity_squared", ("distance",), sanity.squared),
    "paddock/Blend-v0": Family("sanity_blend", ("moves", "zeros"), sanity.blend),
    "paddock/PufferStochastic-v0": Family("sanity_stochastic", ("share", "horizon"), sanity.stochastic),
    "paddock/Delay-v0": Family("sanity_delay", ("delay", "numbers"), sanity.delay),
    "paddock/Cutoff-v0": _CUTOFF,
    "paddock/CutoffTwin-v0": _CUTOFF,
    "paddock/Copy-v0": Family("sanity_copy", ("digits", "delay"), sanity.digits),
    "paddock/PufferMemory-v0": Family("sanity_memory", ("digits", "delay"), sanity.digits),
    "paddock/Recall-v0": Family("sanity_recall", ("delay",), sanity.recall),
}
NAMES = frozenset(family.name for family in GAMES.values())
