"""Settings of MiniGrid's worlds in C, read from the environment that minigrid itself makes of one.

The numbers are those of minigrid 3.2.0 to the bit: the map that a seed draws, what is seen of it, and rewards.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

from paddock.envs.errors import require
from paddock.envs.registration import ELSEWHERE
from paddock.envs.spec import EnvSpec

PREFIX = "MiniGrid-"  # of ids
CHOICES = "paddock.envs.bindings.minigrid.Choices"  # a wrapper that changes a space and no number
LEAVES = {"direction": 0, "image": 8}  # of an observation, and where in a row they begin
ROW_BYTES = 160  # GRID_ROW of grid.h
SIDE, VIEW = 25, 7  # cells: MOST_SIDE and VIEW of grid.h
LINKS, LINK_SIDE = 8, 10  # rooms of a chain at the most, and their cells

MAPS = (  # minigrid's classes, as `enum grid_map` of grid.h has them
    *("EmptyEnv", "DoorKeyEnv", "FourRoomsEnv", "LavaGapEnv", "CrossingEnv", "DistShiftEnv", "DynamicObstaclesEnv"),
    *("MemoryEnv", "RedBlueDoorEnv", "LockedRoomEnv", "MultiRoomEnv", "UnlockEnv", "UnlockPickupEnv"),
    *("BlockedUnlockPickupEnv", "KeyCorridorEnv", "ObstructedMaze_1Dlhb", "ObstructedMaze_Full"),
)
LATER = {"ObstructedMaze_Full_V1": "ObstructedMaze_Full"}  # the same map, drawn in another order


class GridSettings(ctypes.Structure):
    """`struct grid_settings` of grid.h."""

    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in (
            *("map", "width", "height", "max_steps", "see_through", "start_x", "start_y", "start_direction"),
            *("room_size", "rows", "columns", "fewest", "most", "walls", "random_length"),
            *("key_in_box", "blocked", "keys_last"),
        )
    )


def task_name(settings: GridSettings) -> str:
    """Return the task in C that has as many actions."""
    return "minigrid_moves" if MAPS[settings.map] == "DynamicObstaclesEnv" else "minigrid"


def grid_settings(spec: EnvSpec) -> GridSettings:
    """Read the settings of a world.

    Raises:
        ConfigError: the C code has not got this kind of world, or not in this form.
    """
    made = spec.make()
    try:
        env: Any = made.unwrapped
        kind = LATER.get(type(env).__name__, type(env).__name__)
        own = type(env).__module__.startswith("minigrid.envs.") and kind in MAPS
        _check(spec, own, f"{kind} is none of MiniGrid's worlds that have a native version")
        _check(spec, env.agent_view_size == VIEW, f"agent_view_size={env.agent_view_size}, where it has {VIEW}")
        least = 7 if kind in ("MemoryEnv", "DistShiftEnv") else 3 if hasattr(env, "num_rows") else 5
        sides = f"{env.width} x {env.height} cells, where it has {SIDE} x {SIDE} at most and {least} x {least} at least"
        _check(spec, least <= min(env.width, env.height) and max(env.width, env.height) <= SIDE, sides)
        _check(spec, 1 <= env.max_steps < 2**30, f"max_steps={env.max_steps}, where it has 1 to 2^30")
        settings = GridSettings(
            map=MAPS.index(kind),
            width=env.width,
            height=env.height,
            max_steps=env.max_steps,
            see_through=env.see_through_walls,
        )
        for fits, what in (_read_rooms if hasattr(env, "num_rows") else _read_map)(env, kind, settings):
            _check(spec, fits, what)
        return settings
    finally:
        made.close()


def draws_places(env: Any) -> bool:
    """Whether FourRooms draws where its agent and its goal are; minigrid keeps to itself what it was given."""
    return env._agent_default_pos is None and env._goal_default_pos is None


def _check(spec: EnvSpec, fits: bool, what: str) -> None:
    require(fits, f"env.id={spec.id}: {what}: no native version; {ELSEWHERE}")


def _read_map(env: Any, kind: str, settings: GridSettings) -> Iterator[tuple[bool, str]]:
    """Read a world of one map; yield what has to hold of it, and what it is where that does not."""
    if kind in ("EmptyEnv", "DistShiftEnv", "DynamicObstaclesEnv"):
        yield from _read_start(env, settings)
    if kind in ("CrossingEnv", "MemoryEnv"):
        odd = env.width % 2 == env.height % 2 == 1
        yield (odd, f"{env.width} x {env.height} cells, where it has odd numbers")
    if kind in ("LavaGapEnv", "CrossingEnv"):
        settings.walls = env.obstacle_type.__name__ == "Wall"
        known = ("Lava", "Wall") if kind == "CrossingEnv" else ("Lava",)
        yield (env.obstacle_type.__name__ in known, f"obstacles are {env.obstacle_type.__name__}")
    if kind == "CrossingEnv":
        settings.most = env.num_crossings
        yield (env.num_crossings >= 0, f"num_crossings={env.num_crossings}")
    if kind == "FourRoomsEnv":
        yield (draws_places(env), "agent_pos or goal_pos is given, where it draws both")
    if kind == "DistShiftEnv":
        settings.most = env.strip2_row
        yield (1 <= env.strip2_row < env.height - 1, f"strip2_row={env.strip2_row} is within no map")
    if kind == "DynamicObstaclesEnv":
        settings.most = env.n_obstacles
        yield (env.n_obstacles >= 0, f"n_obstacles={env.n_obstacles}")
    if kind == "MemoryEnv":
        settings.random_length = bool(env.random_length)
    if kind == "LockedRoomEnv":
        yield (env.width == 19, f"size={env.width}, where it has 19")
    if kind == "MultiRoomEnv":
        settings.fewest, settings.most, settings.room_size = env.minNumRooms, env.maxNumRooms, env.maxRoomSize
        small = env.maxNumRooms <= LINKS and env.maxRoomSize <= LINK_SIDE and env.width == env.height == SIDE
        limits = f"{LINKS} rooms of {LINK_SIDE} cells at most, in {SIDE} x {SIDE}"
        yield (small, f"{env.maxNumRooms} rooms of {env.maxRoomSize} cells, where it has {limits}")


def _read_start(env: Any, settings: GridSettings) -> Iterator[tuple[bool, str]]:
    if env.agent_start_pos is None:
        settings.start_x = -1
        return
    x, y = map(int, env.agent_start_pos)
    settings.start_x, settings.start_y, settings.start_direction = x, y, env.agent_start_dir
    inside = 1 <= x < env.width - 1 and 1 <= y < env.height - 1 and env.agent_start_dir in range(4)
    yield (inside, f"agent_start_pos={(x, y)}, agent_start_dir={env.agent_start_dir} is within no map")


def _read_rooms(env: Any, kind: str, settings: GridSettings) -> Iterator[tuple[bool, str]]:
    """Read a world of rooms, likewise."""
    settings.room_size, settings.rows, settings.columns = env.room_size, env.num_rows, env.num_cols
    if kind == "KeyCorridorEnv":
        yield (env.obj_type == "ball", f"obj_type={env.obj_type}, where it has ball")
        yield (env.num_cols == 3, f"num_cols={env.num_cols}, where it has 3")
    if kind.startswith("ObstructedMaze"):
        settings.key_in_box, settings.blocked = bool(env.key_in_box), bool(env.blocked)
    if kind == "ObstructedMaze_Full":
        settings.start_x, settings.start_y = env.agent_room
        settings.most, settings.keys_last = env.num_quarters, type(env).__name__ in LATER
        inside = all(0 <= k < 3 for k in env.agent_room) and 1 <= env.num_quarters <= 4
        yield (inside, f"agent_room={env.agent_room}, num_quarters={env.num_quarters}")
