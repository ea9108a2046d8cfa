"""Ground generated from POET's encodings (Wang et al. 2019, arXiv:1901.01753), without physics.

Grass and obstacles alternate and random numbers are used as in Gymnasium's Hardcore: with roughness 1 and no obstacles
the heights are those of BipedalWalker-v3. Obstacles follow the authors' code (github.com/uber-research/poet), whose
pits have real-valued widths.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from gymnasium.envs.box2d.bipedal_walker import SCALE, TERRAIN_GRASS, TERRAIN_HEIGHT, TERRAIN_STARTPAD, TERRAIN_STEP
from numpy.typing import NDArray

from paddock.envs.bipedal import cppn
from paddock.envs.errors import require

Interval = Sequence[float]  # [low, high]
Box = tuple[float, float, float, float]  # left, bottom, right, top, m

SHORTEST = 60  # points: start pad, one or two obstacles, and the last ten, behind the finish
LONGEST = 10_000  # points
ROUGHEST = 10
HIGHEST = 1000  # m, for CPPNs; published ones stay within 16
LARGEST = 100  # steps, upper bound of intervals


@dataclass(frozen=True, kw_only=True)
class Course:
    """Encoding of a ground, the parameters of its random generation.

    Heights, widths and gaps are in steps of 0.467 m; intervals are [low, high]. None: no such obstacles.

    Attributes:
        roughness: roughness of the grass, in [0, 10]; 1 is BipedalWalker-v3's.
        pit_gap: free width of a pit, real.
        stump_height: height of a stump, real.
        stump_width: width of a stump; an integer, like the following ones, with high exclusive.
        stump_float: height of a stump above the grass.
        stair_height: height of one step, real.
        stair_width: width of one step.
        stair_steps: number of steps.
        cppn: network that determines the heights (`paddock.envs.bipedal.cppn`), without obstacles and roughness.
        length: points of the ground, 0.467 m apart.
    """

    roughness: float = 0.0
    pit_gap: Interval | None = None
    stump_height: Interval | None = None
    stump_width: Interval = (1, 2)
    stump_float: Interval = (0, 1)
    stair_height: Interval | None = None
    stair_width: Interval = (4, 5)
    stair_steps: Interval = (1, 2)
    cppn: Mapping[str, Any] | None = None
    length: int = 200

    def __post_init__(self) -> None:
        require(
            is_number(self.roughness) and 0 <= self.roughness <= ROUGHEST,
            f"env.kwargs.roughness={self.roughness!r} must be a number from 0 (flat) to {ROUGHEST}, such as 1",
        )
        for key in ("pit_gap", "stump_height", "stair_height"):
            _check_real(key, getattr(self, key))
        for key, least in (("stump_width", 1), ("stump_float", 0), ("stair_width", 1), ("stair_steps", 1)):
            _check_whole(key, getattr(self, key), least)
        require(
            is_whole(self.length) and SHORTEST <= self.length <= LONGEST,
            f"env.kwargs.length={self.length!r} must be an integer from {SHORTEST} to {LONGEST}; 200 is Gymnasium's",
        )
        if self.cppn is not None:
            cppn.check(self.cppn, "env.kwargs.cppn")
            require(
                bool(np.abs(cppn.height_profile(self.cppn, self.length)).max() <= HIGHEST),
                f"env.kwargs.cppn={self.cppn} rises or falls by more than {HIGHEST} m; reduce weights or response",
            )
            obstacles = [key for key in ("pit_gap", "stump_height", "stair_height") if getattr(self, key) is not None]
            require(
                not obstacles,
                f"env.kwargs.cppn=... cannot be combined with obstacles; set {', '.join(obstacles)} to null",
            )


@dataclass(frozen=True)
class Ground:
    """Ground of the walker."""

    x: NDArray[np.float64]  # [L] m, ascending
    y: NDArray[np.float64]  # [L] m
    boxes: NDArray[np.float64]  # [K, 4, 2] m, corners of stumps, steps and walls of pits, anticlockwise from lower left


def generate_ground(course: Course, generator: np.random.Generator) -> Ground:
    """Generate a ground; equal states of the generator give equal grounds."""
    x = [i * TERRAIN_STEP for i in range(course.length)]
    if course.cppn is not None:
        profile = cppn.height_profile(course.cppn, course.length)
        return Ground(np.array(x), TERRAIN_HEIGHT + profile, np.empty((0, 4, 2)))

    kinds = _kinds(course)
    boxes: list[Box] = []
    y = [TERRAIN_HEIGHT] * TERRAIN_STARTPAD
    velocity, on_grass, end = 0.0, True, TERRAIN_STARTPAD
    # As in Gymnasium, a stretch that ends with the course still samples the next one.
    while end <= course.length:
        count = int(generator.integers(TERRAIN_GRASS // 2, TERRAIN_GRASS))
        kind = int(generator.integers(1, len(kinds) + 1)) if on_grass and kinds else 0
        on_grass = kind == 0
        if end == course.length:
            break
        height = y[-1]
        if kind:
            heights, stones, shift = kinds[kind - 1](course, generator, x[end], height)
            y += heights
            boxes += stones
            end = len(y)
            if shift and end <= course.length:
                x[end - 1] -= shift
        else:
            y.append(height)
            for _ in range(min(count, course.length - end) - 1):
                pull = (height < TERRAIN_HEIGHT) - (height > TERRAIN_HEIGHT)
                velocity = 0.8 * velocity + 0.01 * pull
                velocity += (
                    -1.0 + 2.0 * generator.random()
                ) / SCALE  # bit-identical to uniform(-1, 1), three times as fast
                height += course.roughness * velocity
                y.append(height)
            end += count
    return Ground(np.array(x), np.array(y[: course.length]), _corners(boxes))


# An obstacle at (x, y): heights of its points, boxes, and by how much (m) its last point is shifted to the left.
Obstacle = tuple[list[float], list[Box], float]


def _kinds(course: Course) -> list[Callable[[Course, np.random.Generator, float, float], Obstacle]]:
    kinds = ((_stump, course.stump_height), (_stairs, course.stair_height), (_pit, course.pit_gap))
    return [lay for lay, interval in kinds if interval is not None]


def _stump(course: Course, generator: np.random.Generator, x: float, y: float) -> Obstacle:
    width = _whole(generator, course.stump_width)
    height = _real(generator, course.stump_height)
    bottom = y + _whole(generator, course.stump_float) * TERRAIN_STEP
    return [y] * width, [(x, bottom, x + width * TERRAIN_STEP, bottom + height * TERRAIN_STEP)], 0.0


def _stairs(course: Course, generator: np.random.Generator, x: float, y: float) -> Obstacle:
    rise = _real(generator, course.stair_height) * TERRAIN_STEP
    upwards = generator.random() > 0.5
    width = _whole(generator, course.stair_width)
    steps = _whole(generator, course.stair_steps)
    heights, boxes = [y], []
    for step in range(steps):
        top = y + step * rise if upwards else y - step * rise
        left = x + step * width * TERRAIN_STEP
        boxes.append((left, top - rise, left + width * TERRAIN_STEP, top))
        # Upwards, the ground is on top of the step; downwards, below it.
        heights += [top if upwards else top - rise] * width
    return heights, boxes, 0.0


def _pit(course: Course, generator: np.random.Generator, x: float, y: float) -> Obstacle:
    gap = 1.0 + _real(generator, course.pit_gap)  # between the left sides of the walls
    bottom = y - 4 * TERRAIN_STEP
    points = math.ceil(gap)
    walls = [(left, bottom, left + TERRAIN_STEP, y) for left in (x, x + gap * TERRAIN_STEP)]
    return [y, *[bottom] * points, y], walls, (points - gap) * TERRAIN_STEP


def _real(generator: np.random.Generator, interval: Interval | None) -> float:
    assert interval is not None
    low, high = interval
    return generator.uniform(low, high)


def _whole(generator: np.random.Generator, interval: Interval) -> int:
    low, high = interval
    return int(generator.integers(int(low), int(high)))


def _corners(boxes: list[Box]) -> NDArray[np.float64]:
    corners = [[(left, bottom), (right, bottom), (right, top), (left, top)] for left, bottom, right, top in boxes]
    return np.array(corners, np.float64).reshape(-1, 4, 2)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite real number, not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer of Python or NumPy, not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(is_number(bound) for bound in value)


def _check_real(key: str, value: Any) -> None:
    require(
        value is None or (_is_pair(value) and 0 <= value[0] <= value[1] <= LARGEST),
        f"env.kwargs.{key}={value!r} must be [low, high] with 0 <= low <= high <= {LARGEST}, in steps of 0.467 m; such "
        "as [0, 0.4], or null for none",
    )


def _check_whole(key: str, value: Any, least: int) -> None:
    whole = _is_pair(value) and all(is_whole(bound) for bound in value)
    require(
        whole and least <= value[0] < value[1] <= LARGEST,
        f"env.kwargs.{key}={value!r} must be whole numbers [low, high] with {least} <= low < high <= {LARGEST}; high "
        f"is exclusive, so [{least}, {least + 1}] is always {least}",
    )
