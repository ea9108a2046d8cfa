"""Which games and tasks of our own have a native version, and what the C code is told of them."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from paddock.envs.native.games import sanity

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
class NativeFamily:
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


_CUTOFF = NativeFamily("sanity_cutoff", ("leave", "stay", "steps", "terminates"), sanity.cutoff, sanity.cutoff_limit)
GAMES = {  # by id
    "paddock/Game2048-v0": NativeFamily("game_2048"),
    "paddock/Breakout-v0": NativeFamily("breakout"),
    "paddock/Pong-v0": NativeFamily("pong"),
    "paddock/PufferBandit-v0": NativeFamily("sanity_bandit", ("arms", "arm", "noise", "offset"), sanity.bandit),
    "paddock/Bandit-v0": NativeFamily("sanity_noisy_bandit", ("arms", "arm", "noise", "offset"), sanity.noisy_bandit),
    "paddock/Forget-v0": NativeFamily("sanity_forget", ("end", "longest"), sanity.forget),
    "paddock/Password-v0": NativeFamily("sanity_password", ("password",), sanity.password),
    "paddock/PufferPassword-v0": NativeFamily("sanity_password", ("password",), sanity.password),
    "paddock/Squared-v0": NativeFamily("sanity_squared", ("distance",), sanity.squared),
    "paddock/Blend-v0": NativeFamily("sanity_blend", ("moves", "zeros"), sanity.blend),
    "paddock/PufferStochastic-v0": NativeFamily("sanity_stochastic", ("share", "horizon"), sanity.stochastic),
    "paddock/Delay-v0": NativeFamily("sanity_delay", ("delay", "numbers"), sanity.delay),
    "paddock/Cutoff-v0": _CUTOFF,
    "paddock/CutoffTwin-v0": _CUTOFF,
    "paddock/Copy-v0": NativeFamily("sanity_copy", ("digits", "delay"), sanity.digits),
    "paddock/PufferMemory-v0": NativeFamily("sanity_memory", ("digits", "delay"), sanity.digits),
    "paddock/Recall-v0": NativeFamily("sanity_recall", ("delay",), sanity.recall),
}
NAMES = frozenset(family.name for family in GAMES.values())
