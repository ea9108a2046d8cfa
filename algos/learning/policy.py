"""Interfaces of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

if TYPE_CHECKING:
    # Keep NumPy out of the import time of `paddock.algos.protocol`.
    import numpy as np
    from numpy.typing import NDArray

    from paddock.algos.networks.inputs import Inputs


@runtime_checkable
class Policy(Protocol):
    """Learned policy."""

    def act(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[Any], dict[str, NDArray[Any]], Any]:
        """Map obs [B, ...] to (actions [B, ...], further outputs, next recurrent state); state=None starts episodes."""


@runtime_checkable
class Drawing(Protocol):
    """Policy that has a stochastic version."""

    def drawing(self, generator: np.random.Generator) -> Policy:
        """Return the policy with actions sampled from this generator, as in training."""


@runtime_checkable
class MayDraw(Drawing, Protocol):
    """Policy whose class may or may not have a stochastic version."""

    has_distribution: bool  # False for action values and for deterministic policies with exploration noise


def can_draw(policy: object) -> TypeGuard[Drawing]:
    """Return whether a policy has a stochastic version."""
    return isinstance(policy, Drawing) and (not isinstance(policy, MayDraw) or policy.has_distribution)


def drawn_by(policy: Policy, generator: np.random.Generator) -> Policy:
    """Return the stochastic version of a policy, or the policy itself if there is none."""
    return policy.drawing(generator) if can_draw(policy) else policy


@runtime_checkable
class ReadsInputs(Protocol):
    """Policy that exposes its network's input format, so that it can be exported."""

    inputs: Inputs
