"""Since when each worker is at what it is at, by a clock that stands still while this process does."""

import time
from collections.abc import Sequence

from paddock.envs.vector.slots import IDLE


class Watchdog:
    """Tells which workers have been at one environment for too long."""

    def __init__(self, at_work: Sequence[int], workers: int, look_s: float) -> None:
        """Watch nobody yet.

        Args:
            at_work: the environment that each worker is at, as it now is.
            look_s: how often it is looked, at least; where it took twice as long, this process was stopped, they too.
        """
        self._at_work = at_work
        self._look_s = look_s
        self._since = [(IDLE, 0.0)] * workers  # (environment, since when)
        self._now_s, self._told = 0.0, time.monotonic()

    def begin(self, w: int) -> None:
        """Count from now on."""
        self._since[w] = self._at_work[w], self._clock()

    def is_stuck(self, w: int, patience_s: float) -> bool:
        """Whether a worker is where it was so many seconds ago."""
        at, since = self._since[w]
        if self._at_work[w] == at:
            return self._clock() - since > patience_s
        self.begin(w)
        return False

    def _clock(self) -> float:
        before, self._told = self._told, time.monotonic()
        self._now_s += min(self._told - before, 2 * self._look_s)
        return self._now_s
