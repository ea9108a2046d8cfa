"""What off-policy algorithms learn with: networks, their targets, and Adam."""

import abc
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.divergence import REMEDY, Diverged
from paddock.algos.learning.replay.batch import Floats
from paddock.algos.networks.architecture import Architecture, Weights

Metrics = dict[str, NDArray[np.float64]]  # by name, of each update or of those that have it


class OffPolicyLearner(abc.ABC):
    """Networks, their targets, and their optimizers."""

    architecture: Architecture  # of the network that acts

    @abc.abstractmethod
    def update(self, batch: Any, rate: float) -> tuple[Metrics, Floats]:
        """Make U updates, one after another.

        Args:
            batch: `Batch`, or of recurrent networks `SequenceBatch`, of one update.
            rate: Adam's learning rate.

        Returns:
            Metrics, and absolute errors of rows [U, B], by which prioritized replay draws them.

        Raises:
            Diverged: a metric is not finite.
        """

    def training_context(self) -> AbstractContextManager[Any]:
        """Return the context that it learns in."""
        return nullcontext()

    @abc.abstractmethod
    def weights(self, version: int, *, explore: bool = False) -> Weights:
        """Return the network that acts, with observations as they are.

        Args:
            explore: noisy networks have the noise of rollout `version`.
        """

    @abc.abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Parameters, targets, Adam's moments, and the number of updates."""

    @abc.abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""


UNCHANGED = Weights(0, np.zeros(0, np.float32))  # observations go in as they are


def prepare_rows(architecture: Architecture, obs: NDArray[Any]) -> NDArray[Any]:
    """Map observations [..., *shape] to what goes into a network, one after another, such as [U * B, ...] of [U, B]."""
    return architecture.prepare(obs.reshape(-1, *architecture.inputs.shape), UNCHANGED)


def check_metrics(metrics: Metrics, first: int, updates: int) -> None:
    """Raise Diverged where a metric is not finite.

    Args:
        metrics: of these updates, or of every k-th of them.
        first: updates made before these.
        updates: how many they are of.
    """
    for name, values in metrics.items():
        for k in np.flatnonzero(~np.isfinite(values))[:1]:
            number = first + (k + 1) * updates // len(values)
            raise Diverged(f"in update {number} the {name} is {values[k]}: {REMEDY}")
