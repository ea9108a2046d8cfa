"""Multi-agent Snake: agents eat, grow, die and respawn on a shared field.

A field of width x height cells is surrounded by a wall and has `food` pieces of food and snakes of initially one cell.
In a step all living snakes move simultaneously:

1. Each head moves one cell up, right, down or left, and eats food that was there before the step.
2. The tail cell of a body becomes free, unless the snake eats and is shorter than `longest`.
3. A snake dies if its head would enter a wall, a cell of any body (its own too), or the same cell as another head. A
   head may enter a cell that was a tail before the step.
4. The other heads move; a snake that has eaten gets 1. Dead snakes get -1 and their cells become free.
5. A snake that has been dead for `absence` steps respawns with one cell at a random free position, in agent order, by
   rejection sampling over all cells. Then a new piece of food is placed the same way for each one eaten.

After `max_steps` steps living snakes are truncated and none respawns; the episode ends then, or when no snake lives.
A snake observes the 11 x 11 cells around its head after the step; a dying one those around its last position.

`envs/native/src/tasks/snake.c` is bit-identical.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.multiagent.env import ByAgent, Step
from paddock.envs.ranges import Range, check_fields
from paddock.envs.registration import VERSIONS, NativeVersion, settings_of
from paddock.envs.task_env import MultiAgentTaskEnv

FREE, FOOD, WALL, BODY, HEAD = range(5)  # contents of a cell
SIGHT = 5  # view radius, cells
SIDE = 2 * SIGHT + 1
SCALE = 16  # side of a cell in images, pixels
COLORS = np.array([(24, 26, 34), (226, 72, 72), (96, 100, 112), (64, 160, 88), (150, 232, 150)], np.uint8)
WAYS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left, as (rows, columns)

Cell = tuple[int, int]  # row and column, including walls


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Size of the field, number of snakes and pieces of food, and time limits."""

    snakes: Annotated[int, Range("must be between 2 and 16; 4 suits most", low=2, high=16)]
    width: Annotated[int, Range("must be between 4 and 32 cells; 16 suits most", low=4, high=32)]
    height: Annotated[int, Range("must be between 4 and 32 cells; 16 suits most", low=4, high=32)]
    food: Annotated[int, Range("must be between 1 and 512 pieces; 8 suits most", low=1, high=512)]
    longest: Annotated[int, Range("must be between 1 and 32 cells; 24 suits most", low=1, high=32)]
    absence: Annotated[int, Range("must be between 1 and 1000 steps; 10 suits most", low=1, high=1000)]
    max_steps: Annotated[int, Range("must be between 1 and 2^30; 500 suits most", low=1, high=2**30)]

    def __post_init__(self) -> None:
        check_fields(self)
        most, half = self.snakes * self.longest + self.food, self.width * self.height // 2
        what = f"{self.snakes} snakes of {self.longest} cells and {self.food} pieces of food may fill {most} cells"
        require(most <= half, f"{what}, but half of a {self.width} x {self.height} field has {half}; use fewer")


