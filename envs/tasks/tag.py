"""Tag: adversaries hunt faster prey among obstacles, the predators and prey of Lowe et al. 2017 (arXiv:1706.02275).

Discs on a plane: `num_adversaries` with a radius of 0.075 and a top speed of 1, `num_good` prey with 0.05 and 1.3, and
`num_obstacles` with 0.2 that stay where they are. At first adversaries, then prey are somewhere in the square from -1
to 1 and at rest, and then obstacles somewhere in that from -0.9 to 0.9. Who moves chooses to be pushed not at all, or
left, right, down or up, an adversary with a force of 3 and prey with 4; the rest is told in `particles.py`.

After a step every adversary is paid 10 for each adversary and prey that overlap, whoever they are; prey loses 10 for
each adversary that it overlaps, and by how far either of its coordinates is from 0: nothing up to 0.9, 10 times what is
above 0.9 up to 1, and beyond that exp(2 (x - 1)), 10 at the most. All see their speed, their place, and from there
where obstacles are and the others, adversaries first; and the speeds of all other prey. After `max_cycles` steps all
are truncated.

With the same seed an episode is that of `mpe2.simple_tag_v3`, but for the last digits of a contact's push;
`envs/native/src/tasks/tag.c` gives the same bits as these rules.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.multiagent.env import ByAgent, Step
from paddock.envs.ranges import Range, check_fields
from paddock.envs.registration import VERSIONS, NativeVersion, settings_of
from paddock.envs.task_env import MultiAgentTaskEnv
from paddock.envs.tasks.particles import MOST_EXPONENT, Point, distance, draw_discs, exponential, move, push_apart

MOST = 8  # of each kind
OBSTACLE, REACH = 0.2, 0.9  # an obstacle's radius, and how far from the middle it may lie
CAUGHT, DEAREST = 10.0, 10.0
WAYS = ((0.0, 0.0), (-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0))  # none, left, right, down, up
COLORS = np.array([(226, 92, 92), (80, 184, 120), (96, 100, 112)], np.uint8)  # adversaries, prey, obstacles
_Some = Annotated[int, Range(f"must be between 1 and {MOST}", low=1, high=MOST)]


@dataclass(frozen=True, kw_only=True)
class TagRules:
    """How many there are of each kind, and for how long."""

    num_good: _Some
    num_adversaries: _Some
    num_obstacles: Annotated[int, Range(f"must be between 0 and {MOST}; 2 suit most", low=0, high=MOST)]
    max_cycles: Annotated[int, Range("must be between 1 and 2^30 steps; 25 suits most", low=1, high=2**30)]

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class _Kind:
    """What tells adversaries from prey."""

    name: str
    radius: float
    force: float
    top: float  # speed


HUNTER, PREY = _Kind("adversary", 0.075, 3.0, 1.0), _Kind("agent", 0.05, 4.0, 1.3)


class Tag(MultiAgentTaskEnv):
    """The world; see the top of this file for its rules, and `TagRules` for its arguments."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **rules: int) -> None:
        """Make a plane.

        Raises:
            ConfigError: a number is out of its range.
        """
        self.rules = TagRules(**rules)
        hunters, prey = self.rules.num_adversaries, self.rules.num_good
        self._kinds = [HUNTER] * hunters + [PREY] * prey
        self._radii = [kind.radius for kind in self._kinds] + [OBSTACLE] * self.rules.num_obstacles
        names = [f"{HUNTER.name}_{k}" for k in range(hunters)] + [f"{PREY.name}_{k}" for k in range(prey)]
        seen = 4 + 2 * (len(self._radii) - 1)
        sights = [
            spaces.Box(-np.inf, np.inf, (seen + 2 * others,), np.float32)
            for others in [prey] * hunters + [prey - 1] * prey
        ]
        super().__init__(dict(zip(names, sights, strict=True)), spaces.Discrete(len(WAYS)), render_mode)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Begin with all at rest."""
        self._begin(seed)
        self._steps = 0
        self._places: list[Point] = [self._draw(1.0) for _ in self.agents]  # obstacles behind who moves
        self._places += [self._draw(REACH) for _ in range(self.rules.num_obstacles)]
        self._speeds: list[Point] = [[0.0, 0.0] for _ in self.agents]
        return self._see(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Move all who can."""
        agents, hunters = self.possible_agents, self.rules.num_adversaries
        chosen = [WAYS[int(actions[agent])] for agent in agents]
        forces = [[part * kind.force for part in way] for way, kind in zip(chosen, self._kinds, strict=True)]
        push_apart(forces, self._places, self._radii)
        for k, kind in enumerate(self._kinds):
            move(self._places[k], self._speeds[k], forces[k], kind.top)
        caught = [sum(self._touch(hunter, k) for hunter in range(hunters)) for k in range(hunters, len(agents))]
        paid = [CAUGHT * sum(caught)] * hunters
        for k, by in enumerate(caught):
            x, y = self._places[hunters + k]
            paid.append(-CAUGHT * by - _cost(abs(x)) - _cost(abs(y)))
        self._steps += 1
        last = self._steps >= self.rules.max_cycles
        self.agents = [] if last else self.agents
        never, cut = dict.fromkeys(agents, False), dict.fromkeys(agents, last)
        return self._see(), dict(zip(agents, paid, strict=True)), never, cut, {agent: {} for agent in agents}

    def render(self) -> NDArray[np.uint8] | None:
        """Draw all from above, [H, W, 3], for render_mode "rgb_array"."""
        if self.render_mode != "rgb_array":
            return None
        counts = self.rules.num_adversaries, self.rules.num_good, self.rules.num_obstacles
        return draw_discs(self._places, self._radii, COLORS.repeat(counts, 0))

    def _draw(self, most: float) -> Point:
        return [self._generator.uniform(-most, most), self._generator.uniform(-most, most)]

    def _touch(self, one: int, other: int) -> bool:
        return distance(self._places[one], self._places[other]) < self._radii[one] + self._radii[other]

    def _see(self) -> dict[str, NDArray[np.float32]]:
        seen, moving, hunters = {}, len(self._kinds), self.rules.num_adversaries
        for k, agent in enumerate(self.possible_agents):
            x, y = place = self._places[k]
            numbers = [*self._speeds[k], *place]
            for other in (*range(moving, len(self._places)), *range(k), *range(k + 1, moving)):
                numbers += [self._places[other][0] - x, self._places[other][1] - y]
            for other in range(hunters, moving):
                numbers += self._speeds[other] if other != k else []
            seen[agent] = np.array(numbers, np.float32)
        return seen


def _cost(x: float) -> float:
    """Return what prey loses so far from the middle."""
    if x < 0.9:
        return 0.0
    if x < 1.0:
        return (x - 0.9) * 10.0
    return min(exponential(min(2.0 * x - 2.0, MOST_EXPONENT)), DEAREST)


VERSIONS[f"{__name__}:Tag"] = NativeVersion("tag", settings_of(TagRules), agents=True)
