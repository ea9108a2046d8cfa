"""Transitions on a device."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch
from numpy.typing import NDArray
from torch import Tensor

from paddock.algos.learning.offpolicy.learners.learner import prepare_rows
from paddock.algos.learning.replay.batch import Batch
from paddock.algos.learning.torch_learner import check_device
from paddock.algos.networks.actor_critic import aligned, as_tensor, copy_to
from paddock.algos.networks.architecture import Architecture
from paddock.envs.errors import require


@dataclass(frozen=True)
class TorchBatch:
    """A `Batch`, or what one update learns from."""

    obs: Tensor  # [U, B, ...] or [B, ...], as `Architecture.prepare` gives them; bytes stay bytes
    action: Tensor  # [U, B, K]
    reward: Tensor  # [U, B]
    next_obs: Tensor
    discount: Tensor  # [U, B]
    weight: Tensor  # [U, B]
    followed: bool  # whether what follows counts anywhere: not all discounts are 0

    @classmethod
    def of(cls, batch: Batch, architecture: Architecture, device: torch.device) -> "TorchBatch":
        """Move a batch to a device, all its updates at once."""

        def prepare(obs: NDArray) -> Tensor:
            return as_tensor(prepare_rows(architecture, obs), device).unflatten(0, batch.reward.shape)

        action, reward, discount, weight = (
            copy_to(each, device) for each in (batch.action, batch.reward, batch.discount, batch.weight)
        )
        obs, followed = prepare(batch.obs), bool(batch.discount.any())
        next_obs = prepare(batch.next_obs) if followed else obs
        return cls(obs, action, reward, next_obs, discount, weight, followed)

    def split(self) -> Iterator["TorchBatch"]:
        """Return what each update learns from, [B, ...]."""
        names = [field.name for field in fields(self) if field.name != "followed"]
        parts = (map(aligned, getattr(self, name).unbind()) for name in names)
        return (replace(self, **dict(zip(names, each, strict=True))) for each in zip(*parts, strict=True))


def check_place(device: str, precision: str) -> None:
    """Raise ConfigError unless torch can compute there, and like that."""
    check_device(device)
    require(precision in ("float32", "bfloat16"), f"precision={precision} is not supported; allowed: float32, bfloat16")
