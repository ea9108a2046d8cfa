"""Minibatches: what on-policy losses are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Minibatch:
    """B steps of a rollout, on the learner's device.

    Where several learners share a minibatch, each has its own steps here, and a loss is the mean over them.
    """

    obs: Tensor  # [B, ...], as the network takes them; with an LSTM [T, E, ...]
    action: Tensor  # [B, K]
    logprob: Tensor  # [B], log pi_old(a | s), of the policy that acted
    advantage: Tensor  # [B]
    target: Tensor  # [B], of the values
    value: Tensor  # [B], before the update
    all_advantages: Tensor  # [M], of the whole minibatch, by which advantages are normalized
    sequences: Sequences | None = None  # with an LSTM


@dataclass(frozen=True)
class Sequences:
    """Whole sequences of T steps in E environments, which an LSTM runs over."""

    state: Tensor  # [E, S], memory before the first step
    start: Tensor  # [T, E], whether an episode begins
    active: Tensor | None  # [T, E], whether the memory changes in the step; None: in all
    learned: Tensor | None  # [T, E], which steps are the minibatch's B; None: all
