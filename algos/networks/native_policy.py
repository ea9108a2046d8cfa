"""Policies as native code plays them: whole episodes of the most likely actions, or many steps of drawn ones in a call.

It reads weights [in, out], where torch and what is learned in its layout have them [out, in].
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.flat import FlatPolicy
from paddock.algos.networks.heads import Categorical, LeafHead, Numbers
from paddock.envs.native import library
from paddock.envs.native.networks import Network, Normalizer
from paddock.envs.native.steps import Sampling, StepPlayer, Steps, StochasticNetwork
from paddock.envs.native.vector import NativeVectorEnv
from paddock.envs.vector import VectorEnv

NOTHING = np.zeros(0, np.float32)  # of choices, which have no bounds


@dataclass(frozen=True, eq=False)
class NativePolicy:
    """A policy whose whole episodes native code may play; `paddock.envs.native.rollout.supports` says in which environments."""

    network: Network
    parameters: NDArray[np.float32]  # [P]
    normalizer: Normalizer | None  # of observations; None: they are taken as they are

    @classmethod
    def of(cls, policy: Any) -> "NativePolicy | None":
        """Return it; None where its network is none for native code, or its actions are drawn."""
        if isinstance(policy, FlatPolicy):
            own = policy.mlp.network
            known = policy.inputs.plain or own.features is not None
            return cls(own, policy.parameters, policy.normalizer) if known else None
        if not isinstance(policy, ActorPolicy) or policy.draws:
            return None
        network = network_of(policy.architecture)
        if network is None:
            return None
        weights = policy.weights
        return cls(network, _in_order(policy.architecture, weights), weights.normalizer)


def network_of(architecture: Architecture) -> Network | None:
    """Return the policy's half of an architecture as native code has it, for its most likely actions; None: it has not.

    The array of a Box goes in, or rows of bytes whose features are almost all zeros; one action comes out: a choice, or
    of a Box numbers of one kind.
    """
    head = _head_of(architecture)
    if head is None:
        return None
    sizes = architecture.policy_layout.sizes
    if head.native_mode is not None:  # of means alone, whatever else the outputs are
        sizes = (*sizes[:-1], head.components)
        return Network(sizes, architecture.activation, head.native_mode, head.low, head.high)
    one_choice = isinstance(head, Categorical) and head.shape == ()
    features = architecture.inputs.sparse
    return Network(sizes, architecture.activation, "discrete", features=features) if one_choice else None


def _in_order(architecture: Architecture, weights: Weights) -> NDArray[np.float32]:
    """The policy's layers, without log standard deviations before them or among their outputs, and the value's."""
    head = architecture.head
    *layers, (last, bias) = architecture.policy_layout.layers(weights.parameters[head.num_log_std :])
    if isinstance(head, Numbers):
        last, bias = last[:, : head.components], bias[: head.components]
    return np.concatenate([part.ravel() for layer in [*layers, (last, bias)] for part in layer])


def _head_of(architecture: Architecture) -> LeafHead | None:
    """The head of a dense network of plain numbers that takes its outputs as they are; None: it is another."""
    head, inputs = architecture.head, architecture.inputs
    if not isinstance(head, LeafHead) or not architecture.is_dense or architecture.support is not None:
        return None
    if inputs.plain:
        return head if inputs.dtype == np.float32 else None
    features = inputs.sparse
    if features is None or not isinstance(head, Categorical):
        return None
    return head if not inputs.legal_width or features.legal >= 0 else None


def make_player(architecture: Architecture, venv: VectorEnv) -> "Player | None":
    """Return what plays there natively; None where environments, network or actions have no native version."""
    drawing = drawing_of(architecture)
    if drawing is None or not isinstance(venv, NativeVectorEnv) or venv.seats > 1:
        return None
    if library.describe(venv.task.name).row_bytes and architecture.inputs.sparse is None:
        return None
    return Player(architecture, StepPlayer(venv, drawing))


def drawing_of(architecture: Architecture) -> StochasticNetwork | None:
    """Return how native code draws actions as this architecture does; None where it cannot."""
    head = _head_of(architecture)
    if head is None:
        return None
    layout, activation = architecture.policy_layout, architecture.activation
    if isinstance(head, Categorical) and len(head.sizes) == 1 and head.shape == () and head.low == (0.0,):
        return StochasticNetwork(
            layout, activation, "choices", NOTHING, NOTHING, NOTHING, NOTHING, architecture.inputs.sparse
        )
    if isinstance(head, Numbers) and head.native_sampler is not None and head.dtype == "float32":
        low, half, high = head.bounds
        sampling = cast(Sampling, head.native_sampler)
        return StochasticNetwork(layout, activation, sampling, low, half, high, head.log_half)
    return None


class Player:
    """A learned policy in native environments: what `DenseActor` and its head do, without Python between steps."""

    def __init__(self, architecture: Architecture, player: StepPlayer) -> None:
        self._log_stds = architecture.head.num_log_std
        self._player = player

    def load(self, weights: Weights) -> None:
        """Play these weights from now on."""
        log_std, rest = np.split(weights.parameters, [self._log_stds])
        self._player.load(rest, log_std, weights.normalizer)

    def play(self, noise: NDArray[np.float32]) -> Steps:
        """See `StepPlayer.play`."""
        return self._player.play(noise)
