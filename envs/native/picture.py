"""Pictures of native environments: Gymnasium's own, of the state that the C code has."""

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from envs.errors import require
from envs.native.settings import NativeTask

BODIES = 5  # hull, leg, lower leg, leg, lower leg


class Painter(Protocol):
    """Draws environments of one vector."""

    def paint(self, i: int, observation: NDArray[np.float32], action: Any) -> NDArray[np.uint8] | None:
        """The picture of environment i, whose latest observation and last action are given; None in a window."""
        ...

    def close(self) -> None:
        """Close the window, if there is one."""


def painter_of(task: NativeTask, c: ctypes.CDLL, vector: int | None) -> Painter:
    """What draws the environments of this task; the walker's bodies and ground are the vector's."""
    return _WalkerPainter(task, c, vector) if task.name == "walker" else _ClassicPainter(task)


class _ClassicPainter:
    """An environment of Gymnasium's that never steps, and draws the states that it is told."""

    def __init__(self, task: NativeTask) -> None:
        self._env: Any = task.source.make().unwrapped
        self._read = STATES[task.name]
        self._has_torque = task.name == "pendulum"

    def paint(self, i: int, observation: NDArray[np.float32], action: Any) -> NDArray[np.uint8] | None:
        self._env.state = self._read(*observation.tolist())
        if self._has_torque:
            torque = None if action is None else float(np.reshape(action, -1)[0])
            self._env.last_u = None if torque is None else min(max(torque, -self._env.max_torque), self._env.max_torque)
        return self._env.render()

    def close(self) -> None:
        self._env.close()


def _angle_and_speed(cosine: float, sine: float, speed: float) -> NDArray[np.float64]:
    return np.array([math.atan2(sine, cosine), speed])


def _angles_and_speeds(c: float, s: float, c2: float, s2: float, speed: float, speed2: float) -> NDArray[np.float64]:
    return np.array([math.atan2(s, c), math.atan2(s2, c2), speed, speed2])


def _same(*observation: float) -> NDArray[np.float64]:
    return np.array(observation)


STATES: dict[str, Callable[..., NDArray[np.float64]]] = {  # Gymnasium's state, by its observation
    "cartpole": _same,
    "pendulum": _angle_and_speed,
    "acrobot": _angles_and_speeds,
    "mountain_car": _same,
    "mountain_car_continuous": _same,
}


class _CGround(ctypes.Structure):
    """`struct ground` of ground.h."""

    _fields_ = (
        ("length", ctypes.c_int32),
        ("boxes", ctypes.c_int32),
        ("room", ctypes.c_int32),
        ("x", ctypes.POINTER(ctypes.c_float)),
        ("y", ctypes.POINTER(ctypes.c_float)),
        ("box", ctypes.POINTER(ctypes.c_float * 8)),
    )


@dataclass(frozen=True)
class _Pose:
    """Where a body is; times a corner of its own, it gives the corner's place in the world."""

    x: float
    y: float
    angle: float

    def __mul__(self, corner: tuple[float, float]) -> tuple[float, float]:
        sine, cosine = math.sin(self.angle), math.cos(self.angle)
        return self.x + cosine * corner[0] - sine * corner[1], self.y + sine * corner[0] + cosine * corner[1]


class _WalkerPainter:
    """What `envs.bipedal.picture` draws, of bodies and ground that the C code has."""

    def __init__(self, task: NativeTask, c: ctypes.CDLL, vector: int | None) -> None:
        # Only those who look need Box2D and pygame.
        from gymnasium.envs.box2d import bipedal_walker as gym

        from envs.bipedal import picture

        self._poses = _function(c, "walker_poses", None, ctypes.c_int, ctypes.c_void_p)
        self._grounds = _function(c, "walker_ground", ctypes.POINTER(_CGround), ctypes.c_int)
        self._show, self._vector = picture.show, vector
        wide, narrow, high = gym.LEG_W / 2, 0.8 * gym.LEG_W / 2, gym.LEG_H / 2
        hull = [(x / gym.SCALE, y / gym.SCALE) for x, y in gym.HULL_POLY]
        leg, lower = ([(-w, -high), (w, -high), (w, high), (-w, high)] for w in (wide, narrow))
        self._corners = [hull, leg, lower, leg, lower]
        self._colors = [((127, 51, 229), (76, 76, 127))]
        for shade in (25, 25, -25, -25):
            inside, rim = (153 + shade, 76 + shade, 127 + shade), (102 + shade, 51 + shade, 76 + shade)
            self._colors.append((inside, rim))
        self._left, self._step, self._beyond = picture.WIDTH / 5, gym.TERRAIN_STEP, gym.TERRAIN_GRASS
        # What the picture reads and keeps, by the names that a `Terrain` has for it; the sky is without clouds.
        self._walker: Any = SimpleNamespace(
            render_mode=task.render_mode,
            metadata=task.metadata,
            screen=None,
            clock=None,
            lidar=[],
            lidar_render=0,
            clouds=np.empty((0, 0)),
        )

    def paint(self, i: int, observation: NDArray[np.float32], action: Any) -> NDArray[np.uint8] | None:
        poses = np.zeros((BODIES, 3), np.float32)
        self._poses(self._vector, i, poses.ctypes.data)
        bodies = []
        for pose, corners, (inside, rim) in zip(poses.tolist(), self._corners, self._colors, strict=True):
            fixture = SimpleNamespace(shape=SimpleNamespace(vertices=corners))
            place = _Pose(*pose)
            bodies.append(
                SimpleNamespace(position=place, transform=place, fixtures=[fixture], color1=inside, color2=rim)
            )
        walker = self._walker
        walker.hull = bodies[0]
        walker.drawlist = [*bodies[1:], bodies[0]]
        walker.scroll = bodies[0].position.x - self._left
        walker.ground = self._ground(i)
        walker.finish = (len(walker.ground.x) - self._beyond) * self._step
        return self._show(walker)

    def close(self) -> None:
        if self._walker.screen is not None:
            import pygame

            pygame.display.quit()
            self._walker.screen = None

    def _ground(self, i: int) -> Any:
        found = self._grounds(self._vector, i).contents
        x, y = (np.array(part[: found.length], np.float64) for part in (found.x, found.y))
        boxes = np.array([list(found.box[k]) for k in range(found.boxes)], np.float64)
        return SimpleNamespace(x=x, y=y, boxes=boxes.reshape(-1, 4, 2))


def _function(c: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    """A function of the library whose first argument is the vector."""
    require(hasattr(c, name), f"render: this library has no {name}; run pip install again")
    function = getattr(c, name)
    function.restype, function.argtypes = result, (ctypes.c_void_p, *arguments)
    return function
