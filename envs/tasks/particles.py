"""Round bodies on a plane that forces move and contact pushes apart: how things go in particle worlds.

As in the worlds that Lowe et al. 2017 (arXiv:1706.02275) published, which are those of Mordatch & Abbeel 2017
(arXiv:1703.04908), a step is of 0.1 s, and every mass is 1:

1. Two bodies whose centres are `d` apart, with radii of `r` together, are pushed apart by 100 h, where
   h = 0.001 log(1 + exp((r - d) / 0.001)): about 100 (r - d) where they overlap, next to nothing where they do not.
2. A place changes by 0.1 times the speed before the step; a speed loses a quarter, and gains 0.1 times the force.

Numbers are of double precision, and each operation is rounded by itself in the order that is written here, those of
exponential and logarithm too: `envs/native/src/boards/particles.h` has the same, and so the same bits everywhere.
"""

import math
from collections.abc import Sequence

DT = 0.1  # seconds
KEPT = 0.75  # of a speed in a step
STIFFNESS = 100.0  # of contact, force by depth
MARGIN = 1e-3  # around a body in which contact begins
FAR = 40.0  # margins beyond which the logarithm of 1 + exp is what it is at infinity
HALVINGS = 6  # of an exponent, so that the series of the rest is short
_EXP = [1 / math.factorial(k) for k in range(16)]
_ATANH = [1 / (2 * k + 1) for k in range(17)]

Point = list[float]  # x, y


def softplus(x: float) -> float:
    """Return log(1 + exp(x)) to about 1e-15; 0 below -40, and x above 40."""
    if not -FAR < x < FAR:
        return x if x > 0 else 0.0
    r = -abs(x) / (1 << HALVINGS)
    e = _EXP[15]
    for k in range(14, -1, -1):
        e = e * r + _EXP[k]
    for _ in range(HALVINGS):
        e = e * e
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
    """Add to the force on each body by which it is pushed from every other; from one in the same place nothing is."""
    for a in range(len(places)):
        for b in range(a + 1, len(places)):
            apart, reach = distance(places[a], places[b]), radii[a] + radii[b]
            depth = softplus((reach - apart) / MARGIN) * MARGIN
            if depth == 0.0 or apart == 0.0:
                continue
            for axis in range(2):
                push = STIFFNESS * (places[a][axis] - places[b][axis]) / apart * depth
                forces[a][axis] += push
                forces[b][axis] -= push


def move(place: Point, speed: Point, force: Point) -> None:
    """Change a body's place and speed by a step."""
    for axis in range(2):
        place[axis] += speed[axis] * DT
        speed[axis] = speed[axis] * KEPT + force[axis] * DT
