"""What the C code is told of an environment: the name of its task, the settings, and where an episode is cut off."""

import ctypes
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from numpy.typing import NDArray

import paddock.envs.bipedal
import paddock.envs.games
import paddock.envs.sanity
import paddock.envs.tasks.recall  # noqa: F401, registers its environments, as those above do
from paddock.envs.errors import require
from paddock.envs.native.boards.worlds import WORLDS, read_world
from paddock.envs.native.games import minigrid
from paddock.envs.native.games.ours import GAMES, NativeFamily, Settings
from paddock.envs.native.originals import ELSEWHERE, is_exact
from paddock.envs.spec import EnvSpec
from paddock.envs.worlds.roles import join_spaces

PLAIN, HARDCORE, ENCODED, GIVEN = range(4)  # GROUND_... of ground.h
POINTS = 200  # of Gymnasium's ground

Pair = ctypes.c_int32 * 2
RealPair = ctypes.c_double * 2


class ClassicSettings(ctypes.Structure):
    """`struct classic_settings` of native.h."""

    _fields_ = (("gravity", ctypes.c_double), ("goal_velocity", ctypes.c_double), ("sutton_barto", ctypes.c_int32))


class CourseSettings(ctypes.Structure):
    """`struct course` of ground.h."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("length", ctypes.c_int32),
        ("pits", ctypes.c_int32),
        ("stumps", ctypes.c_int32),
        ("stairs", ctypes.c_int32),
        ("stump_width", Pair),
        ("stump_float", Pair),
        ("stair_width", Pair),
        ("stair_steps", Pair),
        ("roughness", ctypes.c_double),
        ("pit_gap", RealPair),
        ("stump_height", RealPair),
        ("stair_height", RealPair),
        ("given_boxes", ctypes.c_int32),
        ("scenery", ctypes.c_int32),
        ("given_x", ctypes.c_void_p),
        ("given_y", ctypes.c_void_p),
        ("given_corners", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class NativeTask:
    """The native version of an environment."""

    source: EnvSpec  # whose task it is
    name: str  # in tasks.h
    settings: ctypes.Structure
    kept: tuple[NDArray[Any], ...]  # arrays that the settings point into
    time_limit: int | None  # steps
    observation_space: gymnasium.Space  # of a world each seat's, of several roles a Dict of each one's, as the next
    action_space: gymnasium.Space
    metadata: dict[str, Any]
    render_mode: str | None
    exact: bool  # whether a step gives, bit for bit, what the environment that the id names gives


def native_task(spec: EnvSpec) -> NativeTask:
    """The native version of an environment.

    Raises:
        ConfigError: there is none, or it cannot honour the recipe.
    """
    name = spec.id.rpartition(":")[2]
    if name.startswith(minigrid.PREFIX):
        return _grid_task(spec)
    if spec.id in WORLDS:
        return _world_task(spec)
    source_id = NATIVE.get(name, spec.id)
    source_name = source_id.rpartition(":")[2]
    family = FAMILIES.get(source_name) or GAMES.get(source_name)
    having = ", ".join([*native_ids(), *game_ids()])
    require(
        family is not None,
        f"env.id={spec.id} has no native version; those that have one: {having}, and MiniGrid's, as "
        "minigrid:MiniGrid-Empty-8x8-v0; choose one of them, or vec=serial or vec=multiprocess",
    )
    assert family is not None
    _check_wrappers(spec, ())
    own = {key: value for key, value in spec.arguments.items() if key != "render_mode"}
    for key in own:
        has = ", ".join(family.keywords) or "none"
        require(
            key in family.keywords,
            f"env.kwargs.{key}={own[key]!r}: the native version of {spec.id} has no such argument, but {has}; leave it "
            f"out, or {ELSEWHERE}",
        )
    if family.name != "walker":
        _check_fresh(spec)
    source = replace(spec, id=source_id, max_episode_steps=None, fresh=False)
    observation_space, action_space = source.spaces  # the constructor checks the arguments
    registered = gymnasium.spec(source_name)
    given = registered.kwargs | own
    settings, kept = family.settings(given)
    entry: Any = registered.entry_point
    creator: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    limit = spec.max_episode_steps if spec.max_episode_steps is not None else gymnasium.spec(name).max_episode_steps
    limits = [steps for steps in (limit, family.limit(given)) if steps is not None]
    return NativeTask(
        source=source,
        name=family.name,
        settings=settings,
        kept=kept,
        time_limit=min(limits, default=None),
        observation_space=observation_space,
        action_space=action_space,
        metadata=creator.metadata,
        render_mode=spec.arguments.get("render_mode"),
        # Gymnasium's own walker remembers earlier episodes; ours, on the same Box2D, does not.
        exact=name.startswith("paddock/"),
    )


def _grid_task(spec: EnvSpec) -> NativeTask:
    """Return the native version of one of MiniGrid's worlds."""
    _check_wrappers(spec, (minigrid.CHOICES,))
    _check_fresh(spec)
    source = replace(spec, max_episode_steps=None)
    observation_space, action_space = source.spaces
    creator: Any = load_env_creator("minigrid.minigrid_env:MiniGridEnv")
    settings = minigrid.grid_settings(source)
    leaves = {".".join(map(str, leaf.path)): leaf.offset for leaf in source.observations.leaves}
    require(
        leaves == minigrid.LEAVES and source.observations.itemsize == minigrid.ROW_BYTES,
        f"env.id={spec.id}: the native version gives direction and image, and not {', '.join(leaves)}; set "
        f"env.without=[mission], or {ELSEWHERE}",
    )
    limits = [settings.max_steps, *([spec.max_episode_steps] if spec.max_episode_steps else [])]
    return NativeTask(
        source=source,
        name=minigrid.task_name(settings),
        settings=settings,
        kept=(),
        time_limit=min(limits),
        observation_space=observation_space,
        action_space=action_space,
        metadata=creator.metadata,
        render_mode=spec.arguments.get("render_mode"),
        exact=is_exact("minigrid"),
    )


