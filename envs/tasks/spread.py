"""Spread: agents must cover landmarks without collisions (Lowe et al. 2017, arXiv:1706.02275).

N agents, discs with a radius of 0.15, and N landmarks start at random positions in [-1, 1]^2, the agents sampled first
and at rest. Actions are no force, or a force of 5 to the left, right, down or up; `particles.py` describes motion and
contacts. Landmarks do not collide.

The reward of each agent is `1 - local_ratio` times a shared reward, minus the sum over landmarks of the distance to the
nearest agent, plus `local_ratio` times -1 for each agent that it overlaps. Observations are velocity and position, then
relative positions of landmarks and other agents in order, and two zeros per other agent (messages, unused here): 6 N
numbers. After `max_cycles` steps all agents are truncated.

With the same seed an episode equals one of `mpe2.simple_spread_v3`, except for the last digits of contact forces.
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
WAYS = ((0.0, 0.0), (-FORCE, 0.0), (FORCE, 0.0), (0.0, -FORCE), (0.0, FORCE))  # none, left, right, down, up
SPOT = 0.05  # radius of landmarks in images
COLORS = np.array([(88, 140, 236), (232, 196, 92)], np.uint8)  # agents, landmarks


@dataclass(frozen=True, kw_only=True)
class SpreadRules:
    """Number of agents, weight of the individual reward and time limit."""

    N: Annotated[int, Range("must be between 2 and 16 agents; 3 suits most", low=2, high=16)]
    local_ratio: UnitFloat
    max_cycles: Annotated[int, Range("must be between 1 and 2^30 steps; 25 suits most", low=1, high=2**30)]

    def __post_init__(self) -> None:
        """Validate the fields."""
        check_fields(self)


class Spread(MultiAgentTaskEnv):
    """Spread with the rules of this module; arguments are the fields of `SpreadRules`."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **rules: Any) -> None:
        """Build the environment from the fields of `SpreadRules`.

        Raises:
            ConfigError: a number is out of its range.
        """
        self.rules = SpreadRules(**rules)
        numbers = spaces.Box(-np.inf, np.inf, (6 * self.rules.N,), np.float32)
        seen = {f"agent_{k}": numbers for k in range(self.rules.N)}
        super().__init__(seen, spaces.Discrete(len(WAYS)), render_mode)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start with agents at rest."""
        self._begin(seed)
        self._steps = 0
        self._places: list[Point] = [self._draw() for _ in self.agents]
        self._speeds: list[Point] = [[0.0, 0.0] for _ in self.agents]
        self._landmarks: list[Point] = [self._draw() for _ in self.agents]
        return self._see(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Move all agents."""
        rules, places, agents = self.rules, self._places, self.possible_agents
        forces = [list(WAYS[int(actions[agent])]) for agent in agents]
        push_apart(forces, places, [RADIUS] * rules.N)
        for place, speed, force in zip(places, self._speeds, forces, strict=True):
            move(place, speed, force)
        together = 0.0
        for landmark in self._landmarks:
            together -= min(distance(place, landmark) for place in places)
        paid = {}
        for agent, place in zip(agents, places, strict=True):
            met = sum(other is not place and distance(place, other) < RADIUS + RADIUS for other in places)
            paid[agent] = together * (1 - rules.local_ratio) - met * rules.local_ratio
        self._steps += 1
        last = self._steps >= rules.max_cycles
        self.agents = [] if last else self.agents
        never, cut = dict.fromkeys(agents, False), dict.fromkeys(agents, last)
        return self._see(), paid, never, cut, {agent: {} for agent in agents}

    def render(self) -> NDArray[np.uint8] | None:
        """Return an image of landmarks and agents, [H, W, 3], for render_mode "rgb_array"."""
        if self.render_mode != "rgb_array":
            return None
        count = self.rules.N
        radii, colors = [RADIUS] * count + [SPOT] * count, COLORS.repeat(count, 0)
        return draw_discs([*self._places, *self._landmarks], radii, colors)

    def _draw(self) -> Point:
        return [self._generator.uniform(-1, 1), self._generator.uniform(-1, 1)]

    def _see(self) -> dict[str, NDArray[np.float32]]:
        seen = {}
        for k, agent in enumerate(self.possible_agents):
            x, y = place = self._places[k]
            there = [*self._landmarks, *self._places[:k], *self._places[k + 1 :]]
            numbers = [*self._speeds[k], *place]
            for other in there:
                numbers += [other[0] - x, other[1] - y]
            seen[agent] = np.array([*numbers, *[0.0] * (2 * (len(self._places) - 1))], np.float32)
        return seen


VERSIONS[f"{__name__}:Spread"] = NativeVersion("spread", settings_of(SpreadRules), agents=True)
