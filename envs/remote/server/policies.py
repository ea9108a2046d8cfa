"""What a joint world does about clients that are late or lost, and the actions that stand in for theirs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError
from paddock.envs.remote.rows import pack_actions
from paddock.envs.vector.storage import Layouts, allocate
from paddock.envs.worlds.roles import Role

Policy = Literal["wait", "noop", "last", "truncate"]


@dataclass(frozen=True)
class Policies:
    """What is done about clients that are late, or lost."""

    late: Policy
    late_s: float  # after the first client that asks for a step
    lost: Policy
    lost_s: float  # after the end of the session


def make_noop(space: Space) -> Any:
    """Return the first of a space's choices, and of its numbers those next to zero.

    Raises:
        ConfigError: it has other parts than choices and numbers.
    """
    match space:
        case spaces.Discrete():
            return space.dtype.type(space.start)
        case spaces.Box():
            return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
        case spaces.MultiDiscrete():
            return np.array(space.start, space.dtype)
        case spaces.MultiBinary():
            return np.zeros(space.shape, space.dtype)
        case spaces.Tuple():
            return tuple(make_noop(part) for part in space)
        case spaces.Dict():
            return {key: make_noop(part) for key, part in space.items()}
    raise ConfigError(f"no action of {space} does nothing; choose serve.late and serve.lost of wait and truncate")


def make_noops(layouts: Layouts, roles: Sequence[Role]) -> NDArray[Any]:
    """Return rows [S] of such actions."""
    noops = {agent: make_noop(role.action_space) for role in roles for agent in role.agents}
    rows = allocate(layouts.action_rows, layouts.seats, np.zeros)
    rows[:] = pack_actions(layouts, roles, noops).view(rows.dtype).reshape(rows.shape)
    return rows
