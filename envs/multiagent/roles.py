"""Roles: the seats of a world that see and do things of the same kind, and how rows of several roles lie together."""

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

ALIGNMENT = 8  # bytes, so that a row of any layout may start wherever a row of several roles does


@dataclass(frozen=True)
class Seat:
    """An agent's place in an environment."""

    agent: str
    observation_space: Space
    action_space: Space


Seats = tuple[Seat, ...]  # of an environment, in order


def seats_of(env: Any, id: str) -> Seats:
    """Return who sits in an environment, and what each sees and does.

    Raises:
        ConfigError: it does not say so.
    """
    alone = isinstance(env, gymnasium.Env)
    try:
        if alone:
            return (Seat("agent", env.observation_space, env.action_space),)
        spaces_of = [(agent, env.observation_space(agent), env.action_space(agent)) for agent in env.possible_agents]
    except Exception as error:
        what = f"env.id={id} does not say its spaces ({type(error).__name__}: {one_line(error)})"
        where = "in its constructor" if alone else "as methods, for each of possible_agents"
        raise ConfigError(f"{what}; give it observation_space and action_space {where}") from error
    return tuple(Seat(*one) for one in spaces_of)


@dataclass(frozen=True)
class Role:
    """All seats with the same two spaces.

    Attributes:
        name: what their agents' names have in common, as `adversary` of `adversary_0` and `adversary_1`.
        seats: their numbers in a world, in order.
        agents: their agents' names.
        observation_space: of each, without the parts that are left out.
        action_space: what each may do.
        observations: how an observation lies in a row.
        actions: how an action lies in a row.
    """

    name: str
    seats: tuple[int, ...]
    agents: tuple[str, ...]
    observation_space: Space
    action_space: Space
    observations: Layout
    actions: Layout


def join_spaces(roles: Sequence[Role]) -> tuple[Space, Space]:
    """Return the observation and action spaces of roles, each a Dict by role."""
    seen = spaces.Dict([(role.name, role.observation_space) for role in roles])
    return seen, spaces.Dict([(role.name, role.action_space) for role in roles])


@dataclass(frozen=True)
class SeatRows:
    """Rows of a world's seats where they have several roles: each as wide as the widest role's.

    Attributes:
        layouts: of each role, whose row lies at the start of the seat's.
        seats: of each role.
        itemsize: bytes of a row.
    """

    layouts: tuple[Layout, ...]
    seats: tuple[tuple[int, ...], ...]
    itemsize: int
    plain = False

    @classmethod
    def of(cls, layouts: Sequence[Layout], seats: Sequence[tuple[int, ...]]) -> "SeatRows":
        """Lay several roles' rows together."""
        widest = max(layout.itemsize for layout in layouts)
        return cls(tuple(layouts), tuple(seats), -(-widest // ALIGNMENT) * ALIGNMENT)

    @property
    def row(self) -> np.dtype[Any]:
        """What an array of rows is made of."""
        return np.dtype(f"V{self.itemsize}")

    def view(self, role: int, rows: NDArray[Any]) -> NDArray[Any]:
        """Return all rows [N] as one role's layout has them, without a copy: [N, *shape] of a Box, else voids [N]."""
        layout = self.layouts[role]
        part = rows.view(np.uint8).reshape(len(rows), self.itemsize)[:, : layout.itemsize]
        if not layout.plain:
            return part.view(layout.row)[:, 0]
        return part.view(layout.row.base).reshape(len(rows), *layout.row.shape)

    def split(self, rows: NDArray[np.intp]) -> "list[NDArray[np.intp]]":
        """Return for each role where among these rows of worlds its own are."""
        seat = rows % sum(map(len, self.seats))
        return [np.flatnonzero(np.isin(seat, seats)) for seats in self.seats]


def narrow(rows: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Return rows [B] of several roles, all of one role, as its own: [B, *shape] of a Box, else voids [B]; a copy."""
    part = np.ascontiguousarray(rows.view(np.uint8).reshape(len(rows), -1)[:, : layout.itemsize])
    if not layout.plain:
        return part.view(layout.row)[:, 0]
    return part.view(layout.row.base).reshape(len(rows), *layout.row.shape)


def widen(rows: NDArray[Any], layout: Layout, row: np.dtype[Any]) -> NDArray[Any]:
    """Return one role's rows [B, ...] as rows [B] of several roles, with zeros behind."""
    wide = np.zeros(len(rows), row)
    octets = wide.view(np.uint8).reshape(len(rows), -1)
    octets[:, : layout.itemsize] = layout.octets(np.asarray(rows, layout.row.base if layout.plain else layout.row))
    return wide


def group(seats: Seats) -> dict[str, tuple[int, ...]]:
    """Return the seats of each role by its name, in the order of each one's first seat."""
    alike: list[list[int]] = []
    for k, seat in enumerate(seats):
        both = seat.observation_space, seat.action_space
        others = (role for role in alike if both == (seats[role[0]].observation_space, seats[role[0]].action_space))
        role = next(others, None)
        if role is None:
            alike.append([k])
        else:
            role.append(k)
    named: dict[str, tuple[int, ...]] = {}
    for role in alike:
        name = _common([seats[k].agent for k in role])
        while name in named:
            name += "_"
        named[name] = tuple(role)
    return named


def _common(agents: Sequence[str]) -> str:
    """Return what names are without their numbers, where that is the same of all; else "agents"."""
    stems = {re.sub(r"[\W_]*\d*$", "", str(agent)) for agent in agents}
    return stems.pop() or "agents" if len(stems) == 1 else "agents"
