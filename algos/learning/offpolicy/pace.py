"""How far policies are that learn off policy: what each played and learned, and how many updates it owes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from paddock.algos.common.timing import Clock


@dataclass
class Pace:
    """Counts what a policy played and learned, and says how many updates are owed."""

    warmup: int  # environment steps, or actions of its agents, before the first update
    updates_per_step: Fraction
    at_once: int  # updates that one draw of batches is for
    clock: Clock = field(init=False, default_factory=Clock)
    step: int = field(init=False, default=0)
    rollouts: int = field(init=False, default=0)
    episodes: int = field(init=False, default=0)
    updates: int = field(init=False, default=0)

    @property
    def owed(self) -> int:
        """Updates to be made before the next rollout."""
        ratio = self.updates_per_step
        return max(self.step - self.warmup, 0) * ratio.numerator // ratio.denominator - self.updates

    def state_dict(self) -> dict[str, int]:
        """The counters."""
        return {name: getattr(self, name) for name in ("step", "rollouts", "episodes", "updates")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        for name, value in state.items():
            setattr(self, name, int(value))


class Paces:
    """Those of all policies of a run, on one clock; a sum of theirs where nothing else is said."""

    def __init__(self, each: Mapping[str, Pace]) -> None:
        """Args:
        each: by the policies' names; "" of one that acts for all.
        """
        self.each = dict(each)
        self.start_clock()

    @property
    def clock(self) -> Clock:
        """What splits the time of a row."""
        return self._clock

    @property
    def step(self) -> int:
        """Environment steps, or actions of all agents."""
        return sum(pace.step for pace in self.each.values())

    @property
    def rollouts(self) -> int:
        """How many were played; each is of all policies."""
        return next(iter(self.each.values())).rollouts

    @property
    def episodes(self) -> int:
        """Episodes, or lives of all agents."""
        return sum(pace.episodes for pace in self.each.values())

    @property
    def updates(self) -> int:
        """Updates of all policies."""
        return sum(pace.updates for pace in self.each.values())

    def start_clock(self) -> None:
        """Begin the time of a row: what came before it is nobody's."""
        self._clock = Clock()
        for pace in self.each.values():
            pace.clock = self._clock
