"""Which seats of a world are on one side."""

import re

from paddock.envs.errors import require
from paddock.envs.spec import EnvSpec


def sides_of(env: EnvSpec) -> tuple[tuple[int, ...], ...]:
    """Return the seats on each side of a world: teams by their agents' names without numbers, or else each seat alone.

    Raises:
        ConfigError: it has one agent.
    """
    require(env.seats > 1, f"env.id={env.id} has one agent, which has nobody to play against; choose a world")
    teams: dict[str, list[int]] = {}
    for number, seat in enumerate(env.made.seats):
        teams.setdefault(re.sub(r"[\W_]*\d*$", "", seat.agent), []).append(number)
    if len(teams) == 1:
        return tuple((seat,) for seat in range(env.seats))
    return tuple(map(tuple, teams.values()))


def are_alike(env: EnvSpec) -> bool:
    """Return whether all sides of a world have as many agents of the same roles: one game then tells who is better."""
    role_of = {seat: role.name for role in env.roles for seat in role.seats}
    return len({tuple(sorted(role_of[seat] for seat in side)) for side in sides_of(env)}) == 1
