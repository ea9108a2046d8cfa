"""The ground that native code lays, against Gymnasium's and against `paddock.envs.bipedal.ground`, to the last bit."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from gymnasium.envs.box2d.bipedal_walker import BipedalWalker
from numpy.typing import NDArray

from paddock.envs.bipedal.ground import Course, generate_ground
from paddock.envs.native.originals import ENCODED, GIVEN, HARDCORE, PLAIN, CourseSettings

NATIVE = ROOT / "envs" / "native"
COMPILER = shutil.which("cc")
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE / 'src'}"]
SOURCES = [str(NATIVE / "src" / name) for name in ("walker/ground.c", "runtime/generator.c")]
LENGTH = 200  # points of Gymnasium's ground
MOST_BOXES = 12_000

# Lays a ground in memory that an earlier, other one has used.
PROGRAM = r"""
#include <stdlib.h>
#include <string.h>
#include "walker/ground.h"

int lay(const struct course *course, uint64_t seed, int rooms, float *x, float *y, float *boxes, double *next)
{
    struct generator generator;
    struct ground ground;
    struct course other = *course;
    if (open_ground(&ground, course->length)) return -1;
    other.kind = GROUND_HARDCORE;
    seed_generator(&generator, ~seed);
    if (generate_ground(&ground, &other, &generator)) return -1;
    seed_generator(&generator, seed);
    if (generate_ground(&ground, course, &generator) || ground.boxes > rooms) return -1;
    memcpy(x, ground.x, sizeof(float) * ground.length);
    memcpy(y, ground.y, sizeof(float) * ground.length);
    memcpy(boxes, ground.box, sizeof(struct box) * ground.boxes);
    *next = draw_uniform(&generator, -5, 5) + draw_integer(&generator, 0, 1000);
    int count = ground.boxes;
    close_ground(&ground);
    return count;
}
"""


Laid = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], float]  # x, y, boxes, what is drawn next
Lay = Callable[[CourseSettings, int], Laid]


@pytest.fixture(scope="module")
def lay(tmp_path_factory: pytest.TempPathFactory) -> Lay:
    """The ground of a course for a seed, from native code."""
    if COMPILER is None:
        pytest.skip("there is no C compiler (cc)")
    folder = tmp_path_factory.mktemp("ground")
    (folder / "program.c").write_text(PROGRAM)
    build = [COMPILER, *FLAGS, "-shared", "-fPIC", "-o", "ground.so", "program.c", *SOURCES]
    subprocess.run(build, cwd=folder, check=True)
    native = ctypes.CDLL(str(folder / "ground.so")).lay

    def call(course: CourseSettings, seed: int) -> Laid:
        x, y = np.empty((2, course.length), np.float32)
        boxes = np.empty((MOST_BOXES, 4, 2), np.float32)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y, boxes)]
        following = ctypes.c_double()
        count = native(ctypes.byref(course), ctypes.c_uint64(seed), MOST_BOXES, *pointers, ctypes.byref(following))
        assert count >= 0
        return x, y, boxes[:count], following.value

    return call


def draw_next(generator: np.random.Generator) -> float:
    return generator.uniform(-5, 5) + int(generator.integers(0, 1000))


def rounded(x: Any, y: Any, boxes: Any, following: float) -> Laid:
    return x.astype(np.float32), y.astype(np.float32), boxes.astype(np.float32), following


def upright(boxes: Any) -> Any:
    """The corners [K, 4, 2] of boxes that Box2D is given by middle and half their size, in single precision."""
    low, high = boxes[:, 0], boxes[:, 2]
    middle, half = ((high + low) / 2).astype(np.float32), ((high - low) / 2).astype(np.float32)
    signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], np.float32)
    return middle[:, None] + signs * half[:, None]


def agree(ours: Laid, theirs: Laid) -> None:
    for mine, other in zip(ours[:3], theirs[:3], strict=True):
        np.testing.assert_array_equal(mine, other)
    assert ours[3] == theirs[3]


class Recorder:
    """Stands in for Box2D's world: keeps the corners of every box, and forgets the edges."""

    def __init__(self, walker: Any) -> None:
        self.walker = walker
        self.boxes: list[Any] = []

    def CreateStaticBody(self, fixtures: Any) -> Any:  # noqa: N802, Box2D's
        if fixtures is self.walker.fd_polygon:
            self.boxes.append(fixtures.shape.vertices)
        return type("Body", (), {})()


