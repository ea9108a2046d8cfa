"""Losses: which function `algo.loss` names, and what every such function takes and returns.

A loss is a torch function of a batch. Each algorithm's file has its own (`ppo_loss`, `a2c_loss`, `dqn_loss`, ...);
`algo.loss=package.function` takes another with the same signature, which then learns in torch:

    def loss(network, batch, settings):
        ...
        return total, {"policy_loss": policy_loss, "entropy": entropy}

The first value is a scalar tensor, or one for each optimizer by its name. The second maps names of metrics to scalar
tensors; rows of metrics have them under the algorithm's name, as `ppo/policy_loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from paddock.envs.errors import require, resolve

if TYPE_CHECKING:
    from torch import Tensor

Loss = Callable[[Any, Any, Any], Any]  # a loss and metrics, or an iterator of such pairs


def choose_loss(path: str | None, own: Loss) -> Loss:
    """Return the loss that `algo.loss` names, or the algorithm's own where it is null.

    Raises:
        ConfigError: the function cannot be imported.
    """
    return own if path is None else resolve(path, "algo.loss")


def needs_of_loss(path: str | None) -> list[str]:
    """Return the setting that asks for torch, as `learner.is_dense` takes it; nothing where it is null."""
    return [] if path is None else [f"algo.loss={path}"]


def compute_loss(loss: Loss, network: Any, batch: Any, settings: Any) -> tuple[Any, Mapping[str, Tensor]]:
    """Call a loss.

    Raises:
        ConfigError: it returns something else than a loss and metrics.
    """
    found = loss(network, batch, settings)
    fits = isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)
    name = getattr(loss, "__qualname__", repr(loss))
    require(fits, f"algo.loss: {name} must return (loss, metrics), a tensor and a mapping, not {type(found).__name__}")
    return found
