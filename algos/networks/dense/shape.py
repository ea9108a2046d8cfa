"""What a dense policy and value network is made of, where it is computed without torch, and what it learns from."""

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
POWERS = 64  # of them that are multiplied one after another, from a whole multiple on


@dataclass(frozen=True)
class DenseShape:
    """Three chains of layers: a trunk, which may be empty, then the policy's and the value's on what it gives.

    Flat parameters are in torch's order: log standard deviations, then of each layer its weights [out, in] and bias.
    """

    trunk: tuple[int, ...]  # widths from input to output; () for none
    policy: tuple[int, ...]
    value: tuple[int, ...]  # () for none, where outputs alone are learned
    activation: Activation
    masked: bool  # behind the numbers of an observation lies which outputs are legal
    choices: tuple[int, ...]  # of each component of an action; 0 for a number drawn from a Gaussian
    leaf: tuple[int, ...]  # which leaf of the action space each component belongs to

    @classmethod
    def of(cls, architecture: Architecture) -> "DenseShape":
        """Return that of a dense architecture."""
        *trunk, width = architecture.policy_layout.sizes
        apart = trunk[-1:] if architecture.shared else trunk
        choices: list[int] = []
        leaf: list[int] = []
        for k, head in enumerate(architecture.head.leaves):
            own = head.dense_components
            choices += own
            leaf += [k] * len(own)
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
        """Widths of each chain."""
        return self.trunk, self.policy, self.value

    @functools.cached_property
    def num_parameters(self) -> int:
        """P, the length of the flat vector."""
        return self.log_stds + sum(DenseLayout(chain).num_parameters for chain in self.chains)

    @property
    def numbers(self) -> int:
        """Numbers of an observation."""
        return (self.trunk or self.policy)[0]

    @property
    def outputs(self) -> int:
        """W."""
        return self.policy[-1]

    @property
    def width(self) -> int:
        """Of a row of observations: its numbers and, where there is a mask, what is legal."""
        return self.numbers + (self.outputs if self.masked else 0)

    def row_of(self, sparse: SparseRows | None) -> int:
        """Return the width of a row of observations whose numbers may lie apart."""
        return self.width if sparse is None else self.width - self.numbers

    @property
    def log_stds(self) -> int:
        """Log standard deviations."""
        return self.choices.count(0)


@dataclass(frozen=True)
class LossSettings:
    """Coefficients of the losses of PPO and A2C, which take what they need of them."""

    clip_coef: float  # epsilon, how far the probability ratio may move from 1; infinite: freely
    value_clip_coef: float | None  # how far a value may move from the one before the update; None: freely
    value_coef: float  # c1, of the value loss
    entropy_coef: float  # c2, of the entropy
    normalize_advantages: bool  # to mean 0 and deviation 1 in each minibatch


def adam_scales(rate: float, before: int, count: int) -> tuple[Floats, Floats]:
    """How long the next steps of Adam are [M], and what roots of variances are multiplied by there [M].

    Each depends on its number alone, however many are asked for. Powers are products, since a library's last bits may
    differ.

    Args:
        before: steps that were taken.
        count: M.
    """
    first, second = _powers(MOMENTUM_DECAY, before, count), _powers(VARIANCE_DECAY, before, count)
    return (rate / (1 - first)).astype(np.float32), (1 / np.sqrt(1 - second)).astype(np.float32)


def _powers(base: float, before: int, count: int) -> NDArray[np.float64]:
    """Return base^(before + 1) .. base^(before + count)."""
    first, last = before // POWERS, -(-(before + count) // POWERS)
    blocks = [_block(base, number) for number in range(first, last)]
    return np.concatenate([np.zeros(0), *blocks])[before - first * POWERS :][:count]


@functools.lru_cache(maxsize=32)
def _block(base: float, number: int) -> NDArray[np.float64]:
    """Return POWERS powers behind base^(number * POWERS)."""
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