class Vertices:
    """Stands in for Box2D's shapes and fixtures: keeps doubles as they were given."""

    def __init__(self) -> None:
        self.shape: Any = self
        self.vertices: Any = None


@pytest.mark.parametrize("hardcore", [False, True])
def test_gymnasium_s_ground_is_laid_to_the_last_bit(lay: Lay, hardcore: bool) -> None:
    walker: Any = BipedalWalker(hardcore=hardcore)
    walker.fd_polygon, walker.fd_edge = Vertices(), Vertices()
    course = CourseSettings(kind=HARDCORE if hardcore else PLAIN, length=LENGTH)
    boxes_seen = 0
    for seed in range(100):
        walker.world = Recorder(walker)
        generator = walker._np_random = np.random.default_rng(seed)
        walker._generate_terrain(hardcore)
        walker._generate_clouds()
        boxes = np.array([anticlockwise(box) for box in walker.world.boxes], np.float64).reshape(-1, 4, 2)
        points = np.array(walker.terrain_x), np.array(walker.terrain_y)
        agree(lay(course, seed), rounded(*points, boxes, draw_next(generator)))
        boxes_seen += len(boxes)
    assert (boxes_seen > 100) == hardcore


def anticlockwise(box: Any) -> list[tuple[float, float]]:
    """The corners of an upright box from lower left on."""
    low, high = (
        [f(corner[0] for corner in box) for f in (min, max)],
        [f(corner[1] for corner in box) for f in (min, max)],
    )
    found = [(low[0], high[0]), (low[1], high[0]), (low[1], high[1]), (low[0], high[1])]
    assert sorted(found) == sorted((float(x), float(y)) for x, y in box)
    return found


def random_course(generator: np.random.Generator, largest: int) -> dict[str, Any]:
    def real() -> list[float] | None:
        return sorted(generator.uniform(0, largest, 2).tolist()) if generator.random() < 0.7 else None

    def whole(least: int) -> list[int]:
        low = int(generator.integers(least, largest))
        return [low, int(generator.integers(low + 1, largest + 1))]

    return {
        "roughness": float(generator.uniform(0, 10)) if generator.random() < 0.8 else 0.0,
        "pit_gap": real(),
        "stump_height": real(),
        "stump_width": whole(1),
        "stump_float": whole(0),
        "stair_height": real(),
        "stair_width": whole(1),
        "stair_steps": whole(1),
        "length": int(generator.integers(60, 500)) if generator.random() < 0.9 else 10_000,
    }


def native_course(encoding: dict[str, Any]) -> CourseSettings:
    course = CourseSettings(kind=ENCODED, length=encoding["length"], roughness=encoding["roughness"])
    for name in ("pit_gap", "stump_height", "stair_height"):
        setattr(course, name, tuple(encoding[name] or (0, 0)))
    for name in ("stump_width", "stump_float", "stair_width", "stair_steps"):
        setattr(course, name, tuple(encoding[name]))
    course.pits, course.stumps, course.stairs = (
        int(encoding[name] is not None) for name in ("pit_gap", "stump_height", "stair_height")
    )
    return course


@pytest.mark.parametrize("largest", [3, 10, 100])
def test_the_ground_of_an_encoding_is_laid_to_the_last_bit(lay: Lay, largest: int) -> None:
    generator = np.random.default_rng(largest)
    for seed in range(60):
        encoding = random_course(generator, largest)
        drawn = np.random.default_rng(seed)
        ground = generate_ground(Course(**encoding, cppn=None), drawn)
        drawn.random((encoding["length"] // 20, 11))
        agree(lay(native_course(encoding), seed), rounded(ground.x, ground.y, upright(ground.boxes), draw_next(drawn)))


def test_ground_that_is_given_is_kept_and_skips_only_the_scenery(lay: Lay) -> None:
    generator = np.random.default_rng(5)
    x, y, corners = generator.random(60), generator.random(60), generator.random((33, 4, 2))
    for scenery in (0, 33):
        course = CourseSettings(kind=GIVEN, length=60, given_boxes=33, scenery=scenery)
        course.given_x, course.given_y, course.given_corners = (array.ctypes.data for array in (x, y, corners))
        drawn = np.random.default_rng(9)
        drawn.random(scenery)
        agree(lay(course, 9), rounded(x, y, upright(corners), draw_next(drawn)))