def _world_task(spec: EnvSpec) -> NativeTask:
    """Return the native version of an environment of several agents."""
    _check_wrappers(spec, ())
    _check_fresh(spec)
    source = replace(spec, max_episode_steps=None)
    family, settings = read_world(source)
    observation_space, action_space = join_spaces(source.roles)
    return NativeTask(
        source=source,
        name=family.name,
        settings=settings,
        kept=(),
        time_limit=spec.max_episode_steps,
        observation_space=observation_space,
        action_space=action_space,
        metadata={},
        render_mode=spec.arguments.get("render_mode"),
        exact=family.original is None or is_exact(family.original),
    )


def _check_wrappers(spec: EnvSpec, allowed: tuple[str, ...]) -> None:
    wrappers = [dict(wrapper)["_target_"] for wrapper in spec.wrappers]
    others = [target for target in wrappers if target not in allowed]
    require(not others, f"env.wrappers={others} cannot go around native environments; {ELSEWHERE}")


def _check_fresh(spec: EnvSpec) -> None:
    require(
        not spec.fresh,
        f"env.fresh=true: the native version of {spec.id} is never rebuilt, as it remembers nothing of earlier "
        "episodes; set env.fresh=false",
    )


def native_ids() -> list[str]:
    """Gymnasium's ids, and ours, that have a native version."""
    return [_full_id(name) for name in FAMILIES]


def game_ids() -> list[str]:
    """Ids of our own games, and of the sanity suite's tasks, that have a native version."""
    return [_full_id(name) for name in GAMES]


def _full_id(name: str) -> str:
    """Return the id by which it is registered and found: the room of its entry point comes before."""
    entry = str(gymnasium.spec(name).entry_point)
    return f"{'.'.join(entry.split('.')[:2])}:{name}" if name.startswith("paddock/") else name


