"""Interface of off-policy learners: networks, their targets, and Adam."""

import abc
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.divergence import REMEDY, Diverged
from paddock.algos.learning.replay.batch import Floats
from paddock.algos.networks.architecture import Architecture, Weights

Metrics = dict[str, NDArray[np.float64]]  # by name, for each update that has the metric


class OffPolicyLearner(abc.ABC):
    """Networks, their targets, and their optimizers."""

    architecture: Architecture  # of the acting network

    @abc.abstractmethod
    def update(self, batch: Any, rate: float) -> tuple[Metrics, Floats]:
        """Make U updates by a `Batch`, or one by a `SequenceBatch`; return metrics and absolute errors [U, B]."""

    def training_context(self) -> AbstractContextManager[Any]:
        """Return the context to train in."""
        return nullcontext()

    @abc.abstractmethod
    def weights(self, version: int, *, explore: bool = False) -> Weights:
        """Return the acting weights; with `explore`, noisy networks include the noise of rollout `version`."""

    @abc.abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return parameters, targets, Adam's moments, and the number of updates."""

    @abc.abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""


UNCHANGED = Weights(0, np.zeros(0, np.float32))  # no normalization of observations


def prepare_rows(architecture: Architecture, obs: NDArray[Any]) -> NDArray[Any]:
    """Flatten observations [..., *shape] and map them to network inputs, e.g. [U, B, *shape] to [U * B, ...]."""
    return architecture.prepare(obs.reshape(-1, *architecture.inputs.shape), UNCHANGED)


def check_metrics(metrics: Metrics, first: int, updates: int) -> None:
    """Raise Diverged if a metric of `updates` updates after the first ones, or of every k-th of them, is not finite."""
    for name, values in metrics.items():
        for k in np.flatnonzero(~np.isfinite(values))[:1]:
            number = first + (k + 1) * updates // len(values)
            raise Diverged(f"in update {number} the {name} is {values[k]}: {REMEDY}")
