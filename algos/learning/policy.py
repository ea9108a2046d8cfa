"""What acts: what evaluations and matches ask of a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    # As in `algos.protocol`, whose readers need not wait for arrays.
    import numpy as np
    from numpy.typing import NDArray

    from algos.networks.inputs import Inputs


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
class ReadsInputs(Protocol):
    """A policy whose network says what it sees of an observation, so that a file can do what it does."""

    inputs: Inputs
