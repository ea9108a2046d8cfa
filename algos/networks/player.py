"""What plays many steps of native environments in one call: a dense policy whose actions are one choice, or one Box."""

import numpy as np
from numpy.typing import NDArray

from algos.networks.architecture import Architecture, Weights
from algos.networks.heads import LeafHead
from envs.native.networks import Normalizer
from envs.native.steps import Drawing, Drawn, StepPlayer, Steps
from envs.native.vector import NativeVectorEnv
from envs.vector import VectorEnv

DRAWN: dict[str, Drawn] = {"gaussian": "clipped", "squashed": "squashed", "soft": "soft", "tanh": "tanh"}
NOTHING = np.zeros(0, np.float32)  # of choices, which have no bounds


def make_player(architecture: Architecture, venv: VectorEnv) -> "Player | None":
    """What plays there natively; None where environments, network or actions have no native version."""
    drawing = drawing_of(architecture)
    if drawing is None or not isinstance(venv, NativeVectorEnv):
        return None
    return Player(architecture, StepPlayer(venv, drawing))


def drawing_of(architecture: Architecture) -> Drawing | None:
    """How native code draws actions as this architecture does; None where it cannot."""
    inputs, head = architecture.inputs, architecture.head
    if not (architecture.is_dense and inputs.plain and inputs.dtype == np.float32 and isinstance(head, LeafHead)):
        return None
    if architecture.support is not None:
        return None
    layout, activation = architecture.policy_layout, architecture.activation
    if head.kind == "choices" and len(head.sizes) == 1 and head.shape == () and head.low == (0.0,):
        return Drawing(layout, activation, "choices", NOTHING, NOTHING, NOTHING, NOTHING)
    if head.kind in DRAWN and head.dtype == "float32":
        low, half, high = head.bounds
        return Drawing(layout, activation, DRAWN[head.kind], low, half, high, head.log_half)
    return None


class Player:
    """A learned policy in native environments: what `DenseActor` and its head do, without Python between steps."""

    def __init__(self, architecture: Architecture, player: StepPlayer) -> None:
        self._log_stds = architecture.head.num_log_std
        self._player = player

    def load(self, weights: Weights) -> None:
        """Play these weights from now on."""
        log_std, rest = np.split(weights.parameters, [self._log_stds])
        self._player.load(
            rest, log_std, Normalizer(weights.mean, weights.std, weights.clip) if weights.mean.size else None
        )

    def play(self, noise: NDArray[np.float32]) -> Steps:
        """See `StepPlayer.play`."""
        return self._player.play(noise)
