"""Tasks with composite observations and actions, and with action masks."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from paddock.envs.errors import require
from paddock.envs.ranges import check_whole_numbers
from paddock.envs.registration import register
from paddock.envs.sanity.task import Bar, SanityTask
from paddock.envs.task_env import TaskEnv

Observation = dict[str, Any]

SPACES = SanityTask(
    name="spaces",
    id="paddock.envs.sanity:paddock/Spaces-v0",
    chance=0.5,
    blind=0.875,  # without any one of the four leaves
    memoryless=Bar(0.95),
    recurrent=Bar(0.95),
    deterministic=Bar(0.92),
    steps=60_000,
    suspect="structured spaces: a missing leaf, a wrong offset, type or start, or composite heads",
)
MASKED = SanityTask(
    name="masked",
    id="paddock.envs.sanity:paddock/Masked-v0",
    chance=0.5,  # over the two legal actions
    blind=0.0,  # an illegal action ends the run
    memoryless=Bar(0.95),
    recurrent=Bar(0.95),
    deterministic=None,
    steps=20_000,
    stochastic=True,
    suspect="action masks: not applied, or taken from another row",
)


class Spaces(TaskEnv):
    """Answer each of four observation leaves with its own action leaf; each correct answer gives 0.25; one step.

    image
        [5, 5] float32; 1 if its sum is positive, else 0
    numbers
        [5] int8, odd; 1 if their sum is positive, else 0
    choice
        -1 or 0; the same
    inner.bits
        three bits; a number above 0 if two or three of them are set, else one that is not
    """

    def __init__(self, render_mode: str | None = None) -> None:
        seen = spaces.Dict(
            image=spaces.Box(-2.5, 2.5, (5, 5), np.float32),
            numbers=spaces.Box(-3, 3, (5,), np.int8),
            choice=spaces.Discrete(2, start=-1),
            inner=spaces.Dict(bits=spaces.MultiBinary(3)),
        )
        answers = spaces.Dict(
            image=spaces.Discrete(2),
            numbers=spaces.Discrete(2),
            choice=spaces.Discrete(2, start=-1),
            bits=spaces.Box(-1.0, 1.0, (1,), np.float32),
        )
        super().__init__(seen, answers, render_mode)

    def _begin(self, draw: np.random.Generator) -> None:
        noise = draw.uniform(-1, 1, (5, 5))
        image = noise - noise.mean() + draw.integers(2) - 0.5
        self._seen = {
            "image": image.astype(np.float32),
            "numbers": (2 * draw.integers(-2, 2, 5) + 1).astype(np.int8),
            "choice": np.int64(draw.integers(-1, 1)),
            "inner": {"bits": draw.integers(2, size=3, dtype=np.int8)},
        }

    def _play(self, action: Mapping[str, Any]) -> tuple[float, bool]:
        seen = self._seen
        right = (
            int(action["image"]) == (seen["image"].sum() > 0),
            int(action["numbers"]) == (seen["numbers"].sum(dtype=np.int64) > 0),
            int(action["choice"]) == seen["choice"],
            (float(np.asarray(action["bits"]).reshape(())) > 0) == (seen["inner"]["bits"].sum() >= 2),
        )
        return sum(map(bool, right)) / 4, True

    def _observe(self) -> Observation:
        return copy.deepcopy(self._seen)


class Masked(TaskEnv):
    """Take the better of the two actions allowed by `action_mask`, given by a cue; illegal actions raise; one step.

    The action at a third of the range gives 1 for a cue of 0, that at two thirds for 1; the other legal one is random.
    """

    def __init__(self, choices: int, render_mode: str | None = None) -> None:
        check_whole_numbers(choices=choices)
        require(choices >= 3, f"choices={choices} must be at least 3; 100 is the default")
        cue, mask = spaces.Box(0.0, 1.0, (1,), np.float32), spaces.MultiBinary(choices)
        super().__init__(spaces.Dict(cue=cue, action_mask=mask), spaces.Discrete(choices), render_mode)
        self._choices = choices

    def _begin(self, draw: np.random.Generator) -> None:
        cue = int(draw.integers(2))
        self._right = (cue + 1) * self._choices // 3
        other = int(draw.integers(self._choices - 1))
        mask = np.zeros(self._choices, np.int8)
        mask[[self._right, other + (other >= self._right)]] = 1
        self._legal, self._seen = mask.astype(np.bool_), {"cue": np.array([cue], np.float32), "action_mask": mask}

    def _play(self, action: np.int64) -> tuple[float, bool]:
        if not self._legal[int(action)]:
            legal = np.flatnonzero(self._legal).tolist()
            raise ValueError(f"the action {int(action)} is not legal; allowed: {legal}")
        return float(int(action) == self._right), True

    def _observe(self) -> Observation:
        return self._seen


register(f"{__name__}:Spaces")
register(f"{__name__}:Masked", kwargs={"choices": 100})