class Snake(MultiAgentTaskEnv):
    """Multi-agent Snake with the rules of this module; arguments are the fields of `Rules`."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **rules: int) -> None:
        """Build the environment from the fields of `Rules`.

        Raises:
            ConfigError: a number is out of its range.
        """
        self.rules = Rules(**rules)
        cells = spaces.MultiDiscrete(np.full((SIDE, SIDE), HEAD + 1), dtype=np.uint8)
        seen = {f"snake_{k}": cells for k in range(self.rules.snakes)}
        super().__init__(seen, spaces.Discrete(len(WAYS)), render_mode)  # up, right, down, left

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start with all snakes, each of one cell."""
        self._begin(seed)
        rules, self._steps = self.rules, 0
        self._cells = np.full((rules.height + 2 * SIGHT, rules.width + 2 * SIGHT), WALL, np.uint8)
        self._cells[SIGHT:-SIGHT, SIGHT:-SIGHT] = FREE
        self._away: dict[str, int] = {}  # steps until the snake respawns
        self._bodies: dict[str, list[Cell]] = {}  # of living snakes, from tail to head
        for agent in self.agents:
            self._give_birth(agent)
        for _ in range(rules.food):
            self._cells[self._draw_free()] = FOOD
        return {agent: self._see(self._bodies[agent][-1]) for agent in self.agents}, {a: {} for a in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Move all living snakes."""
        cells, bodies, lived = self._cells, self._bodies, list(self.agents)
        heads = {agent: bodies[agent][-1] for agent in lived}
        comes = {agent: _beside(heads[agent], int(actions[agent])) for agent in lived}
        eats = {agent: bool(cells[comes[agent]] == FOOD) for agent in lived}
        for agent in lived:
            if not eats[agent] or len(bodies[agent]) == self.rules.longest:
                cells[bodies[agent].pop(0)] = FREE
        together = Counter(comes.values())
        dies = {agent: bool(cells[comes[agent]] >= WALL or together[comes[agent]] > 1) for agent in lived}
        for agent in lived:
            if dies[agent]:
                continue
            if bodies[agent]:
                cells[heads[agent]] = BODY
            bodies[agent].append(comes[agent])
            cells[comes[agent]] = HEAD
        for agent in filter(dies.get, lived):
            for cell in bodies.pop(agent):
                cells[cell] = FREE
        self._steps += 1
        last = self._steps >= self.rules.max_steps
        born = [] if last else self._bring_back()
        self._away |= {agent: self.rules.absence for agent in lived if dies[agent]}
        for _ in range(sum(eats[agent] and not dies[agent] for agent in lived)):
            cells[self._draw_free()] = FOOD
        self.agents = [] if last else [agent for agent in self.possible_agents if agent in bodies]
        seen = {agent: self._see(bodies[agent][-1] if agent in bodies else heads[agent]) for agent in [*lived, *born]}
        paid = {agent: -1.0 if dies[agent] else float(eats[agent]) for agent in lived}
        cut = {agent: last and not dies[agent] for agent in lived}
        return seen, paid, dies, cut, {agent: {} for agent in seen}

    def render(self) -> NDArray[np.uint8] | None:
        """Return an image of the field and its wall, [H, W, 3], for render_mode "rgb_array"."""
        seen = self._cells[SIGHT - 1 : 1 - SIGHT, SIGHT - 1 : 1 - SIGHT]
        return COLORS[seen].repeat(SCALE, 0).repeat(SCALE, 1) if self.render_mode == "rgb_array" else None

    def _bring_back(self) -> list[str]:
        """Count down the absence of dead snakes, and return those that respawn."""
        self._away = {agent: left - 1 for agent, left in self._away.items()}
        born = [agent for agent in self.possible_agents if self._away.get(agent) == 0]
        for agent in born:
            del self._away[agent]
            self._give_birth(agent)
        return born

    def _give_birth(self, agent: str) -> None:
        cell = self._draw_free()
        self._bodies[agent] = [cell]
        self._cells[cell] = HEAD

    def _draw_free(self) -> Cell:
        while True:
            drawn = int(self._generator.integers(self.rules.width * self.rules.height))
            cell = drawn // self.rules.width + SIGHT, drawn % self.rules.width + SIGHT
            if self._cells[cell] == FREE:
                return cell

    def _see(self, cell: Cell) -> NDArray[np.uint8]:
        y, x = cell
        return self._cells[y - SIGHT : y + SIGHT + 1, x - SIGHT : x + SIGHT + 1].copy()


def _beside(cell: Cell, way: int) -> Cell:
    return cell[0] + WAYS[way][0], cell[1] + WAYS[way][1]


VERSIONS[f"{__name__}:Snake"] = NativeVersion("snake", settings_of(Rules), agents=True)
