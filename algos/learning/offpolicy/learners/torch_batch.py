"""Batches of replayed transitions and sequences as PyTorch tensors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paddock.algos.learning.offpolicy.learners.learner import prepare_rows
from paddock.algos.learning.replay.batch import Batch, SequenceBatch
from paddock.algos.networks.actor_critic import aligned, as_tensor, copy_to
from paddock.algos.networks.architecture import Architecture


@dataclass(frozen=True)
class TorchBatch:
    """Transitions of one update."""

    obs: Tensor  # [B, ...], as returned by `Architecture.prepare`; uint8 stays uint8
    action: Tensor  # [B, K]; continuous actions are in [-1, 1]
    reward: Tensor  # [B], the discounted sum of n rewards
    next_obs: Tensor  # [B, ...]
    discount: Tensor  # [B], gamma^n; 0 where the episode terminated
    weight: Tensor  # [B], importance weights
    bootstraps: bool  # whether any discount is nonzero
    noise: Tensor  # [draws, B, A], standard normal, keyed by the update; empty if unused
    update: int = 0  # update number, starting at 1

    @classmethod
    def split(cls, batch: Batch, architecture: Architecture, device: torch.device) -> "Iterator[TorchBatch]":
        """Copy the batches of U updates to a device at once, and yield them one by one."""
        bootstraps = bool(batch.discount.any())
        obs = _observations(batch.obs, architecture, device)
        next_obs = _observations(batch.next_obs, architecture, device) if bootstraps else obs
        action, reward, discount, weight = (
            copy_to(each, device) for each in (batch.action, batch.reward, batch.discount, batch.weight)
        )
        for rows in zip(*(each.unbind() for each in (obs, action, reward, next_obs, discount, weight)), strict=True):
            t: list[Tensor] = [*map(aligned, rows)]
            yield cls(t[0], t[1], t[2], t[3], t[4], t[5], bootstraps, t[5].new_zeros(0))


@dataclass(frozen=True)
class TorchSequences:
    """Sequences of one update: L = burn_in + length + n observations, `length` of which are trained on."""

    obs: Tensor  # [L, B, ...]
    start: Tensor  # [L, B], True where an episode begins
    state: Tensor  # [B, S], recurrent state before the first observation
    action: Tensor  # [length, B, K]
    reward: Tensor  # [length, B], the discounted sum of n rewards
    discount: Tensor  # [length, B], gamma^n; 0 where the episode terminated
    last: Tensor  # [length, B], last step of the n-step return
    final_at: Tensor  # [F, 2], steps (t, b) at which an episode was truncated
    final_obs: Tensor  # [F, ...], final observations of these steps
    weight: Tensor  # [B], importance weights
    update: int = 0  # update number, starting at 1

    @classmethod
    def of(cls, batch: SequenceBatch, architecture: Architecture, device: torch.device) -> "TorchSequences":
        """Copy sequences to a device."""
        arrays: dict[str, Any] = {
            name: array for name, array in vars(batch).items() if name not in ("ids", "obs", "final_obs")
        }
        arrays["action"] = batch.action.astype(np.int64)
        obs, final = (_observations(each, architecture, device) for each in (batch.obs, batch.final_obs))
        tensors: dict[str, Any] = {name: copy_to(array, device) for name, array in arrays.items()}
        return cls(obs=obs, final_obs=final, **tensors)


AnyBatch = TorchBatch | TorchSequences


def with_noise(batch: AnyBatch, noise: Tensor | None, update: int) -> AnyBatch:
    """Return a copy of a batch with the noise and the update number set."""
    if noise is None or isinstance(batch, TorchSequences):
        return replace(batch, update=update)
    return replace(batch, noise=noise, update=update)


def _observations(obs: NDArray[Any], architecture: Architecture, device: torch.device) -> Tensor:
    lead = obs.shape[: obs.ndim - len(architecture.inputs.shape)]
    return as_tensor(prepare_rows(architecture, obs), device).unflatten(0, lead)
