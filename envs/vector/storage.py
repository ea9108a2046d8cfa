"""Observations or actions of N environments in one array: how they lie there, and which rows are meant."""

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
RowIndex = slice | NDArray[np.intp]  # environments: consecutive ones as a slice with start and stop, or distinct ones


@dataclass(frozen=True)
class Layouts:
    """Layouts of observations and actions in rows; where there are several roles, each row is as wide as the widest."""

    observation: Layout | SeatRows
    action: Layout | SeatRows
    observation_space: Space  # without what is left out; of several roles, a Dict of each one's
    action_space: Space
    agents: tuple[str, ...] = ("agent",)  # in the order of seats

    @classmethod
    def of(cls, spec: EnvSpec, observation_space: Space, action_space: Space) -> "Layouts":
        """Return those of an environment with these spaces, as its recipe has it.

        Raises:
            ConfigError: `env.bounds`, `env.without` and `env.action_bounds` do not give them a size, or name what there
                is not.
        """
        observation = spec.lay_out(observation_space)
        return cls(observation, spec.lay_out_actions(action_space), observation.space, action_space)

    @classmethod
    def of_seats(cls, spec: EnvSpec, seats: Seats) -> "Layouts":
        """Return those of an environment in which these sit; raises as `of` does."""
        if len(seats) == 1:
            return cls.of(spec, seats[0].observation_space, seats[0].action_space)
        return cls.of_roles(spec.read_roles(seats))

    @classmethod
    def of_roles(cls, roles: Sequence[Role], whole: "Layouts | None" = None) -> "Layouts":
        """Return those of worlds with these roles, of several seats in all.

        Args:
            whole: of all the world's seats, where these are some of them, whose rows lie as they do there.
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
        """Rows of one environment."""
        return len(self.agents)

    @property
    def role_seats(self) -> tuple[int, ...]:
        """Number of seats of each role."""
        return tuple(map(len, self.observation.seats)) if isinstance(self.observation, SeatRows) else (self.seats,)

    def check_rows(self, spec: EnvSpec) -> None:
        """Raise ConfigError where an adapted vector would give other rows than the recipe's environment."""
        own, other = spec.observations, self.observation
        require(
            own == other or (own.plain and other.plain),
            f"env.id={spec.id}: observations are {self.observation_space} in this vec=, and {spec.spaces[0]} in "
            "Gymnasium; choose vec=serial or vec=multiprocess",
        )


def allocate(layout: Layout | SeatRows, num_envs: int, new: NewArray) -> NDArray[Any]:
    """Return an array [N, ...] for rows: numbers where an element is one array of them, else voids."""
    if isinstance(layout, SeatRows):
        return new((num_envs,), layout.row)
    if layout.plain:
        return new((num_envs, *layout.row.shape), layout.row.base)
    rows = new((num_envs,), layout.row)
    fields = layout.fields(rows)
    return fields if isinstance(fields, np.ndarray) and fields.dtype.kind != "U" else rows


def numbers(rows: RowIndex) -> Sequence[int]:
    """The environments' numbers, as plain ints."""
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
