"""Policies as native code plays them: a network, its parameters, and what normalizes observations.

It reads weights [in, out], where torch and what is learned in its layout have them [out, in].
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algos.networks.actor import ActorPolicy
from algos.networks.architecture import Architecture, Weights
from algos.networks.flat import FlatPolicy
from algos.networks.heads import LeafHead
from envs.native.networks import Network, Normalizer

# By the kind of a head, what native code makes of the outputs where nothing is drawn: what is squashed by tanh and then
# scaled is what is bounded.
HEADS = {"gaussian": "clipped", "squashed": "bounded", "soft": "bounded", "tanh": "bounded"}


@dataclass(frozen=True, eq=False)
class NativePolicy:
    """A policy whose whole episodes native code may play; `envs.native.rollout.supports` says in which environments."""

    network: Network
    parameters: NDArray[np.float32]  # [P]
    normalizer: Normalizer | None  # of observations; None: they are taken as they are

    @classmethod
    def of(cls, policy: Any) -> "NativePolicy | None":
        """Return it; None where its network is none for native code, or its actions are drawn."""
        if isinstance(policy, FlatPolicy):
            return cls(policy.mlp.network, policy.parameters, policy.normalizer) if policy.inputs.plain else None
        if not isinstance(policy, ActorPolicy) or policy.draws:
            return None
        network = network_of(policy.architecture)
        if network is None:
            return None
        weights = policy.weights
        return cls(network, _in_order(policy.architecture, weights), weights.normalizer)


def network_of(architecture: Architecture) -> Network | None:
    """Return the policy's half of an architecture as native code has it, for its most likely actions; None: it has not.

    Only the array of a Box goes in, and one action comes out: a choice, or numbers of one kind.
    """
    head, inputs = architecture.head, architecture.inputs
    if not architecture.is_dense or not inputs.plain or inputs.dtype != np.float32 or not isinstance(head, LeafHead):
        return None
    if architecture.support is not None:
        return None
    sizes = architecture.policy_layout.sizes
    if head.kind == "soft":
        sizes = (*sizes[:-1], head.components)
    if head.kind in HEADS:
        return Network(sizes, architecture.activation, HEADS[head.kind], head.low, head.high)
    one_choice = head.kind == "choices" and head.shape == ()
    return Network(sizes, architecture.activation, "discrete") if one_choice else None


def _in_order(architecture: Architecture, weights: Weights) -> NDArray[np.float32]:
    """The policy's layers, without log standard deviations before them or among their outputs, and the value's."""
    head = architecture.head
    *layers, (last, bias) = architecture.policy_layout.layers(weights.parameters[head.num_log_std :])
    if isinstance(head, LeafHead) and head.kind == "soft":
        last, bias = last[:, : head.components], bias[: head.components]
    return np.concatenate([part.ravel() for layer in [*layers, (last, bias)] for part in layer])
