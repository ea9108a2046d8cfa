"""Convolutions for images."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from paddock.algos.networks.layers import SQRT2, allocate, norm, orthogonal

NATURE = 36  # minimum side length in pixels for the network of Mnih et al. 2015
RESIDUAL_FILTERS = (16, 32, 32)


def convolutions(
    shape: tuple[int, ...], greatest: int, generator: torch.Generator, layer_norm: bool, residual: bool
) -> Iterator[nn.Module]:
    """Yield convolutions for images: those of Mnih et al. 2015, or two of 3 x 3 for small images.

    With `residual`, those of IMPALA's large network (Espeholt et al. 2018, arXiv:1802.01561, figure 3).
    """
    last = shape[2] < min(shape[:2])  # an image has more pixels a side than channels
    channels, *sides = (shape[2], *shape[:2]) if last else shape
    large = min(sides) >= NATURE
    yield Pixels(last, large, greatest)
    if residual:
        for filters in RESIDUAL_FILTERS:
            yield _convolution(channels, filters, 3, 1, generator)
            yield nn.MaxPool2d(3, stride=2, padding=1)
            yield Residual(filters, generator, layer_norm)
            yield Residual(filters, generator, layer_norm)
            channels = filters
        yield nn.ReLU()
    else:
        for filters, kernel, stride in [(32, 8, 4), (64, 4, 2), (64, 3, 1)] if large else [(32, 3, 1), (64, 3, 1)]:
            yield _convolution(channels, filters, kernel, stride, generator, padding=0)
            yield from norm(filters, layer_norm)
            yield nn.ReLU()
            channels = filters
    yield nn.Flatten()


class Residual(nn.Module):
    """Two convolutions whose output is added to their input."""

    def __init__(self, channels: int, generator: torch.Generator, layer_norm: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.ReLU(), _convolution(channels, channels, 3, 1, generator), *norm(channels, layer_norm)]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """Return images of the same shape."""
        added: Tensor = images + self.layers(images)
        return added


class Pixels(nn.Module):
    """Images [B, H, W, C] or [B, C, H, W] as float, channels first; bytes are scaled to [0, 1]."""

    def __init__(self, last: bool, large: bool, greatest: int) -> None:
        super().__init__()
        self.last, self.greatest = last, greatest
        # On a CPU channels_last saves a fifth of the time of large convolutions.
        self.laid = torch.channels_last if large else torch.contiguous_format

    def forward(self, obs: Tensor) -> Tensor:
        """Return images [B, C, H, W] of floats."""
        scaled = obs if obs.is_floating_point() else obs.float() / self.greatest
        image = scaled.permute(0, 3, 1, 2) if self.last else scaled
        return image.contiguous(memory_format=self.laid) if image.device.type == "cpu" else image


def _convolution(
    channels: int, filters: int, kernel: int, stride: int, generator: torch.Generator, padding: int = 1
) -> nn.Module:
    layer = allocate(nn.Conv2d(channels, filters, kernel, stride, padding, device="meta"))
    return orthogonal(layer, SQRT2, generator)
