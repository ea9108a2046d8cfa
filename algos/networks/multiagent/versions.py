"""Versions of one policy that play beside each other: which of them acts in a row is known row by row."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from algos.networks.actor import make_actor
from algos.networks.architecture import Architecture, Weights

Flags = NDArray[np.bool_]


def stack(versions: Sequence[Weights]) -> Weights:
    """Return weights of V versions as one: parameters [V, P], means and deviations [V, O], the newest one's number."""
    parameters, mean, std = (
        np.stack([getattr(weights, name) for weights in versions]) for name in ("parameters", "mean", "std")
    )
    return Weights(max(weights.version for weights in versions), parameters, mean, std, versions[0].clip)


@final
class VersionsActor:
    """Plays V versions of a policy."""

    def __init__(self, architecture: Architecture, versions: int) -> None:
        self._actors = [make_actor(architecture) for _ in range(versions)]
        self._head = architecture.head
        # Of a dense network each row has the same bits in any company; of others all rows go through every version.
        self._row_by_row = architecture.is_dense

    def load(self, weights: Weights) -> None:
        """Play these versions from now on, as `stack` gives them."""
        for actor, parameters, mean, std in zip(
            self._actors, weights.parameters, weights.mean, weights.std, strict=True
        ):
            actor.load(Weights(weights.version, parameters, mean, std, weights.clip))

    def choose(
        self, obs: NDArray[Any], state: NDArray[np.float32], noise: NDArray[np.float32], version: NDArray[np.intp]
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Map observations [B, ...] and memories [B, S] to actions [B, K] and the next memories [B, S].

        Args:
            noise: [B, W], of the actions.
            version: [B], that acts in each row; below 0: none, and neither action nor memory means anything.
        """
        actions, after = np.zeros((len(obs), self._head.components), self._head.inner_dtype), state.copy()
        for number in np.unique(version[version >= 0]):
            actor, mine = self._actors[number], np.flatnonzero(version == number)
            at = mine if self._row_by_row else np.arange(len(obs))
            out, kept = actor.act(obs[at], state[at])
            chosen = self._head.sample(out, actor.log_std, noise[at])
            own = slice(None) if self._row_by_row else mine
            actions[mine], after[mine] = chosen[own], kept[own]
        return actions, after
