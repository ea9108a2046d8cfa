"""What clients of a joint world ask for, and what was done and came of it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import PaddockError
from paddock.envs.remote.frames import JointEpisode

SPARE_BYTES = 2000  # that a step takes beside its rows, about


@dataclass(frozen=True)
class Start:
    """An episode that a client asks for.

    Attributes:
        seed: None: whatever the others ask for.
        episode: its number among those of the client's key, of which the seed comes; None: the seed was named.
        chosen: whether others had chosen the seed, and this client comes back to its episode.
        back: the episode that it comes back to, in a world that is made anew; None: it comes back to none.
    """

    seed: int | None
    options: dict[str, Any] = field(default_factory=dict)
    episode: int | None = None
    chosen: bool = False
    back: JointEpisode | None = field(default=None, compare=False)

    def __str__(self) -> str:
        named = f"seed={self.seed}" if self.episode is None else f"episode {self.episode} of its run"
        return named if self.back is None else f"{named}, which was episode {self.back.number} of the world"


@dataclass(frozen=True, eq=False)
class Signal:
    """A key and a value for the environment.

    Attributes:
        place: with which step or reset it was given before, in a world that is made anew; None: it was not.
    """

    key: str
    value: Any
    place: JointEpisode | None


@dataclass(eq=False)
class Holder:
    """A client with seats.

    Attributes:
        position: of what it is told next, counted from the world's beginning.
        follows: whether it is told everything in order, as one whose episodes follow each other by themselves; others
            go to wherever a reset leads.
        reset: the episode that it asks to begin.
        actions: rows of its seats, that it asks to step by.
    """

    seats: list[int]
    position: int
    follows: bool = False
    reset: Start | None = None
    actions: NDArray[Any] | None = None
    error: PaddockError | None = None  # what it is told in place of an outcome
    signals: list[Signal] = field(default_factory=list)  # for the next step or reset that it asks for

    @property
    def asks(self) -> bool:
        """Whether it waits for the others."""
        return self.reset is not None or self.actions is not None


@dataclass(eq=False)
class JointOutcome:
    """What a world says to all its seats, [S] each."""

    observation: NDArray[Any]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: dict[str, Any]
    alive: NDArray[np.bool_]
    acts: NDArray[np.bool_]
    over: bool


@dataclass(eq=False)
class JointStep:
    """A reset or a step that was done, and what came of it.

    Attributes:
        seed: of a reset.
        starts: of a reset, what was asked for by seat.
        episode: that a reset began.
        actions: rows [S] of a step; None: it is a reset.
        acted: [S], whose of them the environment was given; None: nobody's.
        stood_in: seats of clients that were missing.
        outcome: what it gave, or what was raised.
    """

    seed: int | None = None
    starts: dict[int, Start] = field(default_factory=dict)
    episode: JointEpisode | None = None
    actions: NDArray[Any] | None = None
    acted: NDArray[np.bool_] | None = None
    stood_in: frozenset[int] = frozenset()
    outcome: JointOutcome | PaddockError | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        seen = self.outcome.observation.nbytes if isinstance(self.outcome, JointOutcome) else 0
        return SPARE_BYTES + 2 * seen + (0 if self.actions is None else self.actions.nbytes)
