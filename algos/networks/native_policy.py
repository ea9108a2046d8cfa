"""Policies in native code: whole episodes of the most likely actions, or many steps of sampled ones per call.

Native weights are [in, out]; torch's are [out, in].
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
from paddock.envs.native.steps import Sampling, StepPlayer, StochasticNetwork
from paddock.envs.native.vector import NativeVectorEnv
from paddock.envs.vector import VectorEnv

NOTHING = np.zeros(0, np.float32)  # bounds of discrete actions


@dataclass(frozen=True, eq=False)
class NativePolicy:
    """Deterministic policy for native episodes, in environments that `native.rollout.supports`."""

    network: Network
    parameters: NDArray[np.float32]  # [P]
    normalizer: Normalizer | None  # of observations, or None

    @classmethod
    def of(cls, policy: Any) -> "NativePolicy | None":
        """Return the native form of a policy; None if its network is unsupported or actions are sampled."""
        if isinstance(policy, FlatPolicy):
            network = policy.mlp.network
            known = policy.inputs.plain or network.features is not None
            return cls(network, policy.parameters, policy.normalizer) if known else None
        if not isinstance(policy, ActorPolicy) or policy.draws:
            return None
        greedy = network_of(policy.architecture)
        if greedy is None:
            return None
        return cls(greedy, _to_native(policy.architecture, policy.weights), policy.weights.normalizer)


def network_of(architecture: Architecture) -> Network | None:
    """Return the native policy network for the most likely actions; None if unsupported.

    Inputs are the array of a Box, or sparse rows of bytes; the action is one discrete or continuous space.
    """
    head = _head_of(architecture)
    if head is None:
        return None
    sizes = architecture.policy_layout.sizes
    if head.native_mode is not None:  # means only
        sizes = (*sizes[:-1], head.components)
        return Network(sizes, architecture.activation, head.native_mode, head.low, head.high)
    one_choice = isinstance(head, Categorical) and head.shape == ()
    features = architecture.inputs.sparse
    return Network(sizes, architecture.activation, "discrete", features=features) if one_choice else None


def _to_native(architecture: Architecture, weights: Weights) -> NDArray[np.float32]:
    """Return the policy's layers without log standard deviations and value function, as [in, out]."""
    head = architecture.head
    *layers, (last, bias) = architecture.policy_layout.layers(weights.parameters[head.num_log_std :])
    if isinstance(head, Numbers):
        last, bias = last[:, : head.components], bias[: head.components]
    return np.concatenate([array.ravel() for layer in [*layers, (last, bias)] for array in layer])


def _head_of(architecture: Architecture) -> LeafHead | None:
    """Return the head of a dense network that native code supports; None otherwise."""
    head, inputs = architecture.head, architecture.inputs
    if not isinstance(head, LeafHead) or not architecture.is_dense or architecture.support is not None:
        return None
    if inputs.plain:
        return head if inputs.dtype == np.float32 else None
    features = inputs.sparse
    if features is None or not isinstance(head, Categorical):
        return None
    return head if not inputs.legal_width or features.legal >= 0 else None


def make_player(architecture: Architecture, venv: VectorEnv) -> StepPlayer | None:
    """Return a native player; None if environments, network or actions are unsupported."""
    network = stochastic_network(architecture)
    if network is None or not isinstance(venv, NativeVectorEnv) or venv.seats > 1:
        return None
    if library.describe(venv.task.name).row_bytes and architecture.inputs.sparse is None:
        return None
    return StepPlayer(venv, network)


def stochastic_network(architecture: Architecture) -> StochasticNetwork | None:
    """Return the native network that samples actions; None if unsupported."""
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
