"""Which worlds have a native version, and what the C code is told of each."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from paddock.envs.errors import require
from paddock.envs.native.games.ours import NoSettings
from paddock.envs.native.originals import ELSEWHERE
from paddock.envs.spec import EnvSpec
from paddock.envs.tasks.snake import Rules
from paddock.envs.tasks.tag import TagRules
from paddock.envs.worlds.roles import SeatRows


class SnakeSettings(ctypes.Structure):
    """`struct snake_settings` of snake.h."""

    _fields_ = tuple((field.name, ctypes.c_int32) for field in fields(Rules))


class SpreadSettings(ctypes.Structure):
    """`struct spread_settings` of spread.h, by the names of the constructor's arguments."""

    _fields_ = (("N", ctypes.c_int32), ("max_cycles", ctypes.c_int32), ("local_ratio", ctypes.c_double))


class TagSettings(ctypes.Structure):
    """`struct tag_settings` of tag.h, by the names of the constructor's arguments."""

    _fields_ = tuple((field.name, ctypes.c_int32) for field in fields(TagRules))


@dataclass(frozen=True)
class WorldFamily:
    """A game of several seats.

    Attributes:
        name: in tasks.h.
        row_bytes: of what a seat sees, in the widest role, by the constructor's arguments.
        settings: of the constructor's arguments.
        keywords: the arguments that change pictures alone.
        original: the package that it is of; None: it is ours.
    """

    name: str
    row_bytes: Callable[[Mapping[str, Any]], int]
    settings: Callable[[Mapping[str, Any]], ctypes.Structure]
    keywords: tuple[str, ...]
    original: str | None


WORLDS = {  # by id
    "pettingzoo.classic.connect_four_v3:env": WorldFamily(
        "connect4", lambda _: 91, lambda _: NoSettings(), ("screen_scaling",), "pettingzoo"
    ),
    "pettingzoo.classic.tictactoe_v3:env": WorldFamily(
        "tictactoe", lambda _: 27, lambda _: NoSettings(), ("screen_height",), "pettingzoo"
    ),
    "paddock.envs.tasks.snake:Snake": WorldFamily(
        "snake", lambda _: 121, lambda rules: SnakeSettings(**rules), (), None
    ),
    "paddock.envs.tasks.tag:Tag": WorldFamily(
        "tag",
        lambda rules: 8 * (1 + 2 * rules["num_good"] + rules["num_adversaries"] + rules["num_obstacles"]),
        lambda rules: TagSettings(**rules),
        (),
        None,
    ),
    "paddock.envs.tasks.spread:Spread": WorldFamily(
        "spread", lambda rules: 24 * rules["N"], lambda rules: SpreadSettings(**rules), (), None
    ),
}


def read_world(spec: EnvSpec) -> tuple[WorldFamily, ctypes.Structure]:
    """Return the family of a world that is in `WORLDS`, and its settings.

    Raises:
        ConfigError: the C code has not got it in this form.
    """
    family = WORLDS[spec.id]
    require(
        not spec.seat_feature,
        f"env.seat_feature=true: the native version of {spec.id} tells no seats; leave it at false, or {ELSEWHERE}",
    )
    known = {key: value for key, value in spec.arguments.items() if key not in ("render_mode", *family.keywords)}
    layouts = [role.observations for role in spec.roles if role.observations is not None]
    kept = SeatRows.of(layouts, ()).itemsize if len(layouts) > 1 else sum(layout.itemsize for layout in layouts)
    given = family.row_bytes(known)  # asked for last: the world has found its arguments good
    require(
        kept == given,
        f"env.id={spec.id}: the native version gives all that a seat sees, {given} bytes, and the recipe "
        f"keeps {kept} bytes; leave out env.without, or {ELSEWHERE}",
    )
    return family, family.settings(known)
