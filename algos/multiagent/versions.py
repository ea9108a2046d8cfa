"""Several versions of one policy acting in one batch; each row names the version that acts."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.actor import DenseActor, make_actor, outputs_of
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.envs.spaces.sparse import SparseRows


def stack(versions: Sequence[Weights]) -> Weights:
    """Stack the weights of V versions: parameters [V, P], means and deviations [V, O], and the newest version number."""
    parameters, mean, std = (
        np.stack([getattr(weights, name) for weights in versions]) for name in ("parameters", "mean", "std")
    )
    return Weights(max(weights.version for weights in versions), parameters, mean, std, versions[0].clip)


@final
class VersionsActor:
    """Actor of V versions of a policy."""

    def __init__(self, architecture: Architecture, versions: int) -> None:
        self._actors = [make_actor(architecture) for _ in range(versions)]
        self._architecture, self._head = architecture, architecture.head

    def load(self, weights: Weights) -> None:
        """Load the weights of all versions, as `stack` gives them."""
        for actor, parameters, mean, std in zip(
            self._actors, weights.parameters, weights.mean, weights.std, strict=True
        ):
            actor.load(Weights(weights.version, parameters, mean, std, weights.clip))
        self._normalized = weights.mean.size > 0

    def choose(
        self, obs: NDArray[Any], state: NDArray[np.float32], noise: NDArray[np.float32], version: NDArray[np.intp]
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Map observations [B, ...], memories [B, S] and noise [B, W] to actions [B, K] and the next memories [B, S].

        `version` [B] acts in each row; below 0: none, and the row's results are undefined.
        """
        actions, after = np.zeros((len(obs), self._head.components), self._head.inner_dtype), state.copy()
        if self._architecture.is_dense:
            at = np.argsort(version, kind="stable")[np.count_nonzero(version < 0) :]
            if len(at):
                actions[at] = self._choose_each(obs[at], noise[at], version[at])
            return actions, after
        for number in np.unique(version[version >= 0]):
            actor, active = self._actors[number], version == number
            out, kept = actor.act(obs, state)  # all rows, since a row's last bits depend on the batch
            chosen = self._head.sample(out, actor.log_std, noise)
            actions[active], after[active] = chosen[active], kept[active]
        return actions, after

    def _choose_each(self, obs: NDArray[Any], noise: NDArray[np.float32], version: NDArray[np.intp]) -> NDArray[Any]:
        """Return actions [B, K] of dense networks, whose rows do not depend on the batch; `version` is sorted.

        Features, action masks and sampling are shared by the versions and computed once.
        """
        ends = np.searchsorted(version, np.arange(len(self._actors) + 1)).tolist()
        slices = [(k, slice(*ends[k : k + 2])) for k in range(len(self._actors)) if ends[k] < ends[k + 1]]
        actors = [actor for actor in self._actors if isinstance(actor, DenseActor)]
        if self._normalized:
            last = [actors[k].forward(actors[k].features(obs[rows])) for k, rows in slices]
        else:
            seen = actors[0].features(obs)
            last = [
                actors[k].forward(seen.part(rows) if isinstance(seen, SparseRows) else seen[rows]) for k, rows in slices
            ]
        out = outputs_of(self._architecture, obs, np.concatenate(last))
        if not self._head.num_log_std:
            return self._head.sample(out, actors[0].log_std, noise)
        each = [self._head.sample(out[rows], actors[k].log_std, noise[rows]) for k, rows in slices]
        return np.concatenate(each)
