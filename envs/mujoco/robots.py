"""Batched observations, rewards and terminations of Gymnasium's MuJoCo robots, version 5.

Each function evaluates the formula of Gymnasium's class with the same operations in the same precision, so that results
are bit-identical. Its arguments are `env`, a single environment with the settings, and `f`, fields of MjData as arrays
with one row per simulation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.spec import EnvSpec

Floats = NDArray[np.floating[Any]]
Outcome = tuple[Floats, NDArray[np.bool_]]  # rewards and whether the episodes terminated, [N] each
BINDING = "paddock.envs.bindings.mujoco"


def root_x(env: Any, f: Any) -> Floats:
    """Return the first joint position."""
    x: Floats = f.qpos[:, 0]
    return x


def torso_x(env: Any, f: Any) -> Floats:
    """Return the x coordinate of the main body."""
    x: Floats = f.xpos[:, env.data.body(env._main_body).id, 0]
    return x


def mass_center_x(env: Any, f: Any) -> Floats:
    """Return the x coordinate of the mass center."""
    mass = env.model.body_mass
    x: Floats = (np.einsum("b,nbj->nj", mass, f.xipos) / mass.sum())[:, 0]
    return x


@dataclass(frozen=True)
class Robot:
    """Batched formulas of one of Gymnasium's classes.

    Attributes:
        observe: (env, f) to observations.
        reward: (env, f, actions, velocities) to rewards and terminations; velocities are differences of `position`.
        fields: fields of MjData that are read, except qpos, qvel and ctrl.
        position: (env, f) to the coordinate along which the robot moves.
    """

    observe: Callable[[Any, Any], Floats]
    reward: Callable[[Any, Any, Floats, Floats], Outcome]
    fields: tuple[str, ...] = ()
    position: Callable[[Any, Any], Floats] = root_x


def find_robot(spec: EnvSpec) -> Robot:
    """Return the robot of a recipe; raise ConfigError if it is none of them or reads infos."""
    module, _, name = spec.id.rpartition(":")
    what = f"vec=mujoco does not support env.id={spec.id}; use vec=serial or vec=multiprocess, or one of"
    require(name in ROBOTS and module in ("", "gymnasium", BINDING), f"{what} {', '.join(ROBOTS)}")
    infos = f"env.metrics={list(spec.metrics)}: vec=mujoco has no infos"
    require(not spec.metrics, f"{infos}; remove it, or use vec=serial")
    return ROBOTS[name]


def _state(env: Any, f: Any, skipped: int = 0, limit: float = np.inf) -> Floats:
    skipped *= env._exclude_current_positions_from_observation
    return np.concatenate((f.qpos[:, skipped:], np.clip(f.qvel, -limit, limit)), axis=1)


def _observe_runner(env: Any, f: Any) -> Floats:
    return _state(env, f, 1)


def _observe_walker(env: Any, f: Any) -> Floats:
    return _state(env, f, 1, 10)


def _observe_swimmer(env: Any, f: Any) -> Floats:
    return _state(env, f, 2)


def _observe_ant(env: Any, f: Any) -> Floats:
    shown = slice(1, None) if env._include_cfrc_ext_in_observation else slice(0)
    forces = np.clip(f.cfrc_ext[:, shown], *env._contact_force_range)
    return np.concatenate((_state(env, f, 2), _flat(forces)), axis=1)


def _observe_humanoid(env: Any, f: Any) -> Floats:
    optional = [
        (env._include_cinert_in_observation, f.cinert[:, 1:]),
        (env._include_cvel_in_observation, f.cvel[:, 1:]),
        (env._include_qfrc_actuator_in_observation, f.qfrc_actuator[:, 6:]),
        (env._include_cfrc_ext_in_observation, f.cfrc_ext[:, 1:]),
    ]
    return np.concatenate((_state(env, f, 2), *(_flat(values) for included, values in optional if included)), axis=1)


def _observe_reacher(env: Any, f: Any) -> Floats:
    theta = f.qpos[:, :2].copy()
    to_target = (_body(env, f, "fingertip") - _body(env, f, "target"))[:, :2]
    return np.concatenate((np.cos(theta), np.sin(theta), f.qpos[:, 2:], f.qvel[:, :2], to_target), axis=1)


def _observe_pusher(env: Any, f: Any) -> Floats:
    bodies = [_body(env, f, name) for name in ("tips_arm", "object", "goal")]
    return np.concatenate((f.qpos[:, :7], f.qvel[:, :7], *bodies), axis=1)


def _observe_pendulum(env: Any, f: Any) -> Floats:
    return np.concatenate((f.qpos, f.qvel), axis=1)


def _observe_double_pendulum(env: Any, f: Any) -> Floats:
    angles = f.qpos[:, 1:].copy()
    speeds, force = np.clip(f.qvel, -10, 10), np.clip(f.qfrc_constraint, -10, 10)[:, :1]
    return np.concatenate((f.qpos[:, :1], np.sin(angles), np.cos(angles), speeds, force), axis=1)


def _reward_runner(env: Any, f: Any, action: Floats, velocity: Floats) -> Outcome:
    reward = env._forward_reward_weight * velocity - env._ctrl_cost_weight * _squares(action)
    return reward, _never(velocity)


def _reward_hopper(env: Any, f: Any, action: Floats, velocity: Floats) -> Outcome:
    healthy = _within(np.concatenate((f.qpos[:, 2:], f.qvel), axis=1), env._healthy_state_range).all(axis=1)
    healthy &= _within(f.qpos[:, 1], env._healthy_z_range) & _within(f.qpos[:, 2], env._healthy_angle_range)
    return _survive(env, healthy, velocity, env._ctrl_cost_weight * _squares(action))


def _reward_walker(env: Any, f: Any, action: Floats, velocity: Floats) -> Outcome:
    healthy = _within(f.qpos[:, 1], env._healthy_z_range) & _within(f.qpos[:, 2], env._healthy_angle_range)
    return _survive(env, healthy, velocity, env._ctrl_cost_weight * _squares(action))


def _reward_ant(env: Any, f: Any, action: Floats, velocity: Floats) -> Outcome:
    low, high = env._healthy_z_range
    z = f.qpos[:, 2]
    healthy = np.isfinite(f.qpos).all(axis=1) & np.isfinite(f.qvel).all(axis=1) & (low <= z) & (z <= high)
    contact_cost = env._contact_cost_weight * _squares(np.clip(f.cfrc_ext, *env._contact_force_range))
    return _survive(env, healthy, velocity, env._ctrl_cost_weight * _squares(action) + contact_cost)


def _reward_humanoid(env: Any, f: Any, action: Floats, velocity: Floats) -> Outcome:
    contact_cost = np.clip(env._contact_cost_weight * _squares(f.cfrc_ext), *env._contact_cost_range)
    costs = env._ctrl_cost_weight * _squares(f.ctrl) + contact_cost
    return _survive(env, _within(f.qpos[:, 2], env._healthy_z_range), velocity, costs)


def _reward_standup(env: Any, f: Any, action: Floats, velocity: Floats) -> Outcome:
    impact_cost = np.clip(env._impact_cost_weight * _squares(f.cfrc_ext), *env._impact_cost_range)
    height = f.qpos[:, 2] / env.model.opt.timestep
    return height - env._ctrl_cost_weight * _squares(f.ctrl) - impact_cost + 1, _never(velocity)


def _reward_reacher(env: Any, f: Any, action: Floats, velocity: Floats) -> Outcome:
    distance = _norm(_body(env, f, "fingertip") - _body(env, f, "target"))
    reward = -distance * env._reward_dist_weight + -_squares(action) * env._reward_control_weight
    return reward, _never(velocity)


def _reward_pusher(env: Any, f: Any, action: Floats, velocity: Floats) -> Outcome:
    at = _body(env, f, "object")
    near, distance = _norm(at - _body(env, f, "tips_arm")), _norm(at - _body(env, f, "goal"))
    costs = -distance * env._reward_dist_weight + -_squares(action) * env._reward_control_weight
    return costs + -near * env._reward_near_weight, _never(velocity)


def _reward_pendulum(env: Any, f: Any, action: Floats, velocity: Floats) -> Outcome:
    finite = np.isfinite(f.qpos).all(axis=1) & np.isfinite(f.qvel).all(axis=1)
    terminated = ~finite | (np.abs(f.qpos[:, 1]) > 0.2)
    return np.where(terminated, 0.0, 1.0), terminated


def _reward_double_pendulum(env: Any, f: Any, action: Floats, velocity: Floats) -> Outcome:
    terminated = f.site_xpos[:, 0, 2] <= 1
    rows = zip(f.site_xpos[:, 0].tolist(), f.qvel[:, 1:3].tolist(), terminated.tolist(), strict=True)
    # In Python, because its power rounds differently from NumPy's square.
    rewards = [
        env._healthy_reward * int(not fell) - (0.01 * x**2 + (y - 2) ** 2) - (1e-3 * v1**2 + 5e-3 * v2**2)
        for (x, _, y), (v1, v2), fell in rows
    ]
    return np.array(rewards), terminated


def _survive(env: Any, healthy: NDArray[np.bool_], velocity: Floats, costs: Floats) -> Outcome:
    reward = env._forward_reward_weight * velocity + healthy * env._healthy_reward - costs
    return reward, ~healthy & env._terminate_when_unhealthy


def _never(velocity: Floats) -> NDArray[np.bool_]:
    return np.zeros(len(velocity), np.bool_)


def _within(values: Floats, limits: tuple[float, float]) -> NDArray[np.bool_]:
    return (limits[0] < values) & (values < limits[1])


def _squares(values: Floats) -> Floats:
    total: Floats = _flat(np.square(values)).sum(axis=1)
    return total


def _norm(vectors: Floats) -> Floats:
    return np.sqrt(np.vecdot(vectors, vectors))  # rounds as `np.linalg.norm` of one vector


def _flat(values: Floats) -> Floats:
    return np.ascontiguousarray(values).reshape(len(values), -1)


def _body(env: Any, f: Any, name: str) -> Floats:
    at: Floats = f.xpos[:, env.data.body(name).id]
    return at


HUMANOID = ("xipos", "cinert", "cvel", "qfrc_actuator", "cfrc_ext")
ROBOTS = {
    "Ant-v5": Robot(_observe_ant, _reward_ant, ("xpos", "cfrc_ext"), torso_x),
    "HalfCheetah-v5": Robot(_observe_runner, _reward_runner),
    "Hopper-v5": Robot(_observe_walker, _reward_hopper),
    "Humanoid-v5": Robot(_observe_humanoid, _reward_humanoid, HUMANOID, mass_center_x),
    "HumanoidStandup-v5": Robot(_observe_humanoid, _reward_standup, HUMANOID),
    "InvertedDoublePendulum-v5": Robot(
        _observe_double_pendulum, _reward_double_pendulum, ("site_xpos", "qfrc_constraint")
    ),
    "InvertedPendulum-v5": Robot(_observe_pendulum, _reward_pendulum),
    "Pusher-v5": Robot(_observe_pusher, _reward_pusher, ("xpos",)),
    "Reacher-v5": Robot(_observe_reacher, _reward_reacher, ("xpos",)),
    "Swimmer-v5": Robot(_observe_swimmer, _reward_runner),
    "Walker2d-v5": Robot(_observe_walker, _reward_walker),
}
