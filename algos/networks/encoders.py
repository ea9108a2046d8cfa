"""Encoders in torch: custom encoders, convolutions and dense layers."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.convolutions import convolutions
from paddock.algos.networks.flat import Activation
from paddock.algos.networks.inputs import Inputs
from paddock.algos.networks.layers import SQRT2, linear, norm
from paddock.envs.errors import ConfigError, require, resolve
from paddock.envs.frozen import thaw
from paddock.envs.spaces.tensors import LeafView, tree_of


def make_encoder(architecture: Architecture, generator: torch.Generator) -> tuple[nn.Sequential, int]:
    """Build an encoder with its dense layers; return it and its output width.

    Weights are orthogonal with gain sqrt(2), biases 0; custom encoders initialize themselves. Layer norm (Ba et al.
    2016, arXiv:1607.06450) covers all outputs of a layer; convolutions have one scale per channel.

    Raises:
        ConfigError: a custom encoder cannot be built, or does not return [B, width].
    """
    first, width = first_layers(architecture, generator)
    rest, width = dense_layers(
        architecture.hidden_sizes, architecture.activation, width, generator, architecture.layer_norm
    )
    return nn.Sequential(*first, *rest), width


def first_layers(architecture: Architecture, generator: torch.Generator) -> tuple[list[nn.Module], int]:
    """Build the layers before the dense layers; return them and their output width."""
    inputs = architecture.inputs
    layers: list[nn.Module]
    if architecture.custom_encoder is not None:
        layers = [CustomEncoder(inputs, dict(thaw(architecture.custom_encoder)), generator)]
    elif inputs.raw:
        layers = [MultiInputEncoder(inputs, generator, architecture.layer_norm, architecture.encoder == "impala")]
    elif not inputs.plain:
        layers = [NumberColumns(inputs.width)]
    else:
        if architecture.encoder == "mlp":
            layers = [FlatRows(inputs.greatest)]
        else:
            settings = generator, architecture.layer_norm, architecture.encoder == "impala"
            layers = list(convolutions(inputs.shape, inputs.greatest, *settings))
    with torch.no_grad():
        return layers, nn.Sequential(*layers)(blank_input(inputs)).shape[1]


def dense_layers(
    hidden_sizes: tuple[int, ...],
    activation: Activation,
    width: int,
    generator: torch.Generator,
    layer_norm: bool = False,
) -> tuple[list[nn.Module], int]:
    """Build dense layers on an input of the given width; return them and their output width."""
    activate = nn.Tanh if activation == "tanh" else nn.ReLU
    layers: list[nn.Module] = []
    for size in hidden_sizes:
        layers += [linear(width, size, SQRT2, generator), *norm(size, layer_norm), activate()]
        width = size
    return layers, width


def blank_input(inputs: Inputs) -> Tensor:
    """Return a batch of one zero observation, as `Architecture.prepare` returns it."""
    if inputs.plain:
        return torch.zeros((1, *inputs.shape), dtype=torch.uint8 if inputs.dtype == np.uint8 else torch.float32)
    if inputs.as_bytes:
        return torch.zeros((1, inputs.offsets[2]), dtype=torch.uint8)
    return torch.zeros((1, inputs.width + inputs.legal_width))


def legal_in(inputs: Inputs, obs: Tensor) -> Tensor | None:
    """Return the action mask [B, W] of observations from `Architecture.prepare`; None if there is no mask."""
    if not inputs.legal_width:
        return None
    at = inputs.offsets[1] if inputs.as_bytes else inputs.width
    return obs[:, at : at + inputs.legal_width] != 0


class Unflatten(nn.Module):
    """Views of rows of bytes as features [B, F] and raw leaves [B, *shape] in their own dtypes."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.width = inputs.width
        self.leaves = [LeafView(leaf, start) for leaf, start in zip(inputs.raw, inputs.offsets[0], strict=True)]

    def forward(self, obs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return views of the features and of each raw leaf."""
        numbers = obs.narrow(1, 0, 4 * self.width).view(torch.float32)
        return numbers, [leaf.view(obs) for leaf in self.leaves]


class NumberColumns(nn.Module):
    """Feature columns of observations, without the action mask."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, obs: Tensor) -> Tensor:
        """Return the feature columns."""
        return obs[:, : self.width]


class MultiInputEncoder(nn.Module):
    """Convolutions for each image, concatenated with the features."""

    def __init__(self, inputs: Inputs, generator: torch.Generator, layer_norm: bool, residual: bool) -> None:
        super().__init__()
        self.unflatten = Unflatten(inputs)
        shapes = [leaf.shape if len(leaf.shape) == 3 else (*leaf.shape, 1) for leaf in inputs.raw]
        self.shapes = [tuple(shape) for shape in shapes]
        self.names, self.has_numbers = inputs.raw_names, inputs.width > 0
        self.layers = [
            nn.Sequential(*convolutions(shape, leaf.greatest, generator, layer_norm, residual))
            for shape, leaf in zip(self.shapes, inputs.raw, strict=True)
        ]
        self.images = nn.ModuleList(self.layers)  # registers the parameters

    def forward(self, obs: Tensor) -> Tensor:
        """Return the features and the encoded images, concatenated."""
        numbers, images = self.unflatten(obs)
        each = zip(self.layers, images, self.shapes, strict=True)
        return torch.cat([numbers, *[layers(image.view(-1, *shape)) for layers, image, shape in each]], 1)


class CustomEncoder(nn.Module):
    """Custom encoder `_target_(**arguments)`, a module that maps observations to features [B, width].

    Its input is structured like the observation space: tensors [B, *shape] in dicts and tuples. Real numbers are
    float32, normalized if observations are; other leaves keep their dtype, and text is code points. Leaves of variable
    size have "length" and "items", as in `Layout.fields`.
    """

    def __init__(self, inputs: Inputs, network: dict[str, Any], generator: torch.Generator) -> None:
        super().__init__()
        target = network.pop("_target_")
        make = resolve(target, "algo.custom_encoder: _target_")
        with torch.random.fork_rng(devices=[]):
            # Seed the layers' default initialization with the run's seed.
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            try:
                self.encoder = make(**network)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"algo.custom_encoder: {target} rejects {network}: {error}") from error
            state = torch.get_rng_state()
        require(isinstance(self.encoder, nn.Module), f"algo.custom_encoder: {target} must be a torch.nn.Module")
        buffers = ", ".join(name for name, _ in self.encoder.named_buffers())
        problem = f"algo.custom_encoder: {target} has buffers ({buffers}), which policies do not contain"
        require(not buffers, f"{problem}; use layers without buffers, such as LayerNorm instead of BatchNorm")
        self.plain = inputs.plain
        self.unflatten = None if inputs.plain else Unflatten(inputs)
        self.reals, start = [], 0
        self.paths = [leaf.path for leaf in inputs.raw]
        for leaf in [] if inputs.plain else [leaf for leaf in inputs.layout.leaves if leaf.kind == "real"]:
            self.reals.append((leaf.path, start, leaf.count, tuple(leaf.shape)))
            start += leaf.count
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            random = self._try(target, inputs) and self._try(
                target, inputs
            )  # lazy layers sample in the first call only
        problem = (
            f"algo.custom_encoder: {target} uses random numbers in forward(), which the run's seed does not control"
        )
        require(not random, f"{problem}; set dropout=0, or call eval() of the layer in __init__")

    def forward(self, obs: Tensor) -> Tensor:
        """Encode observations."""
        features: Tensor = self.encoder(self.observation(obs))
        return features

    def observation(self, obs: Tensor) -> Any:
        """Return observations structured like the observation space."""
        if self.unflatten is None:
            return obs
        numbers, raw = self.unflatten(obs)
        leaves = [
            (path, numbers.narrow(1, start, count).reshape(len(obs), *shape))
            for path, start, count, shape in self.reals
        ]
        return tree_of([*leaves, *zip(self.paths, raw, strict=True)])

    def _try(self, target: str, inputs: Inputs) -> bool:
        """Encode an observation of zeros; return whether that used random numbers."""
        before = torch.get_rng_state()
        try:
            with torch.no_grad():
                made = self(blank_input(inputs))
        except Exception as error:  # custom code may raise anything
            cause = " ".join(str(error).split())
            raise ConfigError(f"algo.custom_encoder: {target} fails on an observation of zeros: {cause}") from error
        shape = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
        fits = isinstance(made, Tensor) and made.ndim == 2 and len(made) == 1 and made.dtype == torch.float32
        require(
            fits, f"algo.custom_encoder: {target} returns {shape} for one observation; it must be float32 [B, width]"
        )
        return not torch.equal(before, torch.get_rng_state())


class FlatRows(nn.Module):
    """Observations as flat rows of floats; bytes are scaled to [0, 1]."""

    def __init__(self, greatest: int) -> None:
        super().__init__()
        self.greatest = greatest

    def forward(self, obs: Tensor) -> Tensor:
        """Return rows [B, F] of floats."""
        scaled = obs.float() / self.greatest if obs.dtype == torch.uint8 else obs
        return scaled.unsqueeze(-1).flatten(1)  # also for scalars, [B]
