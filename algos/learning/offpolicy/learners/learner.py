"""What off-policy algorithms learn with: networks, their targets, and Adam."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.divergence import REMEDY, Diverged
from paddock.algos.learning.learner import plain_weights
from paddock.algos.learning.replay.batch import Floats
from paddock.algos.networks.architecture import Architecture, Weights


class OffPolicyLearner(Protocol):
    """Networks, their targets, and an optimizer."""

    architecture: Architecture  # of the network that acts
    reported: tuple[str, ...]  # what is told of every update

    @property
    def updates(self) -> int:
        """Updates made so far."""
        ...

    def update(self, batch: Any, rate: float) -> tuple[NDArray[np.float64], Floats]:
        """Make U updates, one after another.

        Args:
            batch: `Batch`, or of recurrent networks `SequenceBatch`, of one update.
            rate: Adam's step size.

        Returns:
            What is `reported` [U, R], and how far values were from their targets [U, B], without a sign.

        Raises:
            Diverged: what is reported is no finite number.
        """
        ...

    def at_work(self) -> AbstractContextManager[Any]:
        """Return the context that it learns in."""
        ...

    def weights(self, version: int) -> Weights:
        """The network that acts, with observations as they are."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Parameters, targets, Adam's moments, and the number of updates."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        ...


@runtime_checkable
class ExploresByParameters(Protocol):
    """A learner whose parameters explore, beside the noise of actions."""

    def exploring(self, version: int) -> Weights:
        """The network as it plays rollout `version`, in place of `OffPolicyLearner.weights`."""
        ...


UNCHANGED = plain_weights(0, np.zeros(0, np.float32))  # observations go in as they are


def prepare_rows(architecture: Architecture, obs: NDArray[Any]) -> NDArray[Any]:
    """Map observations [..., *shape] to what goes into a network, one after another, such as [U * B, ...] of [U, B]."""
    return architecture.prepare(obs.reshape(-1, *architecture.inputs.shape), UNCHANGED)


def check_report(report: NDArray[np.float64], reported: tuple[str, ...], first: int) -> None:
    """Raise Diverged where what is told of updates [U, R] is no finite number.

    Args:
        first: updates made before these.
    """
    finite = np.isfinite(report)
    if not finite.all():
        u, k = np.argwhere(~finite)[0]
        raise Diverged(f"in update {first + u + 1} the {reported[k]} is {report[u, k]}: {REMEDY}")
