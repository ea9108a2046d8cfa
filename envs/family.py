"""Families of environments for co-evolution: the first member, neighbours, and recipes of members."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from paddock.envs.spec import EnvSpec

Encoding = Mapping[str, Any]  # one member of a family, as plain JSON data


@runtime_checkable
class Family(Protocol):
    """Environments that share their spaces and differ by an encoding."""

    def flat(self) -> Encoding:
        """The member that is easiest, where co-evolution begins."""
        ...

    def mutate(self, encoding: Encoding, generator: np.random.Generator) -> Encoding:
        """A neighbour; the encoding itself stays as it is, and the generator's state alone decides."""
        ...

    def distance(self, one: Encoding, other: Encoding) -> float:
        """How different two members are, >= 0, symmetric; 0 for equal ones."""
        ...

    def env_spec(self, encoding: Encoding, ground: int | None) -> EnvSpec:
        """How to make a member.

        Args:
            ground: a seed >= 0 that fixes what every episode would draw anew, except how it starts; None: nothing is
                fixed.
        """
        ...
