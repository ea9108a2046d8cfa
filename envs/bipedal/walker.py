"""BipedalWalker-v3 with a faster, bit-identical step and without state shared between episodes.

Gymnasium's step spends a third of its time on NumPy operations on scalars and on querying the collision category of
fixtures hit by lidar rays. Gymnasium also reuses one Box2D world for all episodes. Destroyed bodies change its contact
order, so that episodes depend on earlier ones.
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
SPEEDS = (SPEED_HIP, SPEED_KNEE, SPEED_HIP, SPEED_KNEE)  # motor speeds, rad/s
WIDTH, HEIGHT = VIEWPORT_W / SCALE, VIEWPORT_H / SCALE  # m


class _Ray(Box2D.b2.rayCastCallback):
    """Lidar ray; `fraction` is the distance to the ground as a fraction of the range."""

    fraction: float
    p1: Any
    p2: Any

    def ReportFixture(self, fixture: Any, point: Any, normal: Any, fraction: float) -> float:  # noqa: N802, Box2D's
        # Only the ground has this friction. Reading the collision category would allocate an object.
        if fixture.friction != FRICTION:
            return -1
        self.p2 = point
        self.fraction = fraction
        return fraction


class Walker(BipedalWalker):
    """BipedalWalker, bit-identical to a newly created Gymnasium environment."""

    finish = (TERRAIN_LENGTH - TERRAIN_GRASS) * TERRAIN_STEP  # x of the end of the course, m

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode in a new Box2D world, so that it depends only on the seed."""
        # Break the reference cycle through the listener, which would delay freeing the old world.
        self.world.contactListener = self.world.contactListener_bug_workaround = None
        self.world = Box2D.b2World()
        self.terrain = []
        observation, info = super().reset(seed=seed, options=options)
        rays = [_Ray() for _ in self.lidar]
        for ray, original in zip(rays, self.lidar, strict=True):
            ray.p1, ray.p2 = original.p1, original.p2
        self.lidar = rays
        return observation, info

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        """Advance by 1/50 s; action [4] in [-1, 1] sets the motor direction and torque of both hips and knees."""
        hull: Any = self.hull
        joints, legs = self.joints, self.legs
        magnitudes = np.minimum(np.abs(action), 1)
        signs, torques = np.sign(action).tolist(), (MOTORS_TORQUE * magnitudes).tolist()
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

        # Gymnasium's shaping: 130 for the whole course, minus a penalty for the hull angle.
        shaping = 130 * x / SCALE - 5.0 * abs(angle)
        reward: Any = 0 if self.prev_shaping is None else shaping - self.prev_shaping
        self.prev_shaping = shaping
        for cost in 0.00035 * MOTORS_TORQUE * magnitudes:
            reward -= cost
        fallen = bool(self.game_over or x < 0)
        if fallen:
            reward = -100
        if self.render_mode == "human":
            self.render()
        return np.array(state, np.float32), reward, fallen or x > self.finish, False, {}
