"""Shape of dense policy and value networks, loss coefficients and Adam's bias correction, without torch."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.flat import Activation
from paddock.envs.native.networks import DenseLayout
from paddock.envs.spaces.sparse import SparseRows

Floats = NDArray[np.float32]

REPORTED = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "gradient_norm")
MOMENTUM_DECAY, VARIANCE_DECAY = 0.9, 0.999  # Adam's
POWERS = 64  # block size of consecutive powers


@dataclass(frozen=True)
class DenseShape:
    """Widths of three chains of layers: an optional shared trunk, the policy and the value.

    Flat parameters are in torch's order: log standard deviations, then weights [out, in] and bias of each layer.
    """

    trunk: tuple[int, ...]  # () without trunk
    policy: tuple[int, ...]
    value: tuple[int, ...]  # () without value
    activation: Activation
    masked: bool  # observations end with an action mask
    choices: tuple[int, ...]  # number of discrete actions of each component; 0 for a Gaussian
    leaf: tuple[int, ...]  # leaf of the action space of each component

    @classmethod
    def of(cls, architecture: Architecture) -> "DenseShape":
        """Return the shape of a dense architecture."""
        *trunk, width = architecture.policy_layout.sizes
        apart = trunk[-1:] if architecture.shared else trunk
        choices: list[int] = []
        leaf: list[int] = []
        for k, head in enumerate(architecture.head.leaves):
            choices += head.dense_components
            leaf += [k] * len(head.dense_components)
        return cls(
            tuple(trunk) if architecture.shared else (),
            (*apart, width),
            (*apart, 1),
            architecture.activation,
            architecture.inputs.legal_width > 0,
            tuple(choices),
            tuple(leaf),
        )

    @property
    def chains(self) -> tuple[tuple[int, ...], ...]:
        """Trunk, policy and value."""
        return self.trunk, self.policy, self.value

    @functools.cached_property
    def num_parameters(self) -> int:
        """Number of parameters P."""
        return self.log_stds + sum(DenseLayout(chain).num_parameters for chain in self.chains)

    @property
    def numbers(self) -> int:
        """Number of features of an observation."""
        return (self.trunk or self.policy)[0]

    @property
    def outputs(self) -> int:
        """Number of policy outputs W."""
        return self.policy[-1]

    @property
    def width(self) -> int:
        """Width of an observation row, including the action mask."""
        return self.numbers + (self.outputs if self.masked else 0)

    def row_of(self, sparse: SparseRows | None) -> int:
        """Return the width of an observation row without features that are stored sparsely."""
        return self.width if sparse is None else self.width - self.numbers

    @property
    def log_stds(self) -> int:
        """Number of log standard deviations."""
        return self.choices.count(0)


@dataclass(frozen=True)
class LossSettings:
    """Coefficients of the losses of PPO and A2C."""

    clip_coef: float  # epsilon, of the probability ratio; infinite: no clipping
    value_clip_coef: float | None  # of the change of a value; None: no clipping
    value_coef: float  # c1, of the value loss
    entropy_coef: float  # c2, of the entropy
    normalize_advantages: bool  # in each minibatch


def adam_scales(rate: float, before: int, count: int) -> tuple[Floats, Floats]:
    """Return Adam's bias-corrected step sizes [M] and factors of the root variances [M] after `before` steps.

    Each depends on its step only. Powers are products, since the last bits of pow differ between libraries.
    """
    first, second = _powers(MOMENTUM_DECAY, before, count), _powers(VARIANCE_DECAY, before, count)
    return (rate / (1 - first)).astype(np.float32), (1 / np.sqrt(1 - second)).astype(np.float32)


def _powers(base: float, before: int, count: int) -> NDArray[np.float64]:
    first, last = before // POWERS, -(-(before + count) // POWERS)
    blocks = [_block(base, number) for number in range(first, last)]
    return np.concatenate([np.zeros(0), *blocks])[before - first * POWERS :][:count]


@functools.lru_cache(maxsize=32)
def _block(base: float, number: int) -> NDArray[np.float64]:
    """Return the POWERS powers that follow base^(number * POWERS)."""
    factors = np.full(POWERS, base)
    factors[0] *= _power(base, number * POWERS)
    return np.multiply.accumulate(factors)


def _power(base: float, exponent: int) -> float:
    result: Any = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return float(result)
