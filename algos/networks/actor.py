"""Actors: policy inference without gradients.

Dense networks run in native code, or in NumPy where it was not built. On small batches both are many times faster than
torch, and workers start without importing it. All other networks run in torch.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.inputs import Inputs
from paddock.envs.native.forward import DenseForward, expand
from paddock.envs.spaces.sparse import SparseRows

Features = NDArray[np.float32] | SparseRows


class Actor(Protocol):
    """Policy inference on rows of observations."""

    log_std: NDArray[np.float32]  # [W] of a Gaussian head, or [0]

    def load(self, weights: Weights) -> None:
        """Load the weights of a policy version."""

    def act(self, obs: NDArray[Any], state: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Map obs [B, *shape] and state [B, S] to head outputs [B, W] and the next state [B, S]."""


def make_actor(architecture: Architecture, device: str = "cpu") -> Actor:
    """Return the fastest actor for an architecture on a device."""
    if architecture.is_dense and device == "cpu":
        return DenseActor(architecture)
    # Torch takes seconds to import, and most workers do not need it.
    from paddock.algos.networks.actor_critic import TorchActor

    return TorchActor(architecture, device)


class DenseActor:
    """Policy of a dense network, whose parameters come first, bit-identical for every batch size and CPU."""

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        self._forward = DenseForward(architecture.policy_layout, architecture.activation)
        self.log_std = np.zeros(0, np.float32)

    def load(self, weights: Weights) -> None:
        """See `Actor.load`."""
        self._weights = weights
        self.log_std, rest = np.split(weights.parameters, [self._architecture.head.num_log_std])
        self._forward.load(rest)

    def act(self, obs: NDArray[Any], state: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """See `Actor.act`."""
        return outputs_of(self._architecture, obs, self.forward(self.features(obs))), state

    def features(self, obs: NDArray[Any]) -> Features:
        """Return the normalized features of obs [B, *shape]."""
        inputs = self._architecture.inputs
        if inputs.sparse is not None:
            return expand(inputs.sparse, inputs.layout.octets(obs), self._weights.normalizer)
        numbers = self._weights.normalize(obs if inputs.plain else inputs.numbers(obs))
        return numbers if numbers.dtype == np.float32 and numbers.ndim == 2 else as_features(numbers, inputs.greatest)

    def forward(self, features: Features) -> NDArray[np.float32]:
        """Return the outputs of the last layer for rows [B]."""
        return self._forward(features)


def outputs_of(architecture: Architecture, obs: NDArray[Any], last: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return head outputs [B, W] for obs [B, *shape]: expectations over a support, and masked."""
    support, legal = architecture.support, architecture.inputs.legal(obs)
    out = last if support is None else support.expect(last)
    return out if legal is None else architecture.head.masked(out, legal)


class ActorPolicy:
    """Policy for evaluation; actions are the most likely ones, or sampled if a generator is given."""

    def __init__(
        self, architecture: Architecture, weights: Weights, generator: np.random.Generator | None = None
    ) -> None:
        self.architecture, self._generator = architecture, generator
        self._actor = make_actor(architecture)
        self.load(weights)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.architecture, self.weights, self._generator)

    def load(self, weights: Weights) -> None:
        """Replace the weights."""
        self.weights, self.parameters = weights, weights.parameters
        self._actor.load(weights)

    @property
    def inputs(self) -> Inputs:
        """Input specification."""
        return self.architecture.inputs

    @property
    def has_distribution(self) -> bool:
        """Return True if training samples actions from its outputs."""
        return self.architecture.has_distribution

    @property
    def draws(self) -> bool:
        """Return True if actions are sampled."""
        return self._generator is not None

    def drawing(self, generator: np.random.Generator) -> "ActorPolicy":
        """Return the same policy with actions sampled from a generator, as in training."""
        return ActorPolicy(self.architecture, self.weights, generator)

    def act(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[Any], dict[str, NDArray[Any]], Any]:
        """Map obs [B, ...] to actions [B, ...]; state None starts new episodes."""
        out, state = self.outputs(obs, state)
        head = self.architecture.head
        noise = None if self._generator is None else head.sample_noise(self._generator, (len(obs),))
        return head.to_env(head.sample(out, self._actor.log_std, noise)), {}, state

    def outputs(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[np.float32], Any]:
        """Map obs [B, ...] to head outputs [B, W] and the next state; state None starts new episodes."""
        if state is None:
            state = np.zeros((len(obs), self.architecture.state_width), np.float32)
        return self._actor.act(obs, state)


def as_features(obs: NDArray[Any], greatest: int) -> NDArray[np.float32]:
    """Return observations as flat rows of float32; bytes are scaled to [0, 1]."""
    with np.errstate(over="ignore"):  # learners reject observations that overflow
        flat = obs.reshape(len(obs), -1).astype(np.float32)
    return flat / np.float32(greatest) if obs.dtype == np.uint8 else flat
