"""BipedalWalker-v3 with the same numbers in less time, and without a memory of earlier episodes.

Gymnasium's step spends a third of its time on NumPy calls with single numbers and on asking each fixture that a lidar
ray meets for its category. And it keeps one Box2D world for all episodes, whose contacts come in another order once
bodies have been destroyed, so that an episode there depends on those before it.
"""

import math
from typing import Any

import numpy as np
from gymnasium.envs.box2d.bipedal_walker import (
    FPS,
    FRICTION,
    LIDAR_RANGE,
    MOTORS_TORQUE,
    SCALE,
    SPEED_HIP,
    SPEED_KNEE,
    TERRAIN_GRASS,
    TERRAIN_LENGTH,
    TERRAIN_STEP,
    VIEWPORT_H,
    VIEWPORT_W,
    BipedalWalker,
)
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

try:
    import Box2D
except ImportError as error:
    raise DependencyNotInstalled('Box2D is not installed, run `pip install "gymnasium[box2d]"`') from error

RAYS = [(math.sin(1.5 * i / 10.0) * LIDAR_RANGE, math.cos(1.5 * i / 10.0) * LIDAR_RANGE) for i in range(10)]
SPEEDS = (SPEED_HIP, SPEED_KNEE, SPEED_HIP, SPEED_KNEE)  # of the four motors, rad/s
WIDTH, HEIGHT = VIEWPORT_W / SCALE, VIEWPORT_H / SCALE  # m


class _Ray(Box2D.b2.rayCastCallback):
    """One ray of the lidar: how far it reaches, as a fraction of its range, before it meets the ground."""

    fraction: float
    p1: Any
    p2: Any

    def ReportFixture(self, fixture: Any, point: Any, normal: Any, fraction: float) -> float:  # noqa: N802, Box2D's
        # Only the ground has its friction; asking for a category would build an object each time.
        if fixture.friction != FRICTION:
            return -1
        self.p2 = point
        self.fraction = fraction
        return fraction


class Walker(BipedalWalker):
    """The same task as Gymnasium's, to the bit, for an environment that was just made."""

    finish = (TERRAIN_LENGTH - TERRAIN_GRASS) * TERRAIN_STEP  # m, where the course ends

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode in a new world; it depends on the seed alone."""
        # The listener holds this environment, and the old world would wait for the garbage collector.
        self.world.contactListener = self.world.contactListener_bug_workaround = None
        self.world = Box2D.b2World()
        self.terrain = []
        observation, info = super().reset(seed=seed, options=options)
        rays = [_Ray() for _ in self.lidar]
        for ray, first in zip(rays, self.lidar, strict=True):
            ray.p1, ray.p2 = first.p1, first.p2
        self.lidar = rays
        return observation, info

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        """Advance by 1/50 s; action [4] in [-1, 1] gives direction and torque of hip and knee, twice."""
        hull: Any = self.hull
        joints, legs = self.joints, self.legs
        effort = np.minimum(np.abs(action), 1)
        signs, torques = np.sign(action).tolist(), (MOTORS_TORQUE * effort).tolist()
        for joint, speed, sign, torque in zip(joints, SPEEDS, signs, torques, strict=True):
            joint.motorSpeed = float(speed * sign)
            joint.maxMotorTorque = float(torque)

        self.world.Step(1.0 / FPS, 6 * 30, 2 * 30)

        position, velocity = hull.position, hull.linearVelocity
        x, y = position.x, position.y
        ray_cast = self.world.RayCast
        for ray, (right, down) in zip(self.lidar, RAYS, strict=True):
            ray.fraction = 1.0
            ray.p1 = position
            ray.p2 = end = (x + right, y - down)
            ray_cast(ray, position, end)

        hip, knee, other_hip, other_knee = joints
        angle = hull.angle
        state = [
            angle,
            2.0 * hull.angularVelocity / FPS,
            0.3 * velocity.x * WIDTH / FPS,
            0.3 * velocity.y * HEIGHT / FPS,
            hip.angle,
            hip.speed / SPEED_HIP,
            knee.angle + 1.0,
            knee.speed / SPEED_KNEE,
            1.0 if legs[1].ground_contact else 0.0,
            other_hip.angle,
            other_hip.speed / SPEED_HIP,
            other_knee.angle + 1.0,
            other_knee.speed / SPEED_KNEE,
            1.0 if legs[3].ground_contact else 0.0,
            *[ray.fraction for ray in self.lidar],
        ]
        self.scroll = x - WIDTH / 5

        # 130 for the length of the course; the head is kept straight.
        shaping = 130 * x / SCALE - 5.0 * abs(angle)
        reward: Any = 0 if self.prev_shaping is None else shaping - self.prev_shaping
        self.prev_shaping = shaping
        for cost in 0.00035 * MOTORS_TORQUE * effort:
            reward -= cost
        fallen = bool(self.game_over or x < 0)
        if fallen:
            reward = -100
        if self.render_mode == "human":
            self.render()
        return np.array(state, np.float32), reward, fallen or x > self.finish, False, {}
