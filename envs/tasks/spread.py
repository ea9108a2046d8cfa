"""Spread: agents cover landmarks and avoid collisions (Lowe et al. 2017, arXiv:1706.02275).

There are N agents, which are discs with a radius of 0.15, and N landmarks, which do not collide. Their initial
positions are uniformly random in [-1, 1]^2, sampled for the agents first; agents start at rest. The five actions apply
no force, or a force of 5 to the left, right, down or up. `particles.py` implements motion and contacts.

The reward of each agent is `1 - local_ratio` times a shared reward, plus `local_ratio` times -1 for each agent that it
overlaps. The shared reward is minus the sum over landmarks of the distance to the nearest agent. An observation has 6 N
elements: the agent's velocity and position, the relative positions of landmarks and other agents in order, and two
zeros per other agent (messages, unused here). After `max_cycles` steps all agents are truncated.

Episodes with the same seed equal those of `mpe2.simple_spread_v3`, except for rounding of contact forces.
`envs/native/src/tasks/spread.c` is bit-identical to this module.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.multiagent.env import ByAgent, Step
from paddock.envs.ranges import Range, UnitFloat, check_fields
from paddock.envs.registration import VERSIONS, NativeVersion, settings_of
from paddock.envs.task_env import MultiAgentTaskEnv
from paddock.envs.tasks.particles import Point, distance, draw_discs, move, push_apart

RADIUS = 0.15
FORCE = 5.0
FORCES = ((0.0, 0.0), (-FORCE, 0.0), (FORCE, 0.0), (0.0, -FORCE), (0.0, FORCE))  # none, left, right, down, up
LANDMARK_RADIUS = 0.05  # in images
COLORS = np.array([(88, 140, 236), (232, 196, 92)], np.uint8)  # agents, landmarks


@dataclass(frozen=True, kw_only=True)
class SpreadRules:
    """Number of agents, weight of the individual reward, and time limit."""

    N: Annotated[int, Range("must be between 2 and 16 agents; 3 suits most", low=2, high=16)]
    local_ratio: UnitFloat
    max_cycles: Annotated[int, Range("must be between 1 and 2^30 steps; 25 suits most", low=1, high=2**30)]

    def __post_init__(self) -> None:
        check_fields(self)


class Spread(MultiAgentTaskEnv):
    """Spread environment; its arguments are the fields of `SpreadRules`."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **rules: Any) -> None:
        """Build the environment from the fields of `SpreadRules`.

        Raises:
            ConfigError: a field is out of range.
        """
        self.rules = SpreadRules(**rules)
        space = spaces.Box(-np.inf, np.inf, (6 * self.rules.N,), np.float32)
        observation_spaces = {f"agent_{k}": space for k in range(self.rules.N)}
        super().__init__(observation_spaces, spaces.Discrete(len(FORCES)), render_mode)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode with agents at rest at random positions."""
        self._begin(seed)
        self._steps = 0
        self._positions: list[Point] = [self._sample_position() for _ in self.agents]
        self._velocities: list[Point] = [[0.0, 0.0] for _ in self.agents]
        self._landmarks: list[Point] = [self._sample_position() for _ in self.agents]
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Apply the forces of all agents and move them."""
        rules, positions, agents = self.rules, self._positions, self.possible_agents
        forces = [list(FORCES[int(actions[agent])]) for agent in agents]
        push_apart(forces, positions, [RADIUS] * rules.N)
        for position, velocity, force in zip(positions, self._velocities, forces, strict=True):
            move(position, velocity, force)
        shared_reward = 0.0
        for landmark in self._landmarks:
            shared_reward -= min(distance(position, landmark) for position in positions)
        rewards = {}
        for agent, position in zip(agents, positions, strict=True):
            overlaps = sum(p is not position and distance(position, p) < RADIUS + RADIUS for p in positions)
            rewards[agent] = shared_reward * (1 - rules.local_ratio) - overlaps * rules.local_ratio
        self._steps += 1
        is_over = self._steps >= rules.max_cycles
        self.agents = [] if is_over else self.agents
        terminated, truncated = dict.fromkeys(agents, False), dict.fromkeys(agents, is_over)
        return self._observe(), rewards, terminated, truncated, {agent: {} for agent in agents}

    def render(self) -> NDArray[np.uint8] | None:
        """Return an image of landmarks and agents, [H, W, 3], for render_mode "rgb_array"."""
        if self.render_mode != "rgb_array":
            return None
        count = self.rules.N
        radii, colors = [RADIUS] * count + [LANDMARK_RADIUS] * count, COLORS.repeat(count, 0)
        return draw_discs([*self._positions, *self._landmarks], radii, colors)

    def _sample_position(self) -> Point:
        return [self._generator.uniform(-1, 1), self._generator.uniform(-1, 1)]

    def _observe(self) -> dict[str, NDArray[np.float32]]:
        observations = {}
        for k, agent in enumerate(self.possible_agents):
            x, y = position = self._positions[k]
            others = [*self._landmarks, *self._positions[:k], *self._positions[k + 1 :]]
            values = [*self._velocities[k], *position]
            for other in others:
                values += [other[0] - x, other[1] - y]
            observations[agent] = np.array([*values, *[0.0] * (2 * (len(self._positions) - 1))], np.float32)
        return observations


VERSIONS[f"{__name__}:Spread"] = NativeVersion("spread", settings_of(SpreadRules), agents=True)
