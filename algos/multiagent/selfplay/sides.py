"""Sides of a multi-agent environment: its teams."""

import re

from paddock.envs.errors import require
from paddock.envs.spec import EnvSpec


def sides_of(env: EnvSpec) -> tuple[tuple[int, ...], ...]:
    """Return the seats of each side: teams, by agent names without numbers, or each seat alone if all are one team."""
    require(env.seats > 1, f"env.id={env.id} has one agent; opponents and matches need several agents")
    teams: dict[str, list[int]] = {}
    for number, seat in enumerate(env.made.seats):
        teams.setdefault(re.sub(r"[\W_]*\d*$", "", seat.agent), []).append(number)
    if len(teams) == 1:
        return tuple((seat,) for seat in range(env.seats))
    return tuple(map(tuple, teams.values()))


def is_symmetric(env: EnvSpec) -> bool:
    """Return whether all sides have the same number of agents of each role, so that a single game is fair."""
    role_of = {seat: role.name for role in env.roles for seat in role.seats}
    return len({tuple(sorted(role_of[seat] for seat in side)) for side in sides_of(env)}) == 1
