"""Round bodies on a plane that forces move and contact pushes apart: how things go in particle worlds.

As in the worlds that Lowe et al. 2017 (arXiv:1706.02275) published, which are those of Mordatch & Abbeel 2017
(arXiv:1703.04908), a step is of 0.1 s, and every mass is 1:

1. Two bodies whose centres are `d` apart, with radii of `r` together, are pushed apart by 100 h, where
   h = 0.001 log(1 + exp((r - d) / 0.001)): about 100 (r - d) where they overlap, next to nothing where they do not.
2. A place changes by 0.1 times the speed before the step; a speed loses a quarter, gains 0.1 times the force, and is
   shortened to the body's top speed if it is above it.

Numbers are of double precision, and each operation is rounded by itself in the order that is written here, those of
exponential and logarithm too: `envs/native/src/tasks/particles.h` has the same, and so the same bits everywhere.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

TICK_S = 0.1  # seconds
SPEED_KEPT = 0.75  # of a speed in a step
CONTACT_FORCE = 100.0  # of contact, force by depth
CONTACT_MARGIN = 1e-3  # around a body in which contact begins
MOST_EXPONENT = 40.0  # margins beyond which the logarithm of 1 + exp is what it is at infinity
NO_TOP = math.inf  # a top speed: there is none
HALVINGS = 6  # of an exponent, so that the series of the rest is short
SIZE, HALF = 320, 1.6  # pixels of a picture's side, and what half of it shows
GROUND = np.array((24, 26, 34), np.uint8)
_EXP = [1 / math.factorial(k) for k in range(16)]
_ATANH = [1 / (2 * k + 1) for k in range(17)]

Point = list[float]  # x, y


def exponential(x: float) -> float:
    """Return exp(x) for numbers between -40 and 40, to about 1e-14 of it."""
    r = x / (1 << HALVINGS)
    e = _EXP[15]
    for k in range(14, -1, -1):
        e = e * r + _EXP[k]
    for _ in range(HALVINGS):
        e = e * e
    return e


def softplus(x: float) -> float:
    """Return log(1 + exp(x)) to about 1e-14 of it; 0 below -40, and x above 40."""
    if not -MOST_EXPONENT < x < MOST_EXPONENT:
        return x if x > 0 else 0.0
    e = exponential(-abs(x))
    s = e / (2.0 + e)  # log(1 + e) is twice the area tangent of this
    s2 = s * s
    area = _ATANH[16]
    for k in range(15, -1, -1):
        area = area * s2 + _ATANH[k]
    return (x if x > 0 else 0.0) + 2.0 * s * area


def distance(one: Point, other: Point) -> float:
    """Return how far two points are from each other."""
    x, y = one[0] - other[0], one[1] - other[1]
    return math.sqrt(x * x + y * y)


def push_apart(forces: Sequence[Point], places: Sequence[Point], radii: Sequence[float]) -> None:
    """Add to the force on each body what pushes it from every other; from one in the same place nothing does.

    Args:
        forces: on the bodies that move; those behind them stay where they are.
        places, radii: of all.
    """
    for a in range(len(forces)):
        for b in range(a + 1, len(places)):
            apart, reach = distance(places[a], places[b]), radii[a] + radii[b]
            depth = softplus((reach - apart) / CONTACT_MARGIN) * CONTACT_MARGIN
            if depth == 0.0 or apart == 0.0:
                continue
            for axis in range(2):
                push = CONTACT_FORCE * (places[a][axis] - places[b][axis]) / apart * depth
                forces[a][axis] += push
                if b < len(forces):
                    forces[b][axis] -= push


def move(place: Point, speed: Point, force: Point, top: float = NO_TOP) -> None:
    """Change a body's place and speed by a step."""
    for axis in range(2):
        place[axis] += speed[axis] * TICK_S
        speed[axis] = speed[axis] * SPEED_KEPT + force[axis] * TICK_S
    size = math.sqrt(speed[0] * speed[0] + speed[1] * speed[1])
    if size > top:
        for axis in range(2):
            speed[axis] = speed[axis] / size * top


def draw_discs(places: Sequence[Point], radii: Sequence[float], colors: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a picture of bodies from above [H, W, 3], the last on top."""
    picture = np.broadcast_to(GROUND, (SIZE, SIZE, 3)).copy()
    at = (np.arange(SIZE) + 0.5) * (2 * HALF / SIZE) - HALF
    for (x, y), radius, color in zip(places, radii, colors, strict=True):
        picture[(at + y)[:, None] ** 2 + (at - x) ** 2 < radius**2] = color
    return picture
