"""Layers with orthogonal weights and optional layer norm."""

import math
from typing import TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)

SQRT2 = math.sqrt(2.0)


def norm(features: int, wanted: bool) -> list[nn.Module]:
    """Return a layer norm for rows [B, features] or images [B, features, H, W]; an empty list if not wanted."""
    return [nn.GroupNorm(1, features)] if wanted else []


def allocate(layer: Layer) -> Layer:
    """Allocate the parameters of a layer on the meta device; `nn.utils.skip_init` would import sympy."""
    for name, parameter in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape)))
    return layer


def linear(fan_in: int, fan_out: int, gain: float, generator: torch.Generator) -> nn.Linear:
    """Return a linear layer with orthogonal weights and zero biases."""
    layer = allocate(nn.Linear(fan_in, fan_out, device="meta"))
    orthogonal(layer, gain, generator)
    return layer


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float, generator: torch.Generator) -> nn.Module:
    """Initialize a layer with orthogonal weights and zero biases; return it."""
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
