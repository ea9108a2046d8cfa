"""Custom losses, configured as `algo.loss`.

A loss is a PyTorch function of a network, a batch and settings. Each algorithm defines a default loss (`ppo_loss`, ...).
`algo.loss=package.function` selects a custom loss with the same signature:

    def loss(network, batch, settings):
        ...
        return total, {"policy_loss": policy_loss, "entropy": entropy}

The first value is a scalar tensor, or a mapping from optimizer names to scalar tensors. The second maps metric names to
scalar tensors, which are logged with the algorithm's prefix, such as `ppo/policy_loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from paddock.envs.errors import require, resolve

if TYPE_CHECKING:
    from torch import Tensor

Loss = Callable[[Any, Any, Any], Any]  # returns (loss, metrics), or an iterator of such pairs


def choose_loss(path: str | None, default: Loss) -> Loss:
    """Return the loss at the import path `algo.loss`, or the default loss if it is null."""
    return default if path is None else resolve(path, "algo.loss")


def needs_of_loss(path: str | None) -> list[str]:
    """Return the settings that require PyTorch, for `learner.is_dense`; empty if `algo.loss` is null."""
    return [] if path is None else [f"algo.loss={path}"]


def compute_loss(loss: Loss, network: Any, batch: Any, settings: Any) -> tuple[Any, Mapping[str, Tensor]]:
    """Compute a loss; raise ConfigError if it does not return (loss, metrics)."""
    result = loss(network, batch, settings)
    valid = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)
    name = getattr(loss, "__qualname__", repr(loss))
    require(valid, f"algo.loss: {name} must return (loss, metrics), tensor and mapping, not {type(result).__name__}")
    return result
