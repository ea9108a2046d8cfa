"""Settings of the losses of action values."""

from dataclasses import dataclass


@dataclass(frozen=True)
class QObjective:
    """Settings of a loss of action values, and how their targets follow."""

    double: bool  # the next action is chosen by the online network (van Hasselt et al. 2016, arXiv:1509.06461)
    huber: float | None  # error from which the loss is linear; None: it is quadratic everywhere
    tau: float  # how far targets move; at 1 they are copies
    target_every: int  # updates between two moves of the targets
    max_grad_norm: float | None  # gradients are scaled down to it; None: they are left as they are


@dataclass(frozen=True)
class RecurrentObjective(QObjective):
    """Settings of a loss of sequences."""

    burn_in: int  # first steps of a sequence, which only warm up the memory
    rescale: float | None  # epsilon of the value rescaling; None: values are as they are
