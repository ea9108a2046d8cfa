"""Rendering of native environments by their Python versions, from the state in C."""

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


class Renderer(Protocol):
    """Renderer of the environments of one vector."""

    def render(self, i: int, observation: NDArray[np.float32], action: Any) -> NDArray[np.uint8] | None:
        """Render environment i after its latest observation and action; None if a window shows it."""
        ...

    def close(self) -> None:
        """Close the window, if any."""


def make_renderer(task: NativeTask, c: ctypes.CDLL, vector: int | None) -> Renderer:
    """Return a renderer of this task; walkers read bodies and ground from the vector."""
    if task.name == "walker":
        return _WalkerRenderer(task, c, vector)
    if task.name in STATES:
        return _ClassicRenderer(task)
    game = None if task.source.seats > 1 else task.source.make().unwrapped
    if isinstance(game, Game):
        return _GameRenderer(task, game)
    raise ConfigError(f"render: the native version of {task.source.id} cannot render; use vec=serial")


class _GameRenderer:
    """Renderer of Paddock's own games, whose observations show the whole state."""

    def __init__(self, task: NativeTask, game: Game) -> None:
        self._layout, self._picture = task.source.observations, game.picture

    def render(self, i: int, observation: NDArray[Any], action: Any) -> NDArray[np.uint8] | None:
        rows = self._layout.zeros(1)
        rows[0] = observation
        return self._picture(self._layout.reader(rows)(0))

    def close(self) -> None: ...


class _ClassicRenderer:
    """Gymnasium's environment, used only to render given states."""

    def __init__(self, task: NativeTask) -> None:
        self._env: Any = task.source.make().unwrapped
        self._read = STATES[task.name]
        self._has_torque = task.name == "pendulum"

    def render(self, i: int, observation: NDArray[np.float32], action: Any) -> NDArray[np.uint8] | None:
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


STATES: dict[str, Callable[..., NDArray[np.float64]]] = {  # observation -> Gymnasium's state
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
        ("capacity", ctypes.c_int32),
        ("x", ctypes.POINTER(ctypes.c_float)),
        ("y", ctypes.POINTER(ctypes.c_float)),
        ("box", ctypes.POINTER(ctypes.c_float * 8)),
    )


class _WalkerRenderer:
    """Walker in Python, used only to render the bodies and ground of the C code."""

    def __init__(self, task: NativeTask, c: ctypes.CDLL, vector: int | None) -> None:
        # Imported here, as only rendering needs Box2D and pygame.
        from paddock.envs.bipedal.ground import TERRAIN_GRASS, TERRAIN_STEP, Ground
        from paddock.envs.bipedal.terrain import Terrain
        from paddock.envs.bipedal.walker import WIDTH

        self._poses = _function(c, "walker_poses", None, ctypes.c_int, ctypes.c_void_p)
        self._grounds = _function(c, "walker_ground", ctypes.POINTER(_CGround), ctypes.c_int)
        self._vector, self._ground_of = vector, Ground
        self._left, self._step, self._beyond = WIDTH / 5, TERRAIN_STEP, TERRAIN_GRASS
        self._walker: Any = Terrain()
        self._walker.reset()
        self._walker.render_mode = task.render_mode  # set after reset, which would open a window
        self._walker.lidar, self._walker.clouds = [], np.empty((0, 0))

    def render(self, i: int, observation: NDArray[np.float32], action: Any) -> NDArray[np.uint8] | None:
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
    """Declare a library function whose first argument is the vector."""
    require(hasattr(c, name), f"render: the compiled library has no {name}; run pip install again")
    function = getattr(c, name)
    function.restype, function.argtypes = result, (ctypes.c_void_p, *arguments)
    return function
