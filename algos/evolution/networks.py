"""Networks of evolved policies: an MLP, or an architecture with LSTM or convolutions and without value function."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, episode_seed, keyed_generator
from paddock.algos.evolution.strategies.protocol import Floats
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Architecture, EncoderChoice, Weights
from paddock.algos.networks.flat import MLP, Activation, FlatPolicy, HiddenSizes, as_sizes
from paddock.algos.networks.heads import make_head
from paddock.algos.networks.heads.deterministic import Bounded, Tanh
from paddock.algos.networks.inputs import masked_paths, spaces_of
from paddock.envs.native.networks import Network, Normalizer
from paddock.envs.spec import EnvSpec

EvolvedNetwork = MLP | Architecture


class NetworkSettings(Protocol):
    """Settings of an evolved network; conf/algo/es.yaml explains each."""

    env: EnvSpec
    encoder: EncoderChoice
    custom_encoder: Mapping[str, Any] | None
    hidden_sizes: HiddenSizes
    activation: Activation
    lstm: bool


def make_network(settings: NetworkSettings) -> EvolvedNetwork:
    """Return the network for an environment; raise ConfigError if the settings do not fit it."""
    observations, action = spaces_of(settings.env)
    head = make_head(action, stochastic=False, masked=masked_paths(observations))
    architecture = Architecture.for_spaces(
        observations,
        Tanh(head.shape, head.low, head.high, head.dtype, ()) if isinstance(head, Bounded) else head,
        encoder=settings.encoder,
        custom_encoder=settings.custom_encoder,
        hidden_sizes=settings.hidden_sizes,
        activation=settings.activation,
        shared=True,
        lstm=settings.lstm,
        initial_log_std=0.0,
        actor_only=True,
    )
    if not architecture.is_dense:
        return architecture
    return MLP.for_spaces(observations, action, as_sizes(settings.hidden_sizes), settings.activation)


def initial_parameters(network: EvolvedNetwork, std: float, seed: int) -> Floats:
    """Return the initial mean [P]: normal for an MLP, orthogonal weights and zero biases for others; keyed by `seed`."""
    if isinstance(network, MLP):
        return std * keyed_generator(seed, Stream.INITIAL).standard_normal(network.num_parameters)
    # Import torch only if needed: it takes a second.
    from torch.nn.utils import parameters_to_vector

    from paddock.algos.networks.actor_critic import acting_network

    initial = acting_network(network, episode_seed(seed, Stream.INITIAL, 0, 0))
    return parameters_to_vector(initial.parameters()).detach().numpy().astype(np.float64)


def count_parameters(network: EvolvedNetwork) -> int:
    """Return the number of parameters P."""
    if isinstance(network, MLP):
        return network.num_parameters
    from paddock.algos.networks.actor_critic import acting_network  # imports torch

    return sum(each.numel() for each in acting_network(network).parameters())


def native_network(network: EvolvedNetwork) -> Network | None:
    """Return the native form of a network; None if there is none."""
    return network.network if isinstance(network, MLP) else None


def make_policy(
    network: EvolvedNetwork, parameters: NDArray[np.float32], normalizer: Normalizer | None
) -> FlatPolicy | ActorPolicy:
    """Return the policy of a network with parameters [P]."""
    if isinstance(network, MLP):
        return FlatPolicy(network, parameters, normalizer)
    return ActorPolicy(network, as_weights(parameters, normalizer))


def as_weights(parameters: NDArray[np.float32], normalizer: Normalizer | None) -> Weights:
    """Return parameters [P] and the normalization of observations as weights for actors."""
    if normalizer is None:
        return Weights(0, parameters)
    return Weights(0, parameters, normalizer.mean, normalizer.std, normalizer.clip)
