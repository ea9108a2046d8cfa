"""Actions by agent as the rows of a world."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.spaces.parts import Misfit
from paddock.envs.vector.contract import VectorMisuse
from paddock.envs.vector.storage import Layouts
from paddock.envs.worlds.roles import Role, widen


def pack_actions(layouts: Layouts, roles: Sequence[Role], actions: Mapping[str, Any]) -> NDArray[Any]:
    """Return rows [seats] of actions; zeros for agents that have none.

    Raises:
        VectorMisuse: an action is not of its space.
    """
    parts = [_pack(role, actions) for role in roles]
    if layouts.roles is None:
        return parts[0]
    row = layouts.roles[1].row
    rows = np.zeros(layouts.seats, row)
    for role, part in zip(roles, parts, strict=True):
        assert role.actions is not None
        rows[list(role.seats)] = widen(part, role.actions, row)
    return rows


def _pack(role: Role, actions: Mapping[str, Any]) -> NDArray[Any]:
    assert role.actions is not None
    rows = role.actions.zeros(len(role.seats))
    write = role.actions.writer(rows)
    for k, agent in enumerate(role.agents):
        if agent in actions:
            try:
                write(k, actions[agent])
            except Misfit as misfit:
                allowed = f"take one of {role.action_space}"
                raise VectorMisuse(f"step: the action of {agent} has {misfit}; {allowed}") from None
    return rows