def _classic(arguments: Mapping[str, Any]) -> Settings:
    for key in ("g", "goal_velocity"):
        value = arguments.get(key, 0)
        number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        require(number, f"env.kwargs.{key}={value!r} must be a finite number; such as {10.0 if key == 'g' else 0}")
    sutton_barto = arguments.get("sutton_barto_reward", False)
    require(isinstance(sutton_barto, bool), f"env.kwargs.sutton_barto_reward={sutton_barto!r} must be true or false")
    settings = ClassicSettings(
        gravity=arguments.get("g", 10.0),
        goal_velocity=arguments.get("goal_velocity", 0.0),
        sutton_barto=sutton_barto,
    )
    return settings, ()


def _walker(arguments: Mapping[str, Any]) -> Settings:
    hardcore = arguments.get("hardcore", False)
    require(isinstance(hardcore, bool), f"env.kwargs.hardcore={hardcore!r} must be true or false")
    return CourseSettings(kind=HARDCORE if hardcore else PLAIN, length=POINTS), ()


def _terrain(arguments: Mapping[str, Any]) -> Settings:
    # Only walkers need Box2D, for Gymnasium's constants.
    from paddock.envs.bipedal.ground import Course, lay_ground
    from paddock.envs.bipedal.terrain import SCENERY

    course = Course(**{key: value for key, value in arguments.items() if key != "ground"})
    seed = arguments.get("ground")
    if seed is not None or course.cppn is not None:
        laid = lay_ground(course, np.random.default_rng(seed or 0))
        arrays = tuple(np.ascontiguousarray(part, np.float64) for part in (laid.x, laid.y, laid.boxes))
        x, y, corners = (array.ctypes.data for array in arrays)
        return CourseSettings(
            kind=GIVEN,
            length=course.length,
            given_boxes=len(laid.boxes),
            scenery=0 if seed is not None else course.length // 20 * SCENERY,
            given_x=x,
            given_y=y,
            given_corners=corners,
        ), arrays
    intervals = {key: getattr(course, key) for key in ("pit_gap", "stump_height", "stair_height")}
    whole = {key: getattr(course, key) for key in ("stump_width", "stump_float", "stair_width", "stair_steps")}
    settings = CourseSettings(
        kind=ENCODED,
        length=course.length,
        pits=course.pit_gap is not None,
        stumps=course.stump_height is not None,
        stairs=course.stair_height is not None,
        roughness=course.roughness,
        **{key: RealPair(*(interval or (0.0, 0.0))) for key, interval in intervals.items()},
        **{key: Pair(*map(int, interval)) for key, interval in whole.items()},
    )
    return settings, ()


TERRAIN = (
    "roughness",
    "pit_gap",
    "stump_height",
    "stump_width",
    "stump_float",
    "stair_height",
    "stair_width",
    "stair_steps",
    "cppn",
    "ground",
    "length",
)
FAMILIES = {  # by the name of the environment whose task it is
    "CartPole-v1": NativeFamily("cartpole", ("sutton_barto_reward",), _classic),
    "Pendulum-v1": NativeFamily("pendulum", ("g",), _classic),
    "Acrobot-v1": NativeFamily("acrobot", (), _classic),
    "MountainCar-v0": NativeFamily("mountain_car", ("goal_velocity",), _classic),
    "MountainCarContinuous-v0": NativeFamily("mountain_car_continuous", ("goal_velocity",), _classic),
    "BipedalWalker-v3": NativeFamily("walker", ("hardcore",), _walker),
    "BipedalWalkerHardcore-v3": NativeFamily("walker", ("hardcore",), _walker),
    "paddock/BipedalWalker-v3": NativeFamily("walker", ("hardcore",), _walker),
    "paddock/BipedalWalkerHardcore-v3": NativeFamily("walker", ("hardcore",), _walker),
    "paddock/Terrain-v0": NativeFamily("walker", TERRAIN, _terrain),
}
# By the id of the native environment by itself: whose task it is; of two walkers with one name, Gymnasium's.
NATIVE = {f"paddock/Native{name.rpartition('/')[2]}": _full_id(name) for name in reversed(FAMILIES)}
