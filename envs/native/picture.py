"""Pictures of native environments: Gymnasium's own, of the state that the C code has."""

import ctypes
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError, require
from paddock.envs.games.game import Game
from paddock.envs.native.settings import NativeTask

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
    if task.name == "walker":
        return _WalkerPainter(task, c, vector)
    if task.name in STATES:
        return _ClassicPainter(task)
    game = None if task.source.seats > 1 else task.source.make().unwrapped
    if isinstance(game, Game):
        return _GamePainter(task, game)
    raise ConfigError(
        f"render: the native version of {task.source.id} draws nothing; the same episodes on vec=serial do"
    )


class _GamePainter:
    """The picture of an observation, which shows all that there is in a game of ours."""

    def __init__(self, task: NativeTask, game: Game) -> None:
        self._layout, self._picture = task.source.observations, game.picture

    def paint(self, i: int, observation: NDArray[Any], action: Any) -> NDArray[np.uint8] | None:
        rows = self._layout.zeros(1)
        rows[0] = observation
        return self._picture(self._layout.reader(rows)(0))

    def close(self) -> None: ...


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


class _WalkerPainter:
    """A walker in Python that never steps; its bodies and its ground are put where the C code has them."""

    def __init__(self, task: NativeTask, c: ctypes.CDLL, vector: int | None) -> None:
        # Only those who look need Box2D and pygame.
        from paddock.envs.bipedal.ground import TERRAIN_GRASS, TERRAIN_STEP, Ground
        from paddock.envs.bipedal.terrain import Terrain
        from paddock.envs.bipedal.walker import WIDTH

        self._poses = _function(c, "walker_poses", None, ctypes.c_int, ctypes.c_void_p)
        self._grounds = _function(c, "walker_ground", ctypes.POINTER(_CGround), ctypes.c_int)
        self._vector, self._ground_of = vector, Ground
        self._left, self._step, self._beyond = WIDTH / 5, TERRAIN_STEP, TERRAIN_GRASS
        self._walker: Any = Terrain()
        self._walker.reset()
        self._walker.render_mode = task.render_mode  # from now on: that reset shows nothing
        self._walker.lidar, self._walker.clouds = [], np.empty((0, 0))

    def paint(self, i: int, observation: NDArray[np.float32], action: Any) -> NDArray[np.uint8] | None:
        walker = self._walker
        poses = np.zeros((BODIES, 3), np.float32)
        self._poses(self._vector, i, poses.ctypes.data)
        for body, (x, y, angle) in zip([walker.hull, *walker.legs], poses.tolist(), strict=True):
            body.position, body.angle = (x, y), angle
        found = self._grounds(self._vector, i).contents
        across, up = (np.array(part[: found.length], np.float64) for part in (found.x, found.y))
        boxes = np.array([list(found.box[k]) for k in range(found.boxes)], np.float64)
        walker.ground = self._ground_of(across, up, boxes.reshape(-1, 4, 2))
        walker.finish = (found.length - self._beyond) * self._step
        walker.scroll = walker.hull.position.x - self._left
        return walker.render()

    def close(self) -> None:
        self._walker.close()


def _function(c: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    """A function of the library whose first argument is the vector."""
    require(hasattr(c, name), f"render: this library has no {name}; run pip install again")
    function = getattr(c, name)
    function.restype, function.argtypes = result, (ctypes.c_void_p, *arguments)
    return function
