"""Encoders in torch: what comes before the dense layers of a network, and those layers."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.flat import Activation
from paddock.algos.networks.inputs import Inputs
from paddock.envs.errors import ConfigError, require, resolve
from paddock.envs.frozen import thaw
from paddock.envs.spaces.codecs import Leaf

Layer = TypeVar("Layer", bound=nn.Module)

SQRT2 = math.sqrt(2.0)
NATURE = 36  # pixels a side from which the network of Mnih et al. 2015 fits


def make_encoder(architecture: Architecture, generator: torch.Generator) -> tuple[nn.Sequential, int]:
    """Build an encoder with its dense layers, and return it with the width of what it gives.

    Weights are orthogonal with gain sqrt(2), biases 0; an encoder of somebody's own draws its own. Layer norm (Ba et
    al. 2016, arXiv:1607.06450) is over all that a layer gives, of convolutions with a scale for each channel.

    Raises:
        ConfigError: an encoder of somebody's own cannot be built, or does not give [B, width].
    """
    first, width = first_layers(architecture, generator)
    rest, width = dense_layers(
        architecture.hidden_sizes, architecture.activation, width, generator, architecture.layer_norm
    )
    return nn.Sequential(*first, *rest), width


def first_layers(architecture: Architecture, generator: torch.Generator) -> tuple[list[nn.Module], int]:
    """Build what comes before the dense layers, and return it with the width of what it gives; see `make_encoder`."""
    inputs = architecture.inputs
    layers: list[nn.Module]
    if architecture.custom_encoder is not None:
        layers = [CustomEncoder(inputs, dict(thaw(architecture.custom_encoder)), generator)]
    elif inputs.raw:
        layers = [MultiInputEncoder(inputs, generator, architecture.layer_norm)]
    elif not inputs.plain:
        layers = [NumberColumns(inputs.width)]
    else:
        greatest, layer_norm = inputs.greatest, architecture.layer_norm
        image = architecture.encoder == "cnn"
        layers = list(convolutions(inputs.shape, greatest, generator, layer_norm)) if image else [FlatRows(greatest)]
    with torch.no_grad():
        return layers, nn.Sequential(*layers)(blank_input(inputs)).shape[1]


def dense_layers(
    hidden_sizes: tuple[int, ...],
    activation: Activation,
    width: int,
    generator: torch.Generator,
    layer_norm: bool = False,
) -> tuple[list[nn.Module], int]:
    """Build the dense layers on what is so wide, and return them with the width of what they give."""
    activate = nn.Tanh if activation == "tanh" else nn.ReLU
    layers: list[nn.Module] = []
    for size in hidden_sizes:
        layers += [linear(width, size, SQRT2, generator), *norm(size, layer_norm), activate()]
        width = size
    return layers, width


def blank_input(inputs: Inputs) -> Tensor:
    """Return a batch of one as `Architecture.prepare` gives it, of zeros."""
    if inputs.plain:
        return torch.zeros((1, *inputs.shape), dtype=torch.uint8 if inputs.dtype == np.uint8 else torch.float32)
    if inputs.as_bytes:
        return torch.zeros((1, inputs.offsets[2]), dtype=torch.uint8)
    return torch.zeros((1, inputs.width + inputs.legal_width))


def legal_in(inputs: Inputs, obs: Tensor) -> Tensor | None:
    """Return which outputs are legal, [B, W], given what `Architecture.prepare` gives; None where nothing says so."""
    if not inputs.legal_width:
        return None
    at = inputs.offsets[1] if inputs.as_bytes else inputs.width
    return obs[:, at : at + inputs.legal_width] != 0


class Unflatten(nn.Module):
    """Rows of bytes to their parts: numbers [B, F], and each raw leaf [B, *shape] in its own dtype, without a copy."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.width = inputs.width
        starts, _, _ = inputs.offsets
        self.leaves = [_Place(leaf, start) for leaf, start in zip(inputs.raw, starts, strict=True)]

    def forward(self, obs: Tensor) -> tuple[Tensor, list[Tensor]]:
        numbers = obs.narrow(1, 0, 4 * self.width).view(torch.float32)
        return numbers, [leaf.view(obs) for leaf in self.leaves]


