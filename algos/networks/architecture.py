"""What a learned policy is made of: the architecture of its network, and its weights as they travel."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.flat import Activation, check_hidden_sizes
from paddock.algos.networks.heads import Head
from paddock.algos.networks.inputs import MIN_IMAGE, Inputs, images, seen
from paddock.algos.networks.support import Support
from paddock.envs.errors import require
from paddock.envs.frozen import Frozen, freeze
from paddock.envs.native.networks import DenseLayout, Normalizer
from paddock.envs.spaces.layout import Layout

Encoder = Literal["mlp", "cnn", "own"]


def _nothing() -> NDArray[np.float32]:
    return np.zeros(0, np.float32)


@dataclass(frozen=True)
class Architecture:
    """A policy and a value network: encode, an optional LSTM as wide as what was encoded, decode."""

    inputs: Inputs
    encoder: Encoder
    custom_encoder: Frozen | None  # of an encoder of somebody's own, its `_target_` and its arguments
    hidden_sizes: tuple[int, ...]  # widths; after the encoder, where there is one
    activation: Activation
    shared: bool  # policy and value decode the same features
    lstm: bool
    initial_log_std: float  # of a Gaussian head
    support: Support | None = None  # of returns, whose logits the network gives for each choice; None: it gives scores
    layer_norm: bool = False  # hidden layers and convolutions are normalized before they are activated
    values: bool = False  # outputs are action values

    @classmethod
    def for_spaces(
        cls,
        observations: Layout,
        head: Head,
        *,
        encoder: Literal["auto", "mlp", "cnn"],
        custom_encoder: Mapping[str, Any] | None = None,
        hidden_sizes: tuple[int, ...],
        activation: Activation,
        shared: bool,
        lstm: bool,
        initial_log_std: float,
        support: Support | None = None,
        layer_norm: bool = False,
        values: bool = False,
    ) -> "Architecture":
        """The architecture for an environment; `auto` takes convolutions for images of bytes.

        Args:
            custom_encoder: an encoder of somebody's own, by `_target_`, with its arguments; see `encoders.CustomEncoder`.

        Raises:
            ConfigError: a width is not positive or too large, there is no image to convolve, or no choice to mask.
        """
        require(
            bool(hidden_sizes) or not lstm,
            "lstm: an LSTM needs features to remember; give hidden_sizes= a width, such as [64]",
        )
        check_hidden_sizes(hidden_sizes, [64, 64], (1 if shared else 2) * hidden_sizes[-1] if lstm else 0)
        rest = (hidden_sizes, activation, shared, lstm, initial_log_std, support, layer_norm, values)
        if custom_encoder is not None:
            require(
                "_target_" in custom_encoder,
                f"custom_encoder={dict(custom_encoder)} lacks _target_, the dotted path of the encoder",
            )
            require(encoder == "auto", f"encoder={encoder} and custom_encoder= are given; leave encoder= out, at auto")
            raw = () if observations.plain else tuple(leaf for leaf in seen(observations) if leaf.kind != "real")
            return cls(Inputs(observations, head, raw, real_only=True), "own", freeze(dict(custom_encoder)), *rest)
        pictures = images(observations)
        if observations.plain:
            shape = tuple(observations.space.shape or ())
            image = len(shape) == 3 and sorted(shape)[1] >= MIN_IMAGE
            require(
                encoder != "cnn" or image, f"encoder=cnn needs images; the observations have shape {shape}; use mlp"
            )
        else:
            image = bool(pictures)
            require(encoder != "cnn" or image, f"encoder=cnn needs images, which {observations.space} has not; use mlp")
        convolve = encoder == "cnn" or (encoder == "auto" and bool(pictures) and image)
        raw = pictures if convolve and not observations.plain else ()
        return cls(Inputs(observations, head, raw), "cnn" if convolve else "mlp", None, *rest)

    def describe(self) -> str:
        """Return what it is made of, for `dry_run=true`."""
        sizes, memory = "-".join(map(str, self.hidden_sizes)), " LSTM" if self.lstm else ""
        return f"{self.encoder} {sizes} {self.activation}{memory}, {self.head.describe()} actions"

    @property
    def head(self) -> Head:
        """What takes the outputs."""
        return self.inputs.head

    @property
    def is_dense(self) -> bool:
        """Whether it is dense layers alone, which do without torch."""
        return self.encoder == "mlp" and not self.lstm and not self.layer_norm

    @property
    def has_distribution(self) -> bool:
        """Whether training draws actions from the outputs: not where it takes the best one, or adds noise to it."""
        return not self.values and all(leaf.is_drawn for leaf in self.head.leaves)

    @property
    def outputs(self) -> int:
        """Of the network that acts: those the head takes, or as many for each as the support has atoms."""
        return self.head.width * (1 if self.support is None else self.support.atoms)

    @property
    def policy_layout(self) -> DenseLayout:
        """Of a dense network: where the policy's layers lie, behind the log standard deviations."""
        return DenseLayout((self.inputs.width, *self.hidden_sizes, self.outputs), out_first=True)

    @property
    def divisors(self) -> list[int]:
        """By what bytes of observations are divided; an encoder of somebody's own has them as they are."""
        return [] if self.custom_encoder is not None else self.inputs.divisors

    @property
    def features(self) -> int:
        """F, the width of what an LSTM takes and gives."""
        return self.hidden_sizes[-1] if self.shared else 2 * self.hidden_sizes[-1]

    @property
    def state_width(self) -> int:
        """S, numbers that an LSTM remembers: its output and its cell."""
        return 2 * self.features if self.lstm else 0

    def prepare(self, rows: NDArray[Any], weights: "Weights") -> NDArray[Any]:
        """Map rows of observations [B, ...] to what goes into the network, normalized as the weights say."""
        inputs = self.inputs
        if inputs.plain:
            return weights.normalize(rows).reshape(len(rows), *inputs.shape)
        return inputs.join(rows, weights.normalize(inputs.numbers(rows)))


@dataclass(frozen=True)
class Weights:
    """One version of a policy, as it travels to actors."""

    version: int  # updates that led to it
    parameters: NDArray[np.float32]  # [P]
    # Of observations [O], or [0] where they are not normalized.
    mean: NDArray[np.float32] = field(default_factory=_nothing)
    std: NDArray[np.float32] = field(default_factory=_nothing)
    clip: float = 0.0  # deviations
    steps: int | None = None  # actions before it, where they are not as many in each rollout

    def state_dict(self) -> dict[str, Any]:
        """Return what it is made of again, without what is not known."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def normalizer(self) -> Normalizer | None:
        """What normalizes observations; None: nothing does."""
        return Normalizer(self.mean, self.std, self.clip) if self.mean.size else None

    def normalize(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Observations [B, *shape] to mean 0 and deviation 1, flattened; as they are where nothing is normalized."""
        normalizer = self.normalizer
        return obs if normalizer is None else normalizer(obs.reshape(len(obs), -1))
