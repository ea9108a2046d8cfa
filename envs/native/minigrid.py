"""Settings of the MiniGrid environments in C, read from the environment that minigrid itself constructs.

Maps, observations and rewards are bit-identical to minigrid 3.2.0.
"""

import ctypes
from typing import Any

from paddock.envs.errors import require
from paddock.envs.registration import ELSEWHERE
from paddock.envs.spec import EnvSpec

PREFIX = "MiniGrid-"  # environment ids start with it
CHOICES = "paddock.envs.bindings.minigrid.Choices"  # a wrapper that changes only the action space
LEAVES = {"direction": 0, "image": 8}  # byte offsets of an observation's leaves in a row
ROW_BYTES = 160  # GRID_ROW of grid.h
SIDE, VIEW = 25, 7  # cells: MAX_SIDE and VIEW of grid.h
MAX_ROOMS, MAX_ROOM_SIDE = 8, 10  # of MultiRoom; side in cells

MAPS = (  # minigrid's classes, in the order of `enum grid_map` of grid.h
    *("EmptyEnv", "DoorKeyEnv", "FourRoomsEnv", "LavaGapEnv", "CrossingEnv", "DynamicObstaclesEnv", "MemoryEnv"),
    *(
        "MultiRoomEnv",
        "UnlockEnv",
        "UnlockPickupEnv",
        "BlockedUnlockPickupEnv",
        "KeyCorridorEnv",
        "ObstructedMaze_1Dlhb",
    ),
)


class GridSettings(ctypes.Structure):
    """`struct grid_settings` of grid.h."""

    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in (
            *("map", "width", "height", "max_steps", "see_through_walls", "start_x", "start_y", "start_direction"),
            *("room_size", "rows", "columns", "fewest", "most", "walls", "random_length"),
            *("key_in_box", "blocked"),
        )
    )


def grid_settings(spec: EnvSpec) -> GridSettings:
    """Read the settings of an environment.

    Raises:
        ConfigError: the environment, or one of its arguments, has no native version.
    """
    made = spec.make()
    try:
        env: Any = made.unwrapped
        kind = type(env).__name__
        own = type(env).__module__.startswith("minigrid.envs.") and kind in MAPS
        require(own, f"env.id={spec.id}: {kind} has no native version; {ELSEWHERE}")
        least = 7 if kind == "MemoryEnv" else 3 if hasattr(env, "num_rows") else 5
        sides = least <= min(env.width, env.height) and max(env.width, env.height) <= SIDE
        settings = GridSettings(
            map=MAPS.index(kind),
            width=env.width,
            height=env.height,
            max_steps=env.max_steps,
            see_through_walls=env.see_through_walls,
        )
        fits = env.agent_view_size == VIEW and sides and 1 <= env.max_steps < 2**30
        fits = fits and (_read_rooms if hasattr(env, "num_rows") else _read_map)(env, kind, settings)
        require(fits, f"env.id={spec.id}: the native {kind} does not support this size or argument; {ELSEWHERE}")
        return settings
    finally:
        made.close()


def samples_positions(env: Any) -> bool:
    """Return whether FourRooms samples the positions of agent and goal; minigrid stores the arguments privately."""
    return env._agent_default_pos is None and env._goal_default_pos is None


def _read_map(env: Any, kind: str, settings: GridSettings) -> bool:
    """Read the settings of a single map; return whether the C code supports them."""
    fits = True
    if kind in ("EmptyEnv", "DynamicObstaclesEnv"):
        fits = _read_start(env, settings)
    if kind in ("CrossingEnv", "MemoryEnv"):
        fits = env.width % 2 == env.height % 2 == 1
    if kind in ("LavaGapEnv", "CrossingEnv"):
        obstacle = env.obstacle_type.__name__
        settings.walls = obstacle == "Wall"
        fits = fits and obstacle in (("Lava", "Wall") if kind == "CrossingEnv" else ("Lava",))
    if kind == "CrossingEnv":
        settings.most = env.num_crossings
        fits = fits and env.num_crossings >= 0
    if kind == "FourRoomsEnv":
        fits = samples_positions(env)
    if kind == "DynamicObstaclesEnv":
        settings.most = env.n_obstacles
        fits = fits and env.n_obstacles >= 0
    if kind == "MemoryEnv":
        settings.random_length = bool(env.random_length)
    if kind == "MultiRoomEnv":
        settings.fewest, settings.most, settings.room_size = env.minNumRooms, env.maxNumRooms, env.maxRoomSize
        fits = env.maxNumRooms <= MAX_ROOMS and env.maxRoomSize <= MAX_ROOM_SIDE and env.width == env.height == SIDE
    return fits


def _read_start(env: Any, settings: GridSettings) -> bool:
    if env.agent_start_pos is None:
        settings.start_x = -1
        return True
    x, y = map(int, env.agent_start_pos)
    settings.start_x, settings.start_y, settings.start_direction = x, y, env.agent_start_dir
    return 1 <= x < env.width - 1 and 1 <= y < env.height - 1 and env.agent_start_dir in range(4)


def _read_rooms(env: Any, kind: str, settings: GridSettings) -> bool:
    """Read the settings of a grid of rooms; return whether the C code supports them."""
    settings.room_size, settings.rows, settings.columns = env.room_size, env.num_rows, env.num_cols
    if kind == "KeyCorridorEnv" and not (env.obj_type == "ball" and env.num_cols == 3):
        return False
    if kind == "ObstructedMaze_1Dlhb":
        settings.key_in_box, settings.blocked = bool(env.key_in_box), bool(env.blocked)
    return True
