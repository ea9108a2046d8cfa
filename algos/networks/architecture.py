"""What a learned policy is made of: the architecture of its network, and its weights as they travel."""

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from algos.networks.flat import Activation
from algos.networks.heads import Head
from envs.errors import require
from envs.native.networks import DenseLayout, Normalizer

MIN_IMAGE = 5  # pixels a side that the smallest convolutional network needs


@dataclass(frozen=True)
class Architecture:
    """A policy and a value network: encode, an optional LSTM as wide as what was encoded, decode."""

    obs_shape: tuple[int, ...]
    obs_dtype: str
    encoder: Literal["mlp", "cnn"]
    hidden: tuple[int, ...]  # widths; after the convolutions, where there are any
    activation: Activation
    shared: bool  # policy and value decode the same features
    lstm: bool
    head: Head
    initial_log_std: float  # of a Gaussian head

    @classmethod
    def for_spaces(
        cls,
        observation: gymnasium.Space,
        action: gymnasium.Space,
        *,
        encoder: Literal["auto", "mlp", "cnn"],
        hidden: tuple[int, ...],
        activation: Activation,
        shared: bool,
        lstm: bool,
        initial_log_std: float,
    ) -> "Architecture":
        """The architecture for an environment; `auto` takes convolutions for images of uint8.

        Raises:
            ConfigError: a space is not supported, a width is not positive, or there is no image to convolve.
        """
        require(all(width >= 1 for width in hidden), f"hidden={list(hidden)} must list positive widths; try [64, 64]")
        require(isinstance(observation, spaces.Box), f"env: the observation space {observation} is no array; wrap it")
        shape, dtype = tuple(observation.shape or ()), str(observation.dtype)
        image = len(shape) == 3 and sorted(shape)[1] >= MIN_IMAGE
        if encoder == "auto":
            encoder = "cnn" if image and dtype == "uint8" else "mlp"
        require(encoder == "mlp" or image, f"encoder=cnn needs images; the observations have shape {shape}; use mlp")
        require(
            bool(hidden) or not lstm, "lstm: an LSTM needs features to remember; give hidden= a width, such as [64]"
        )
        return cls(shape, dtype, encoder, hidden, activation, shared, lstm, Head.of(action), initial_log_std)

    @property
    def policy_layout(self) -> DenseLayout:
        """Of a dense network: where the policy's layers lie, behind the log standard deviations."""
        return DenseLayout((int(np.prod(self.obs_shape)), *self.hidden, self.head.width), out_first=True)

    @property
    def features(self) -> int:
        """F, the width of what `encode` gives and `decode` takes."""
        width = self.hidden[-1] if self.hidden else int(np.prod(self.obs_shape))
        return width if self.shared else 2 * width

    @property
    def state_width(self) -> int:
        """S, numbers that an LSTM remembers: its output and its cell."""
        return 2 * self.features if self.lstm else 0


@dataclass(frozen=True)
class Weights:
    """One version of a policy, as it travels to actors."""

    version: int  # updates that led to it
    parameters: NDArray[np.float32]  # [P]
    mean: NDArray[np.float32]  # [O] of observations, or [0] where they are not normalized
    std: NDArray[np.float32]  # [O] or [0]
    clip: float  # deviations

    def normalize(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Observations [B, *shape] to mean 0 and deviation 1, flattened; as they are where nothing is normalized."""
        if not self.mean.size:
            return obs
        return Normalizer(self.mean, self.std, self.clip)(obs.reshape(len(obs), -1))
