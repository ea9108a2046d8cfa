"""Families of environments for the co-evolution of environments and policies."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from paddock.envs.spec import EnvSpec

Encoding = Mapping[str, Any]  # a member of a family as plain JSON data


@runtime_checkable
class Family(Protocol):
    """Environments that share their spaces and differ by an encoding."""

    def flat(self) -> Encoding:
        """Return the easiest member, with which co-evolution starts."""

    def mutate(self, encoding: Encoding, generator: np.random.Generator) -> Encoding:
        """Return a mutated copy of an encoding, determined by the generator's state."""

    def distance(self, one: Encoding, other: Encoding) -> float:
        """Return the distance of two members: >= 0, symmetric, 0 for equal members."""

    def env_spec(self, encoding: Encoding, ground: int | None) -> EnvSpec:
        """Return the recipe of a member.

        Args:
            encoding: the member.
            ground: a seed >= 0 that fixes what else is sampled per episode, except the initial state; None: not fixed.
        """
