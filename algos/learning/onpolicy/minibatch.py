"""Minibatches of on-policy losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Minibatch:
    """B steps of a rollout on the learner's device; with data-parallel learners, one learner's share."""

    obs: Tensor  # [B, ...], network inputs; with an LSTM [T, E, ...]
    action: Tensor  # [B, K]
    logprob: Tensor  # [B], log pi_old(a | s), of the acting policy
    advantage: Tensor  # [B]
    target: Tensor  # [B], of the values
    value: Tensor  # [B], before the update
    all_advantages: Tensor  # [M], of the whole minibatch, for advantage normalization
    sequences: Sequences | None = None  # with an LSTM


@dataclass(frozen=True)
class Sequences:
    """Sequences of T steps in E environments for an LSTM."""

    state: Tensor  # [E, S], recurrent state before the first step
    start: Tensor  # [T, E], True where an episode begins
    active: Tensor | None  # [T, E], True where the recurrent state is updated; None: everywhere
    learned: Tensor | None  # [T, E], mask of the minibatch's B steps; None: all
