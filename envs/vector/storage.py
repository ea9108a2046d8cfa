"""Arrays of observations or actions of N environments: layouts, allocation and row indices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.multiagent.roles import Role, SeatRows, Seats, join_spaces
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec

NewArray = Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]  # (shape, dtype) to an array of zeros
RowIndex = slice | NDArray[np.intp]  # a slice with start and stop, or distinct indices


@dataclass(frozen=True)
class Layouts:
    """Layouts of observations and actions; with several roles, rows have the width of the widest."""

    observation: Layout | SeatRows
    action: Layout | SeatRows
    observation_space: Space  # without the parts left out; for several roles, a Dict by role
    action_space: Space
    agents: tuple[str, ...] = ("agent",)  # in the order of seats

    @classmethod
    def of(cls, spec: EnvSpec, observation_space: Space, action_space: Space) -> "Layouts":
        """Return the layouts of these spaces.

        Raises:
            ConfigError: `env.bounds` and `env.without` leave a size unknown, or name missing parts.
        """
        observation = spec.lay_out(observation_space)
        return cls(observation, spec.lay_out_actions(action_space), observation.space, action_space)

    @classmethod
    def of_seats(cls, spec: EnvSpec, seats: Seats) -> "Layouts":
        """Return the layouts of an environment's seats; raise as `of` does."""
        if len(seats) == 1:
            return cls.of(spec, seats[0].observation_space, seats[0].action_space)
        return cls.of_roles(spec.read_roles(seats))

    @classmethod
    def of_roles(cls, roles: Sequence[Role], whole: "Layouts | None" = None) -> "Layouts":
        """Return the layouts of several seats with these roles.

        Args:
            roles: of the seats.
            whole: layouts of all seats of the environment, if these are only some; rows then have the same width.
        """
        names = {seat: agent for role in roles for seat, agent in zip(role.seats, role.agents, strict=True)}
        agents = tuple(names[seat] for seat in sorted(names))
        if len(roles) == 1 and (whole is None or not isinstance(whole.observation, SeatRows)):
            (role,) = roles
            return cls(role.observations, role.actions, role.observation_space, role.action_space, agents)
        seats = [role.seats for role in roles]
        observation = SeatRows.of([role.observations for role in roles], seats)
        action = SeatRows.of([role.actions for role in roles], seats)
        if whole is not None:
            observation = replace(observation, itemsize=whole.observation.itemsize)
            action = replace(action, itemsize=whole.action.itemsize)
        return cls(observation, action, *join_spaces(roles), agents)

    @property
    def seats(self) -> int:
        """Return the number of rows of one environment."""
        return len(self.agents)

    @property
    def role_seats(self) -> tuple[int, ...]:
        """Return the number of seats of each role."""
        return tuple(map(len, self.observation.seats)) if isinstance(self.observation, SeatRows) else (self.seats,)

    def check_rows(self, spec: EnvSpec) -> None:
        """Raise ConfigError if an adapted vector's rows would differ from the recipe's."""
        own, other = spec.observations, self.observation
        require(
            own == other or (own.plain and other.plain),
            f"env.id={spec.id}: observations are {self.observation_space} with this vec=, but {spec.spaces[0]} in "
            "Gymnasium; use vec=serial or vec=multiprocess",
        )


def allocate(layout: Layout | SeatRows, num_envs: int, new: NewArray) -> NDArray[Any]:
    """Return an array [N, ...] for rows: numeric if an element is a single array, else voids."""
    if isinstance(layout, SeatRows):
        return new((num_envs,), layout.row)
    if layout.plain:
        return new((num_envs, *layout.row.shape), layout.row.base)
    rows = new((num_envs,), layout.row)
    fields = layout.fields(rows)
    return fields if isinstance(fields, np.ndarray) and fields.dtype.kind != "U" else rows


def numbers(rows: RowIndex) -> Sequence[int]:
    """Return row indices as Python ints."""
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