class _Place:
    """Where a leaf lies in rows of bytes; plain numbers, so that `torch.compile` needs no guess."""

    def __init__(self, leaf: Leaf, start: int) -> None:
        dtype, self.start, self.size, self.shape = np.dtype(leaf.dtype), start, leaf.nbytes, tuple(leaf.shape)
        if dtype.kind == "U":  # letters by their numbers, zeros behind the end
            self.shape, dtype = (*self.shape, dtype.itemsize // 4), np.dtype(np.int32)
        try:
            self.dtype = torch.from_numpy(np.zeros(0, dtype)).dtype
        except TypeError as error:
            raise ConfigError(f"env: torch has no numbers like {dtype}; leave the leaf out by env.without=") from error

    def view(self, obs: Tensor) -> Tensor:
        return obs.narrow(1, self.start, self.size).view(self.dtype).view(len(obs), *self.shape)


class NumberColumns(nn.Module):
    """The numbers of observations, without what is legal."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, obs: Tensor) -> Tensor:
        return obs[:, : self.width]


class MultiInputEncoder(nn.Module):
    """Each image through convolutions of its own, beside the numbers."""

    def __init__(self, inputs: Inputs, generator: torch.Generator, layer_norm: bool) -> None:
        super().__init__()
        self.unflatten = Unflatten(inputs)
        shapes = [leaf.shape if len(leaf.shape) == 3 else (*leaf.shape, 1) for leaf in inputs.raw]
        self.shapes = [tuple(shape) for shape in shapes]
        self.names = inputs.raw_names
        self.layers = [
            nn.Sequential(*convolutions(shape, leaf.greatest, generator, layer_norm))
            for shape, leaf in zip(self.shapes, inputs.raw, strict=True)
        ]
        self.images = nn.ModuleList(self.layers)  # which is what torch finds parameters in

    def forward(self, obs: Tensor) -> Tensor:
        numbers, images = self.unflatten(obs)
        parts = zip(self.layers, images, self.shapes, strict=True)
        return torch.cat([numbers, *[layers(image.view(-1, *shape)) for layers, image, shape in parts]], 1)


class CustomEncoder(nn.Module):
    """An encoder of somebody's own: `_target_(**arguments)`, a module from observations to features [B, width].

    It is called with what the environment's space says: tensors [B, *shape] in dicts and tuples like the space's. Real
    numbers are float32, normalized where observations are; all else is as in the environment, text as the numbers of
    its letters. What varies in size has "length" and "items", as in `Layout.fields`.
    """

    def __init__(self, inputs: Inputs, network: dict[str, Any], generator: torch.Generator) -> None:
        super().__init__()
        target = network.pop("_target_")
        make = resolve(target, "algo.custom_encoder: _target_")
        with torch.random.fork_rng(devices=[]):
            # What its layers draw by themselves comes from the run's seed.
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            try:
                self.encoder = make(**network)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"algo.custom_encoder: {target} refuses {network}: {error}") from error
            state = torch.get_rng_state()
        require(isinstance(self.encoder, nn.Module), f"algo.custom_encoder: {target} is no torch.nn.Module; name one")
        kept = [name for name, _ in self.encoder.named_buffers()]
        what = (
            f"algo.custom_encoder: {target} keeps {', '.join(kept)} beside its parameters, which no policy travels with"
        )
        require(not kept, f"{what}; use layers without such, as LayerNorm for BatchNorm")
        self.plain = inputs.plain
        self.unflatten = None if inputs.plain else Unflatten(inputs)
        self.reals, start = [], 0
        self.paths = [leaf.path for leaf in inputs.raw]
        for leaf in [] if inputs.plain else [leaf for leaf in inputs.layout.leaves if leaf.kind == "real"]:
            self.reals.append((leaf.path, start, leaf.count, tuple(leaf.shape)))
            start += leaf.count
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            drew = self._try(target, inputs) and self._try(target, inputs)  # lazy layers draw in the first call only
        what = (
            f"algo.custom_encoder: {target} draws random numbers in forward(), which the run's seed does not determine"
        )
        require(not drew, f"{what}; set dropout=0, or call eval() of the layer in __init__")

    def forward(self, obs: Tensor) -> Tensor:
        features: Tensor = self.encoder(self.observation(obs))
        return features

    def observation(self, obs: Tensor) -> Any:
        """Return observations as the encoder takes them."""
        if self.unflatten is None:
            return obs
        numbers, raw = self.unflatten(obs)
        tree: dict[Any, Any] = {}
        for path, start, count, shape in self.reals:
            _put(tree, path, numbers.narrow(1, start, count).reshape(len(obs), *shape))
        for path, leaf in zip(self.paths, raw, strict=True):
            _put(tree, path, leaf)
        return _tuples(tree)

    def _try(self, target: str, inputs: Inputs) -> bool:
        """Encode a blank observation; return whether anything was drawn."""
        before = torch.get_rng_state()
        try:
            with torch.no_grad():
                made = self(blank_input(inputs))
        except Exception as error:  # whatever somebody's own code raises
            cause = " ".join(str(error).split())
            raise ConfigError(
                f"algo.custom_encoder: {target} cannot encode an observation of zeros: {cause}"
            ) from error
        shape = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
        fits = isinstance(made, Tensor) and made.ndim == 2 and len(made) == 1 and made.dtype == torch.float32
        require(fits, f"algo.custom_encoder: {target} gives {shape} of one observation; it must be float32 [B, width]")
        return not torch.equal(before, torch.get_rng_state())


def _put(tree: dict[Any, Any], path: tuple[Any, ...], value: Tensor) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def _tuples(tree: Any) -> Any:
    """Make tuples of mappings from 0, 1, ..."""
    if not isinstance(tree, Mapping):
        return tree
    parts = {key: _tuples(part) for key, part in tree.items()}
    whole = all(isinstance(key, int) for key in parts) and sorted(parts) == list(range(len(parts)))
    return tuple(parts[key] for key in range(len(parts))) if whole else parts


class Pixels(nn.Module):
    """Images [B, H, W, C] or [B, C, H, W] to channels first and float; bytes up to the greatest from 0 to 1."""

    def __init__(self, last: bool, large: bool, greatest: int) -> None:
        super().__init__()
        self.last, self.greatest = last, greatest
        # How they lie in memory; a CPU convolves large ones in four fifths of the time where channels lie together.
        self.laid = torch.channels_last if large else torch.contiguous_format

    def forward(self, obs: Tensor) -> Tensor:
        scaled = obs.float() / self.greatest if obs.dtype == torch.uint8 else obs
        image = scaled.permute(0, 3, 1, 2) if self.last else scaled
        return image.contiguous(memory_format=self.laid) if image.device.type == "cpu" else image


class FlatRows(nn.Module):
    """Observations to flat rows of floats; bytes up to the greatest from 0 to 1."""

    def __init__(self, greatest: int) -> None:
        super().__init__()
        self.greatest = greatest

    def forward(self, obs: Tensor) -> Tensor:
        scaled = obs.float() / self.greatest if obs.dtype == torch.uint8 else obs
        return scaled.unsqueeze(-1).flatten(1)  # also of a number alone, [B]


def convolutions(
    shape: tuple[int, ...], greatest: int, generator: torch.Generator, layer_norm: bool
) -> Iterator[nn.Module]:
    """Make the layers for images: those of Mnih et al. 2015, or two of 3 x 3 where the image is small."""
    last = shape[2] < min(shape[:2])  # an image has more pixels a side than channels
    channels, *sides = (shape[2], *shape[:2]) if last else shape
    large = min(sides) >= NATURE
    plan = [(32, 8, 4), (64, 4, 2), (64, 3, 1)] if large else [(32, 3, 1), (64, 3, 1)]
    yield Pixels(last, large, greatest)
    for filters, kernel, stride in plan:
        layer = undrawn(nn.Conv2d(channels, filters, kernel, stride, device="meta"))
        yield _orthogonal(layer, SQRT2, generator)
        yield from norm(filters, layer_norm)
        yield nn.ReLU()
        channels = filters
    yield nn.Flatten()


def norm(features: int, wanted: bool) -> list[nn.Module]:
    """Return what normalizes rows [B, features] or images [B, features, H, W], each by all that it has; or nothing."""
    return [nn.GroupNorm(1, features)] if wanted else []


def undrawn(layer: Layer) -> Layer:
    """Give a layer without memory room for its parameters; `nn.utils.skip_init` would import sympy for it."""
    for name, parameter in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape)))
    return layer


def linear(fan_in: int, fan_out: int, gain: float, generator: torch.Generator) -> nn.Linear:
    layer = undrawn(nn.Linear(fan_in, fan_out, device="meta"))
    _orthogonal(layer, gain, generator)
    return layer


def _orthogonal(layer: nn.Linear | nn.Conv2d, gain: float, generator: torch.Generator) -> nn.Module:
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
