"""What a client of a joint world is told of all seats, its own and the others', where its server has serve.view=all."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paddock.envs.remote.frames import Cursor
from paddock.envs.vector.storage import Layouts, allocate
from paddock.envs.worlds.roles import Role, narrow

View = Literal["all", "own"]


@dataclass(frozen=True)
class Seen:
    """What an agent was told by a reset or a step.

    Attributes:
        observation: None: it neither lives nor has just ended.
        action: that the step took from it; None: none.
    """

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    action: Any


@dataclass(frozen=True)
class Everybody:
    """The same of all S seats of a world, in rows."""

    observation: NDArray[Any]  # [S, ...], of those who have just ended what they saw last
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    told: NDArray[np.bool_]  # [S], who has an observation
    action: NDArray[Any]  # [S, ...]
    acted: NDArray[np.bool_]

    @classmethod
    def take(cls, cursor: Cursor, layouts: Layouts) -> "Everybody":
        """Read it from where a frame has it; raises DecodeError as `Cursor.take` does."""
        S = layouts.seats
        flag, observation, action = (
            np.zeros(S, np.bool_),
            *(allocate(rows, S, np.zeros) for rows in (layouts.observation_rows, layouts.action_rows)),
        )
        forms = observation, np.zeros(S), flag, flag, flag, action, flag
        return cls(*(cursor.take_like(form, S) for form in forms))

    def arrays(self) -> list[NDArray[Any]]:
        """Return what a frame has of it, in order."""
        return list(astuple(self))

    def read(self, layouts: Layouts, roles: Sequence[Role]) -> dict[str, Seen]:
        """Return it by agent, in the order of seats."""
        found: dict[str, Seen] = {}
        for role in roles:
            seats = list(role.seats)
            assert role.observations is not None and role.actions is not None
            several = layouts.roles is not None
            rows, acts = self.observation[seats], self.action[seats]
            read = role.observations.reader(narrow(rows, role.observations) if several else rows)
            act = role.actions.reader(narrow(acts, role.actions) if several else acts)
            for k, (seat, agent) in enumerate(zip(seats, role.agents, strict=True)):
                found[agent] = Seen(
                    read(k) if self.told[seat] else None,
                    float(self.reward[seat]),
                    bool(self.terminated[seat]),
                    bool(self.truncated[seat]),
                    act(k) if self.acted[seat] else None,
                )
        return {agent: found[agent] for agent in layouts.agents}


def put(rows: NDArray[Any], k: int, row: Any) -> None:
    """Write a row that a vector environment gave, as it stands there or as bytes, into rows of the same layout."""
    opaque = isinstance(row, np.void) and rows.dtype.kind != "V"
    rows[k] = np.frombuffer(row, rows.dtype).reshape(rows.shape[1:]) if opaque else row
