"""Tasks that need memory."""

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_numbers, check_whole_numbers
from paddock.envs.registration import register
from paddock.envs.sanity.task import Bar, SanityTask, share_of_returns
from paddock.envs.task_env import TaskEnv

RECALL = SanityTask(
    name="recall",
    id="paddock.envs.sanity:paddock/Recall-v0",
    chance=0.0,
    blind=0.0,
    memoryless=Bar(-0.1, 0.1),
    recurrent=Bar(0.9),
    deterministic=None,
    steps=100_000,
    episodes=1_500,
    suspect="memory: unrolling in training; a score above 0.1 without memory means that state leaks",
)
COPY = SanityTask(
    name="copy",
    id="paddock.envs.sanity:paddock/Copy-v0",
    score=share_of_returns(1.0),
    chance=0.25,
    blind=0.25,
    memoryless=Bar(0.2, 0.3),
    recurrent=Bar(0.9),
    deterministic=None,
    steps=100_000,
    episodes=1_500,
    suspect="minibatches of sequences: steps out of order, or mixed between environments",
)
FORGET = SanityTask(
    name="forget",
    id="paddock.envs.sanity:paddock/Forget-v0",
    chance=0.5,
    blind=0.814,  # the optimum of a memory that persists across episodes
    memoryless=Bar(0.44, 0.56),
    recurrent=Bar(0.95),
    deterministic=None,
    steps=60_000,
    episodes=1_500,
    suspect="memory: the state is not reset at the start of an episode",
)


class Recall(TaskEnv):
    """Report a cue, 1 or -1, shown `delay` steps earlier, by action 1 or 0; a match gives 1, else -1.

    Observations are [cue, whether to answer now]. Without memory the best mean return is 0; with it, 1.
    """

    def __init__(self, delay: int, render_mode: str | None = None) -> None:
        check_whole_numbers(delay=delay)
        require(delay >= 0, f"delay={delay} must be at least 0; 8 is the default")
        super().__init__(spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(2), render_mode)
        self._delay = delay

    def _begin(self, draw: np.random.Generator) -> None:
        self._cue = int(draw.integers(2))
        self._step = 0

    def _play(self, action: np.int64) -> tuple[float, bool]:
        asked = self._step == self._delay + 1
        self._step += 1
        return (1.0 if int(action) == self._cue else -1.0) if asked else 0.0, asked

    def _observe(self) -> NDArray[np.float32]:
        cue = 0 if self._step else 2 * self._cue - 1
        return np.array([cue, self._step == self._delay + 1], np.float32)


class Copy(TaskEnv):
    """Repeat observed binary digits in the same order after a delay; each correct digit gives an equal share of 1.

    Observations are [the digit as -1 or 1, or 0 if none is shown; whether to answer now].
    """

    def __init__(self, digits: int, delay: int, render_mode: str | None = None) -> None:
        """Build the task; `delay` is the number of steps between the last digit and the first answer."""
        check_whole_numbers(digits=digits, delay=delay)
        require(digits >= 1 and delay >= 0, f"digits={digits} must be at least 1, and delay={delay} at least 0")
        super().__init__(spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(2), render_mode)
        self._digits, self._answers = digits, digits + delay  # the step of the first answer

    def _begin(self, draw: np.random.Generator) -> None:
        self._shown = draw.integers(2, size=self._digits)
        self._step = 0

    def _play(self, action: np.int64) -> tuple[float, bool]:
        asked = self._step - self._answers
        reward = float(int(action) == self._shown[asked]) / self._digits if asked >= 0 else 0.0
        self._step += 1
        return reward, self._step == self._answers + self._digits

    def _observe(self) -> NDArray[np.float32]:
        shown = 2 * self._shown[self._step] - 1 if self._step < self._digits else 0
        return np.array([shown, self._step >= self._answers], np.float32)


class Forget(TaskEnv):
    """Report in every step whether this episode started with a signal; only the last answer counts.

    In half of the episodes the first observation is 1; all others are 0. Observations do not mark the end of an episode:
    from the second step on it ends with probability `end` per step, at the latest after `longest` steps. A memory that
    is not reset cannot know if the signal belongs to this episode.
    """

    def __init__(self, end: float, longest: int, render_mode: str | None = None) -> None:
        check_numbers(end=end)
        check_whole_numbers(longest=longest)
        require(0 < end <= 1 and longest >= 2, f"end={end} must be in (0, 1], and longest={longest} at least 2")
        super().__init__(spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2), render_mode)
        self._end, self._longest = end, longest

    def _begin(self, draw: np.random.Generator) -> None:
        self._signal = self._seen = int(draw.integers(2))
        self._left = min(1 + int(draw.geometric(self._end)), self._longest)

    def _play(self, action: np.int64) -> tuple[float, bool]:
        self._seen, self._left = 0, self._left - 1
        over = self._left == 0
        return float(over and int(action) == self._signal), over

    def _observe(self) -> NDArray[np.float32]:
        return np.array([self._seen], np.float32)


register(f"{__name__}:Copy", kwargs={"digits": 2, "delay": 2})
register(f"{__name__}:Forget", kwargs={"end": 0.25, "longest": 20})
register(f"{__name__}:Recall", kwargs={"delay": 8})
