"""Observations or actions of N environments in one array: how they lie there, and which rows are meant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from envs.errors import ConfigError, require
from envs.spaces.layout import Layout
from envs.spec import NOTHING, EnvSpec

NewArray = Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]  # (shape, dtype) to an array of zeros
RowIndex = slice | NDArray[np.intp]  # environments: consecutive ones as a slice with start and stop, or distinct ones


@dataclass(frozen=True)
class Layouts:
    """How observations and actions lie in rows; None where they have no known size, and are objects."""

    observation: Layout | None
    action: Layout | None
    observation_space: Space  # without what is left out
    action_space: Space

    @classmethod
    def of(cls, spec: EnvSpec, observation_space: Space, action_space: Space) -> "Layouts":
        """Return those of an environment with these spaces, as its recipe has it.

        Raises:
            ConfigError: `env.bounds`, `env.without` and `env.action_bounds` do not give them a size, or name what there
                is not.
        """
        kept, observation = spec.keep(observation_space)
        try:
            action = spec.lay_out_actions(action_space)
        except ConfigError:
            if spec.action_bounds != NOTHING:
                raise
            action = None
        return cls(observation, action, kept, action_space)

    def check_sized(self) -> None:
        """Raise ConfigError where observations or actions have no known size, saying what gives them one."""
        try:
            if self.observation is None:
                Layout.of(self.observation_space, {}, ())
        except ConfigError as error:
            raise ConfigError(f"observations have no fixed size: {error}") from None
        try:
            if self.action is None:
                Layout.of(self.action_space, {}, (), "env.action_bounds")
        except ConfigError as error:
            raise ConfigError(f"actions have no fixed size: {error}") from None

    def check_rows(self, spec: EnvSpec) -> None:
        """Raise ConfigError where somebody else's environments would give other rows than the recipe's."""
        own, other = spec.observations, self.observation
        require(
            own == other or (own.plain and other is not None and other.plain),
            f"env.id={spec.id}: observations are {self.observation_space} in this vec=, and {spec.spaces[0]} in "
            "Gymnasium; choose vec=serial or vec=multiprocess",
        )


def allocate(layout: Layout | None, num_envs: int, new: NewArray) -> NDArray[Any]:
    """Return an array [N, ...] for rows: numbers where an element is one array of them, else voids or objects."""
    if layout is None:
        return new((num_envs,), np.dtype(object))
    if layout.plain:
        return new((num_envs, *layout.row.shape), layout.row.base)
    rows = new((num_envs,), layout.row)
    fields = layout.fields(rows)
    return fields if isinstance(fields, np.ndarray) and fields.dtype.kind != "U" else rows


def numbers(rows: RowIndex) -> Sequence[int]:
    """The environments' numbers, as plain ints."""
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
