"""Physics of particle environments: discs on a plane with forces and contacts.

As in the environments of Lowe et al. 2017 (arXiv:1706.02275), based on Mordatch & Abbeel 2017 (arXiv:1703.04908), a
step takes 0.1 s and every mass is 1:

1. Two bodies at distance `d` with radii that sum to `r` repel each other with a force of 100 h, where
   h = 0.001 log(1 + exp((r - d) / 0.001)): about 100 (r - d) if they overlap, almost 0 otherwise.
2. A position changes by 0.1 times the velocity before the step. A velocity is multiplied by 0.75, and increased by 0.1
   times the force.

All operations, including exp and log, are in double precision in a fixed order, shared with
`envs/native/src/tasks/particles.h`, so results are bit-identical on every CPU.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

TICK_S = 0.1  # seconds
SPEED_KEPT = 0.75  # fraction per step
CONTACT_FORCE = 100.0  # force per depth
CONTACT_MARGIN = 1e-3  # softness of contacts
MAX_EXPONENT = 40.0  # beyond it softplus equals its asymptote
HALVINGS = 6  # of an exponent, to shorten the series
SIZE, HALF = 320, 1.6  # side of an image, pixels; half of its extent
GROUND = np.array((24, 26, 34), np.uint8)
_EXP = [1 / math.factorial(k) for k in range(16)]
_ATANH = [1 / (2 * k + 1) for k in range(17)]

Point = list[float]  # x, y


def exponential(x: float) -> float:
    """Return exp(x) for x in [-40, 40], with a relative error of about 1e-14."""
    r = x / (1 << HALVINGS)
    e = _EXP[15]
    for k in range(14, -1, -1):
        e = e * r + _EXP[k]
    for _ in range(HALVINGS):
        e = e * e
    return e


def softplus(x: float) -> float:
    """Return log(1 + exp(x)) with a relative error of about 1e-14; 0 below -40, x above 40."""
    if not -MAX_EXPONENT < x < MAX_EXPONENT:
        return x if x > 0 else 0.0
    e = exponential(-abs(x))
    s = e / (2.0 + e)  # log(1 + e) = 2 artanh(s)
    s2 = s * s
    area = _ATANH[16]
    for k in range(15, -1, -1):
        area = area * s2 + _ATANH[k]
    return (x if x > 0 else 0.0) + 2.0 * s * area


def distance(one: Point, other: Point) -> float:
    """Return the distance of two points."""
    x, y = one[0] - other[0], one[1] - other[1]
    return math.sqrt(x * x + y * y)


def push_apart(forces: Sequence[Point], places: Sequence[Point], radii: Sequence[float]) -> None:
    """Add contact forces to `forces`; bodies at the same position do not repel each other.

    Args:
        forces: forces on the movable bodies, which come first.
        places: positions of all bodies.
        radii: radii of all bodies.
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


def move(place: Point, speed: Point, force: Point) -> None:
    """Integrate position and velocity of a body over one step."""
    for axis in range(2):
        place[axis] += speed[axis] * TICK_S
        speed[axis] = speed[axis] * SPEED_KEPT + force[axis] * TICK_S


def draw_discs(places: Sequence[Point], radii: Sequence[float], colors: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an image of bodies, [H, W, 3], the last on top."""
    picture = np.broadcast_to(GROUND, (SIZE, SIZE, 3)).copy()
    at = (np.arange(SIZE) + 0.5) * (2 * HALF / SIZE) - HALF
    for (x, y), radius, color in zip(places, radii, colors, strict=True):
        picture[(at + y)[:, None] ** 2 + (at - x) ** 2 < radius**2] = color
    return picture
