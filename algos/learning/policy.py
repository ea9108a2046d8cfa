"""What acts: what evaluations and matches ask of a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

if TYPE_CHECKING:
    # As in `paddock.algos.protocol`, whose readers need not wait for arrays.
    import numpy as np
    from numpy.typing import NDArray

    from paddock.algos.networks.inputs import Inputs


@runtime_checkable
class Policy(Protocol):
    """What an algorithm has learned."""

    def act(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[Any], dict[str, NDArray[Any]], Any]:
        """Map obs [B, ...] to actions [B, ...], what else there is to tell of them, and the next state.

        Args:
            state: the memory of recurrent policies; None begins new episodes.
        """
        ...


@runtime_checkable
class Drawing(Protocol):
    """A policy whose actions can be drawn from a distribution."""

    def drawing(self, generator: np.random.Generator) -> Policy:
        """Return the same policy with actions as training takes them: drawn, from this generator."""
        ...


@runtime_checkable
class MayDraw(Drawing, Protocol):
    """A policy that says whether it has a distribution to draw from, as others of its class have, or have not."""

    has_distribution: bool  # training draws actions from outputs; not of action values, nor where noise is added


def can_draw(policy: object) -> TypeGuard[Drawing]:
    """Return whether a policy's actions can be drawn as training takes them."""
    return isinstance(policy, Drawing) and (not isinstance(policy, MayDraw) or policy.has_distribution)


def drawn_by(policy: Policy, generator: np.random.Generator) -> Policy:
    """Return a policy with actions drawn from this generator; as it is if it cannot draw."""
    return policy.drawing(generator) if can_draw(policy) else policy


@runtime_checkable
class ReadsInputs(Protocol):
    """A policy whose network says what it sees of an observation, so that a file can do what it does."""

    inputs: Inputs
