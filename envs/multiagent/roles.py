"""Roles, the groups of seats with equal spaces, and the layout of rows of several roles."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError, one_line
from paddock.envs.spaces.layout import Layout

ALIGNMENT = 8  # bytes, suitable for a row of any layout


@dataclass(frozen=True)
class Seat:
    """Agent of an environment, with its spaces."""

    agent: str
    observation_space: Space
    action_space: Space


Seats = tuple[Seat, ...]  # of an environment, in order


def seats_of(env: Any, id: str) -> Seats:
    """Return the agents of an environment and their spaces.

    Raises:
        ConfigError: the environment lacks them.
    """
    single = isinstance(env, gymnasium.Env)
    try:
        if single:
            return (Seat("agent", env.observation_space, env.action_space),)
        spaces_of = [(agent, env.observation_space(agent), env.action_space(agent)) for agent in env.possible_agents]
    except Exception as error:
        what = f"env.id={id} does not define its spaces ({type(error).__name__}: {one_line(error)})"
        where = "in its constructor" if single else "as methods, for each of possible_agents"
        raise ConfigError(f"{what}; define observation_space and action_space {where}") from error
    return tuple(Seat(*one) for one in spaces_of)


@dataclass(frozen=True)
class Role:
    """All seats with the same observation and action space."""

    name: str  # common stem of the agents' names, such as `adversary` for `adversary_0` and `adversary_1`
    seats: tuple[int, ...]  # indices of the seats, in order
    agents: tuple[str, ...]  # names of the agents
    observation_space: Space  # of each agent, without the parts that are left out
    action_space: Space  # of each agent
    observations: Layout  # layout of observations
    actions: Layout  # layout of actions


def join_spaces(roles: Sequence[Role]) -> tuple[Space, Space]:
    """Return Dicts of the roles' observation and action spaces."""
    seen = spaces.Dict([(role.name, role.observation_space) for role in roles])
    return seen, spaces.Dict([(role.name, role.action_space) for role in roles])


@dataclass(frozen=True)
class SeatRows:
    """Layout of the rows of several roles, each as wide as the widest role's row."""

    layouts: tuple[Layout, ...]  # of each role; its row is at the start of the seat's row
    seats: tuple[tuple[int, ...], ...]  # of each role
    itemsize: int  # bytes of a row
    plain = False

    @classmethod
    def of(cls, layouts: Sequence[Layout], seats: Sequence[tuple[int, ...]]) -> "SeatRows":
        """Return the layout of rows of several roles."""
        widest = max(layout.itemsize for layout in layouts)
        return cls(tuple(layouts), tuple(seats), -(-widest // ALIGNMENT) * ALIGNMENT)

    @property
    def row(self) -> np.dtype[Any]:
        """Return the dtype of an array of rows."""
        return np.dtype(f"V{self.itemsize}")

    def view(self, role: int, rows: NDArray[Any]) -> NDArray[Any]:
        """View rows [N] in a role's layout: [N, *shape] for a Box, else voids [N]."""
        layout = self.layouts[role]
        part = rows.view(np.uint8).reshape(len(rows), self.itemsize)[:, : layout.itemsize]
        if not layout.plain:
            return part.view(layout.row)[:, 0]
        return part.view(layout.row.base).reshape(len(rows), *layout.row.shape)

    def split(self, rows: NDArray[np.intp]) -> "list[NDArray[np.intp]]":
        """Return each role's positions among these row indices."""
        seat = rows % sum(map(len, self.seats))
        return [np.flatnonzero(np.isin(seat, seats)) for seats in self.seats]


def narrow(rows: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Copy wide rows [B] of one role to its layout: [B, *shape] for a Box, else voids [B]."""
    part = np.ascontiguousarray(rows.view(np.uint8).reshape(len(rows), -1)[:, : layout.itemsize])
    if not layout.plain:
        return part.view(layout.row)[:, 0]
    return part.view(layout.row.base).reshape(len(rows), *layout.row.shape)


def widen(rows: NDArray[Any], layout: Layout, row: np.dtype[Any]) -> NDArray[Any]:
    """Return one role's rows [B, ...] as wide rows [B], padded with zeros."""
    wide = np.zeros(len(rows), row)
    octets = wide.view(np.uint8).reshape(len(rows), -1)
    octets[:, : layout.itemsize] = layout.octets(np.asarray(rows, layout.row.base if layout.plain else layout.row))
    return wide


def group(seats: Seats) -> dict[str, tuple[int, ...]]:
    """Return the seats of each role by its name, in the order of their first seats."""
    groups: list[list[int]] = []
    for k, seat in enumerate(seats):
        both = seat.observation_space, seat.action_space
        others = (role for role in groups if both == (seats[role[0]].observation_space, seats[role[0]].action_space))
        role = next(others, None)
        if role is None:
            groups.append([k])
        else:
            role.append(k)
    named: dict[str, tuple[int, ...]] = {}
    for role in groups:
        name = _common([seats[k].agent for k in role])
        while name in named:
            name += "_"
        named[name] = tuple(role)
    return named


def _common(agents: Sequence[str]) -> str:
    """Return the common stem of names without their numbers, or "agents"."""
    stems = {re.sub(r"[\W_]*\d*$", "", str(agent)) for agent in agents}
    return stems.pop() or "agents" if len(stems) == 1 else "agents"
