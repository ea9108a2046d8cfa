"""Settings in C of environments from Gymnasium and PettingZoo, and of Paddock's versions of them."""

import ctypes
import math
from importlib.metadata import version
from numbers import Real

import numpy as np

import paddock.envs.bipedal  # noqa: F401, registers its environments
from paddock.envs.errors import require
from paddock.envs.registration import Given, NativeVersion, Settings

EXACT = {"minigrid": "3.2.0", "pettingzoo": "1.27.0"}  # versions with which the C code is bit-identical
PLAIN, HARDCORE, ENCODED, GIVEN = range(4)  # GROUND_... of ground.h
POINTS = 200  # of Gymnasium's terrain

Pair = ctypes.c_int32 * 2
RealPair = ctypes.c_double * 2


class ClassicSettings(ctypes.Structure):
    """`struct classic_settings` of native.h."""

    _fields_ = (("gravity", ctypes.c_double), ("goal_velocity", ctypes.c_double), ("sutton_barto", ctypes.c_int32))


class CourseSettings(ctypes.Structure):
    """`struct course` of ground.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "length", "pits", "stumps", "stairs")),
        *((name, Pair) for name in ("stump_width", "stump_float", "stair_width", "stair_steps")),
        ("roughness", ctypes.c_double),
        *((name, RealPair) for name in ("pit_gap", "stump_height", "stair_height")),
        *((name, ctypes.c_int32) for name in ("given_boxes", "scenery")),
        *((name, ctypes.c_void_p) for name in ("given_x", "given_y", "given_corners")),
    )


def is_exact(package: str) -> bool:
    """Return whether the C code is bit-identical to the installed version of a package."""
    return version(package) == EXACT[package]


def _classic(arguments: Given) -> Settings:
    for key in ("g", "goal_velocity"):
        value = arguments.get(key, 0)
        number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        require(number, f"env.kwargs.{key}={value!r} must be a finite number, such as {10.0 if key == 'g' else 0}")
    sutton_barto = arguments.get("sutton_barto_reward", False)
    require(isinstance(sutton_barto, bool), f"env.kwargs.sutton_barto_reward={sutton_barto!r} must be true or false")
    settings = ClassicSettings(
        gravity=arguments.get("g", 10.0), goal_velocity=arguments.get("goal_velocity", 0.0), sutton_barto=sutton_barto
    )
    return settings, ()


def _walker(arguments: Given) -> Settings:
    hardcore = arguments.get("hardcore", False)
    require(isinstance(hardcore, bool), f"env.kwargs.hardcore={hardcore!r} must be true or false")
    return CourseSettings(kind=HARDCORE if hardcore else PLAIN, length=POINTS), ()


def _terrain(arguments: Given) -> Settings:
    # Imported here, as only walkers need Box2D (for Gymnasium's constants).
    from paddock.envs.bipedal.ground import Course, generate_ground
    from paddock.envs.bipedal.terrain import SCENERY

    course = Course(**{key: value for key, value in arguments.items() if key != "ground"})
    seed = arguments.get("ground")
    if seed is not None or course.cppn is not None:
        laid = generate_ground(course, np.random.default_rng(seed or 0))
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
    *("roughness", "pit_gap", "stump_height", "stump_width", "stump_float", "stair_height", "stair_width"),
    *("stair_steps", "cppn", "ground", "length"),
)
CONTROL = {  # by the id of the original environment
    "CartPole-v1": NativeVersion("cartpole", _classic, ("sutton_barto_reward",)),
    "Pendulum-v1": NativeVersion("pendulum", _classic, ("g",)),
    "Acrobot-v1": NativeVersion("acrobot", _classic),
    "MountainCar-v0": NativeVersion("mountain_car", _classic, ("goal_velocity",)),
    "MountainCarContinuous-v0": NativeVersion("mountain_car_continuous", _classic, ("goal_velocity",)),
    "BipedalWalker-v3": NativeVersion("walker", _walker, ("hardcore",)),
    "BipedalWalkerHardcore-v3": NativeVersion("walker", _walker, ("hardcore",)),
    "paddock.envs.bipedal:paddock/BipedalWalker-v3": NativeVersion("walker", _walker, ("hardcore",)),
    "paddock.envs.bipedal:paddock/BipedalWalkerHardcore-v3": NativeVersion("walker", _walker, ("hardcore",)),
    "paddock.envs.bipedal:paddock/Terrain-v0": NativeVersion("walker", _terrain, TERRAIN),
}
BOARDS = {
    "pettingzoo.classic.connect_four_v3:env": NativeVersion("connect4", agents=True, original="pettingzoo"),
    "pettingzoo.classic.tictactoe_v3:env": NativeVersion("tictactoe", agents=True, original="pettingzoo"),
}
# Single native environments -> original id; of two walkers with the same name, Gymnasium's.
NATIVE = {f"paddock/Native{id.rpartition('/')[2]}": id for id in reversed(CONTROL)}
