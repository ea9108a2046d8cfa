"""Spread: agents are to cover landmarks and not to run into each other (Lowe et al. 2017, arXiv:1706.02275).

N agents, discs with a radius of 0.15, and N landmarks lie on a plane. At first each is somewhere in the square from
-1 to 1, the agents drawn first, and nobody moves. An agent chooses to be pushed not at all, or with a force of 5 to the
left, right, down or up; how it moves then, and how agents push each other, is told in `particles.py`. Landmarks push
nobody.

After a step all agents are paid `1 - local_ratio` times a sum that is theirs together: of each landmark the distance of
the agent next to it, as a loss; and each agent `local_ratio` times -1 for every other that it overlaps. It sees its
speed, its place, and from there where the landmarks are and the others, in their order; and two zeros for each other,
who could speak there in other worlds: 6 N numbers. After `max_cycles` steps all are truncated.

With the same seed an episode is that of `mpe2.simple_spread_v3`, but for the last digits of a contact's push;
`envs/native/src/tasks/spread.c` gives the same bits as these rules.
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
SPOT = 0.05  # a landmark's radius in pictures
COLORS = np.array([(88, 140, 236), (232, 196, 92)], np.uint8)  # agents, landmarks


@dataclass(frozen=True, kw_only=True)
class SpreadRules:
    """How many there are, how they are paid, and for how long."""

    N: Annotated[int, Range("must be between 2 and 16 agents; 3 suits most", low=2, high=16)]
    local_ratio: UnitFloat
    max_cycles: Annotated[int, Range("must be between 1 and 2^30 steps; 25 suits most", low=1, high=2**30)]

    def __post_init__(self) -> None:
        check_fields(self)


class Spread(MultiAgentTaskEnv):
    """The world; see the top of this file for its rules, and `SpreadRules` for its arguments."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **rules: Any) -> None:
        """Make a plane.

        Raises:
            ConfigError: a number is out of its range.
        """
        self.rules = SpreadRules(**rules)
        numbers = spaces.Box(-np.inf, np.inf, (6 * self.rules.N,), np.float32)
        seen = {f"agent_{k}": numbers for k in range(self.rules.N)}
        super().__init__(seen, spaces.Discrete(len(WAYS)), render_mode)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Begin with agents at rest."""
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
        """Draw landmarks and agents from above, [H, W, 3], for render_mode "rgb_array"."""
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
