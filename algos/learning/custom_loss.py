"""Custom losses, configured as `algo.loss`.

A loss is a torch function of a batch. Each algorithm's file has its own (`ppo_loss`, `a2c_loss`, `dqn_loss`, ...);
`algo.loss=package.function` selects another with the same signature, which is trained in torch:

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

Loss = Callable[[Any, Any, Any], Any]  # a loss and metrics, or an iterator of such pairs


def choose_loss(path: str | None, own: Loss) -> Loss:
    """Return the loss configured as `algo.loss`, or the default loss if it is null.

    Raises:
        ConfigError: the function cannot be imported.
    """
    return own if path is None else resolve(path, "algo.loss")


def needs_of_loss(path: str | None) -> list[str]:
    """Return the setting that needs torch, as `learner.is_dense` takes it; empty if it is null."""
    return [] if path is None else [f"algo.loss={path}"]


def compute_loss(loss: Loss, network: Any, batch: Any, settings: Any) -> tuple[Any, Mapping[str, Tensor]]:
    """Call a loss.

    Raises:
        ConfigError: it does not return a loss and metrics.
    """
    found = loss(network, batch, settings)
    fits = isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)
    name = getattr(loss, "__qualname__", repr(loss))
    require(fits, f"algo.loss: {name} must return (loss, metrics), a tensor and a mapping, not {type(found).__name__}")
    return found
