"""What every action head promises: which actions there are, and how outputs become actions."""

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from algos.networks.heads.leaf import LeafHead

Floats = NDArray[np.float32]
Path = tuple[str | int, ...]
Gaussian = Literal["clipped", "squashed"]  # how what is drawn comes between bounds

NO_LOG_STD = np.zeros(0, np.float32)  # of what is not drawn
ALLOWED = "Dict, Tuple, Discrete, MultiDiscrete, MultiBinary or a Box of floats"


class Head(abc.ABC):
    """Which actions there are, and how the outputs [B, W] of a network become actions.

    Actions inside are [B, K]: indices of choices; Gaussian samples, before they are clipped or squashed; numbers in
    [-1, 1], where they are soft or tanh; or, where none is drawn, the outputs themselves, of which bounded ones lie in
    [-1, 1], and the signs of binary ones. They are int64 if all are choices, else float32, which is exact for choices
    below 2^24.
    """

    @property
    @abc.abstractmethod
    def leaves(self) -> "tuple[LeafHead, ...]":
        """The parts of an action, each of one kind, in the order of their outputs."""

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """W, outputs the network must have."""

    @property
    @abc.abstractmethod
    def components(self) -> int:
        """K, numbers in one action."""

    @property
    @abc.abstractmethod
    def num_log_std(self) -> int:
        """Log standard deviations that are learned beside the network: one for each output of a Gaussian."""

    @property
    @abc.abstractmethod
    def inner_dtype(self) -> np.dtype[Any]:
        """Of actions inside."""

    @property
    @abc.abstractmethod
    def compact_dtype(self) -> np.dtype[Any]:
        """The smallest that holds every action inside."""

    @property
    @abc.abstractmethod
    def columns(self) -> Mapping[Path, slice]:
        """By the path of each leaf of choices in the action space, its outputs: an action mask has as many bits."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Name the kinds of actions, for `dry_run=true`."""

    @abc.abstractmethod
    def draw(self, generator: np.random.Generator, lead: tuple[int, ...]) -> Floats:
        """Noise [*lead, W] that `sample` turns into actions: Gumbel for choices, else standard normal [*lead, K]."""

    @abc.abstractmethod
    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Actions [B, K] of outputs [B, W]; the most likely ones where there is no noise."""

    @abc.abstractmethod
    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        """Log-probability, or log-density, [B] of actions [B, K] under outputs [B, W].

        Of squashed numbers it is the density of what the environment gets.
        """

    @abc.abstractmethod
    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        """Actions as `VectorEnv.send` takes them: inside the bounds, or shifted to the first choice.

        Returns:
            Arrays [B, *shape]; of a Dict or Tuple rows [B] of its `Layout`.
        """

    @abc.abstractmethod
    def masked(self, out: Floats, legal: NDArray[np.bool_]) -> Floats:
        """Return outputs [B, W] of which choices that may not be taken have probability 0, and the others theirs.

        Args:
            legal: [B, W], true for choices that may be taken; what is no choice is left as it is.

        Raises:
            EnvError: some choice has nothing legal.
        """

    def __call__(self, out: Floats) -> NDArray[Any]:
        """The most likely actions of outputs [B, W], as the environment takes them."""
        return self.to_env(self.sample(out, NO_LOG_STD, None))
