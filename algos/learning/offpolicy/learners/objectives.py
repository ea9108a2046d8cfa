"""Settings of the losses of action values."""

from dataclasses import dataclass


@dataclass(frozen=True)
class QObjective:
    """Settings of Q-learning losses and target networks."""

    double: bool  # select the next action with the online network (van Hasselt et al. 2016, arXiv:1509.06461)
    huber: float | None  # error beyond which the loss is linear; None: quadratic
    tau: float  # Polyak coefficient of target updates; 1: hard updates
    target_every: int  # updates between target updates
    max_grad_norm: float | None  # None: no clipping


@dataclass(frozen=True)
class RecurrentObjective(QObjective):
    """Settings of a loss on sequences."""

    burn_in: int  # leading steps that only warm up the recurrent state
    rescale: float | None  # epsilon of the value rescaling; None: no rescaling
