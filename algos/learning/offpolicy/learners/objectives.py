"""What off-policy updates minimize."""

from dataclasses import dataclass


@dataclass(frozen=True)
class QObjective:
    """The distance of action values from r + discount * max Q'(next), and how Q', the target, follows."""

    double: bool  # the next action is chosen by the values that learn (van Hasselt et al. 2016, arXiv:1509.06461)
    huber: float | None  # distance from which the loss is linear; None: nowhere
    tau: float  # how far targets move; at 1 they are copies
    target_every: int  # updates between two moves of the targets
    max_grad_norm: float | None  # gradients are scaled down to it; None: they are left as they are
