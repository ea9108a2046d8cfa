"""Update schedule of off-policy learning: counters and the replay ratio."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

COUNTERS = ("step", "rollouts", "episodes", "updates")


@dataclass
class UpdateSchedule:
    """Counters of one policy, which determine its pending updates, so a resumed run makes no burst of updates."""

    learning_starts: int = 0  # environment steps before the first update
    updates_per_step: Fraction = Fraction(0)  # replay ratio
    at_once: int = 1  # updates per sampling call
    step: int = field(init=False, default=0)
    rollouts: int = field(init=False, default=0)
    episodes: int = field(init=False, default=0)
    updates: int = field(init=False, default=0)

    @property
    def owed(self) -> int:
        """Pending updates before the next rollout."""
        ratio = self.updates_per_step
        return max(self.step - self.learning_starts, 0) * ratio.numerator // ratio.denominator - self.updates

    def state_dict(self) -> dict[str, int]:
        """Return the counters."""
        return {name: getattr(self, name) for name in COUNTERS}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counters."""
        for name in COUNTERS:
            setattr(self, name, int(state[name]))
