"""What dense networks of action values are made of, and what their updates are computed from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.dense.shape import Floats
from paddock.envs.spaces.sparse import SparseRows

REPORTED = ("loss", "q_mean", "target_mean", "gradient_norm")


@dataclass(frozen=True)
class QVectors:
    """Flat vectors [P], trunk, policy, value: outputs of the policy are action values, or advantages beside a value."""

    parameters: Floats
    targets: Floats
    momentum: Floats  # Adam's
    variance: Floats


@dataclass(frozen=True)
class QTransitions:
    """What U updates learn from, B transitions each."""

    observation: Floats  # [U * B, width]; where the numbers are sparse what is legal alone, [U * B, W] or [U * B, 0]
    next_observation: Floats  # likewise
    action: NDArray[np.int32]  # [U, B]
    reward: Floats  # [U, B]
    discount: Floats  # [U, B], of what the next observation is worth
    weight: Floats  # [U, B], of the losses
    sparse: SparseRows | None = None  # the numbers of observations, where almost all are 0
    next_sparse: SparseRows | None = None  # and of those that follow


@dataclass(frozen=True)
class QSteps:
    """How U updates descend."""

    double: bool  # the next action is chosen by the parameters, not by the targets
    huber: float | None  # errors beyond it count linearly; None: all by half their squares
    max_norm: float | None  # gradients are scaled down to it; None: they are left as they are
    epsilon: float  # Adam's
    rates: Floats  # [U], see `adam_scales`
    deviations: Floats  # [U]
    taus: Floats  # [U], how far targets move after each; 0: they stay
