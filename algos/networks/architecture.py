"""Network architecture of a policy, and versions of its weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.flat import Activation, HiddenSizes, as_sizes, check_hidden_sizes
from paddock.algos.networks.heads import Head
from paddock.algos.networks.inputs import MIN_IMAGE, Inputs, images, visible_leaves
from paddock.algos.networks.support import Support
from paddock.envs.errors import require
from paddock.envs.frozen import Frozen, freeze
from paddock.envs.native.networks import DenseLayout, Normalizer
from paddock.envs.spaces.layout import Layout

Encoder = Literal["mlp", "cnn", "impala", "custom"]
EncoderChoice = Literal["auto", "mlp", "cnn", "impala"]
Layers = tuple[tuple[int, ...], Activation]  # sizes of the hidden layers, and their activation
CONVOLUTIONAL = ("cnn", "impala")
AFTER_CONVOLUTIONS: Layers = ((512,), "relu")  # Mnih et al. 2015


def _empty() -> NDArray[np.float32]:
    return np.zeros(0, np.float32)


@dataclass(frozen=True)
class Architecture:
    """Architecture of a policy and value network: encoder, optional LSTM of the same width, output layers."""

    inputs: Inputs
    encoder: Encoder
    custom_encoder: Frozen | None  # `_target_` and arguments
    hidden_sizes: tuple[int, ...]  # of the dense layers after the encoder
    activation: Activation
    shared: bool  # policy and value share the encoder
    lstm: bool
    initial_log_std: float  # of a Gaussian head
    support: Support | None = None  # of return distributions (C51), one per action; None: scalar outputs
    layer_norm: bool = False  # before each activation
    values: bool = False  # outputs are action values
    actor_only: bool = False  # no value function, and always the most likely action

    @classmethod
    def for_spaces(
        cls,
        observations: Layout,
        head: Head,
        *,
        encoder: EncoderChoice,
        custom_encoder: Mapping[str, Any] | None = None,
        hidden_sizes: HiddenSizes | None,
        activation: Activation | None,
        default_layers: Layers = ((64, 64), "tanh"),
        shared: bool,
        lstm: bool,
        initial_log_std: float,
        support: Support | None = None,
        layer_norm: bool = False,
        values: bool = False,
        actor_only: bool = False,
    ) -> "Architecture":
        """Return the architecture for an environment; `auto` uses convolutions for uint8 images."""

        def layers(default: Layers) -> tuple[Any, ...]:
            sizes = default[0] if hidden_sizes is None else as_sizes(hidden_sizes)
            require(bool(sizes) or not lstm, "lstm=true needs a hidden layer; set hidden_sizes=, such as [64]")
            check_hidden_sizes(sizes, [64, 64], (1 if shared else 2) * sizes[-1] if lstm else 0)
            chosen = sizes, activation or default[1], shared, lstm
            return *chosen, initial_log_std, support, layer_norm, values, actor_only

        if custom_encoder is not None:
            lacks = f"custom_encoder={dict(custom_encoder)} has no _target_, the dotted path of the encoder"
            require("_target_" in custom_encoder, lacks)
            require(encoder == "auto", f"encoder={encoder} conflicts with custom_encoder=; use encoder=auto")
            raw = (
                ()
                if observations.plain
                else tuple(leaf for leaf in visible_leaves(observations) if leaf.kind != "real")
            )
            inputs = Inputs(observations, head, raw, real_only=True)
            return cls(inputs, "custom", freeze(dict(custom_encoder)), *layers(default_layers))
        pictures = images(observations, bits=encoder in CONVOLUTIONAL)
        if observations.plain:
            shape = tuple(observations.space.shape or ())
            image = len(shape) == 3 and sorted(shape)[1] >= MIN_IMAGE
            found = f"the observations have shape {shape}"
        else:
            image, found = bool(pictures), f"{observations.space} has none"
        asked = encoder in CONVOLUTIONAL
        require(not asked or image, f"encoder={encoder} needs images, but {found}; use encoder=mlp")
        convolve = asked or (encoder == "auto" and bool(pictures) and image)
        raw = pictures if convolve and not observations.plain else ()
        if convolve:
            chosen: Encoder = "impala" if encoder == "impala" else "cnn"
            return cls(Inputs(observations, head, raw), chosen, None, *layers(AFTER_CONVOLUTIONS))
        return cls(Inputs(observations, head, raw), "mlp", None, *layers(default_layers))

    def describe(self) -> str:
        """Return a summary for `dry_run=true`."""
        sizes, memory = "-".join(map(str, self.hidden_sizes)), " LSTM" if self.lstm else ""
        return f"{self.encoder} {sizes} {self.activation}{memory}, {self.head.describe()} actions"

    @property
    def head(self) -> Head:
        """Action head."""
        return self.inputs.head

    @property
    def is_dense(self) -> bool:
        """Return True for MLPs, which do not need torch."""
        return self.encoder == "mlp" and not self.lstm and not self.layer_norm

    @property
    def has_distribution(self) -> bool:
        """Return True if training samples actions; False for greedy actions with or without added noise."""
        return not (self.values or self.actor_only) and all(leaf.is_stochastic for leaf in self.head.leaves)

    @property
    def outputs(self) -> int:
        """Number of policy outputs: the head's width, times the number of atoms of a support."""
        return self.head.width * (1 if self.support is None else self.support.atoms)

    @property
    def policy_layout(self) -> DenseLayout:
        """Layout of a dense policy's parameters after the log standard deviations."""
        return DenseLayout((self.inputs.width, *self.hidden_sizes, self.outputs), out_first=True)

    @property
    def divisors(self) -> list[int]:
        """Divisors of uint8 observations; none for custom encoders, which receive raw bytes."""
        return [] if self.custom_encoder is not None else self.inputs.divisors

    @property
    def features(self) -> int:
        """Width F of an LSTM's input and output."""
        return self.hidden_sizes[-1] if self.shared else 2 * self.hidden_sizes[-1]

    @property
    def state_width(self) -> int:
        """Size S of the LSTM state (hidden and cell); 0 without LSTM."""
        return 2 * self.features if self.lstm else 0

    def prepare(self, rows: NDArray[Any], weights: "Weights") -> NDArray[Any]:
        """Map rows of observations [B, ...] to the network's input, normalized with the statistics in `weights`."""
        inputs = self.inputs
        if inputs.plain:
            return weights.normalize(rows).reshape(len(rows), *inputs.shape)
        return inputs.join(rows, weights.normalize(inputs.numbers(rows)))


@dataclass(frozen=True)
class Weights:
    """One version of a policy's weights, as sent to actors."""

    version: int  # number of updates
    parameters: NDArray[np.float32]  # [P]
    # Observation statistics [O], or [0] without normalization.
    mean: NDArray[np.float32] = field(default_factory=_empty)
    std: NDArray[np.float32] = field(default_factory=_empty)
    clip: float = 0.0  # standard deviations
    steps: int | None = None  # environment steps before this version, if rollouts differ in length

    def state_dict(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def normalizer(self) -> Normalizer | None:
        """Observation normalizer; None without normalization."""
        return Normalizer(self.mean, self.std, self.clip) if self.mean.size else None

    def normalize(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Normalize and flatten observations [B, *shape]; return them unchanged without normalization."""
        normalizer = self.normalizer
        return obs if normalizer is None else normalizer(obs.reshape(len(obs), -1))
