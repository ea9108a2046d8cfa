"""Tag: adversaries hunt faster prey among obstacles (predator-prey of Lowe et al. 2017, arXiv:1706.02275).

Discs on a plane: `num_adversaries` with a radius of 0.075 and a top speed of 1, `num_good` prey with 0.05 and 1.3, and
`num_obstacles` fixed ones with 0.2. Adversaries, then prey start at rest at random positions in [-1, 1]^2; obstacles
are sampled last in [-0.9, 0.9]^2. Actions are no force, or a force to the left, right, down or up, of 3 for adversaries
and 4 for prey; `particles.py` describes motion and contacts.

Every adversary gets 10 for each overlapping pair of an adversary and a prey. Prey loses 10 for each adversary that it
overlaps, and for each coordinate at distance x from 0: nothing up to 0.9, 10 (x - 0.9) up to 1, and exp(2 (x - 1)), at
most 10, beyond. Observations are velocity and position, then relative positions of obstacles and other agents,
adversaries first, and velocities of all other prey. After `max_cycles` steps all agents are truncated.

With the same seed an episode equals one of `mpe2.simple_tag_v3`, except for the last digits of contact forces.
`envs/native/src/tasks/tag.c` is bit-identical to this module.
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
from paddock.envs.tasks.particles import MAX_EXPONENT, Point, distance, draw_discs, exponential, move, push_apart

MAX_BODIES = 8  # of each kind
OBSTACLE, REACH = 0.2, 0.9  # radius of obstacles; bound of their initial coordinates
CAUGHT, MAX_COST = 10.0, 10.0
WAYS = ((0.0, 0.0), (-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0))  # none, left, right, down, up
COLORS = np.array([(226, 92, 92), (80, 184, 120), (96, 100, 112)], np.uint8)  # adversaries, prey, obstacles
_Count = Annotated[int, Range(f"must be between 1 and {MAX_BODIES}", low=1, high=MAX_BODIES)]


@dataclass(frozen=True, kw_only=True)
class TagRules:
    """Number of bodies of each kind, and time limit."""

    num_good: _Count
    num_adversaries: _Count
    num_obstacles: Annotated[int, Range(f"must be between 0 and {MAX_BODIES}; 2 suit most", low=0, high=MAX_BODIES)]
    max_cycles: Annotated[int, Range("must be between 1 and 2^30 steps; 25 suits most", low=1, high=2**30)]

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class _Kind:
    """Properties of adversaries or prey."""

    name: str
    radius: float
    force: float
    top: float  # speed


HUNTER, PREY = _Kind("adversary", 0.075, 3.0, 1.0), _Kind("agent", 0.05, 4.0, 1.3)


class Tag(MultiAgentTaskEnv):
    """Tag with the rules of this module; arguments are the fields of `TagRules`."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **rules: int) -> None:
        """Build the environment from the fields of `TagRules`.

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
        """Start with all agents at rest."""
        self._begin(seed)
        self._steps = 0
        self._places: list[Point] = [self._draw(1.0) for _ in self.agents]  # agents, then obstacles
        self._places += [self._draw(REACH) for _ in range(self.rules.num_obstacles)]
        self._speeds: list[Point] = [[0.0, 0.0] for _ in self.agents]
        return self._see(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Move all agents."""
        agents, hunters = self.possible_agents, self.rules.num_adversaries
        chosen = [WAYS[int(actions[agent])] for agent in agents]
        forces = [[axis * kind.force for axis in way] for way, kind in zip(chosen, self._kinds, strict=True)]
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
        """Return an image of all bodies, [H, W, 3], for render_mode "rgb_array"."""
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
    """Return the penalty of prey at distance x from the centre along one axis."""
    if x < 0.9:
        return 0.0
    if x < 1.0:
        return (x - 0.9) * 10.0
    return min(exponential(min(2.0 * x - 2.0, MAX_EXPONENT)), MAX_COST)


VERSIONS[f"{__name__}:Tag"] = NativeVersion("tag", settings_of(TagRules), agents=True)
