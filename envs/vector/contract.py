"""What every vector environment here promises: Gymnasium's vector interface, in two halves and for chosen rows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from envs.errors import PaddockError

Rows = NDArray[np.intp] | slice | None  # which environments, distinct; None for all
Batch = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class VectorMisuse(PaddockError):
    """The vector environment was called out of order or with arrays of the wrong shape."""


class EnvError(PaddockError):
    """An environment raised, or its process died or hung; the message names it and ends in its traceback."""


class VectorEnv(gymnasium.vector.VectorEnv, ABC):
    """N environments side by side: a `gymnasium.vector.VectorEnv` whose `step` is `send` and then `recv`.

    With `AutoresetMode.SAME_STEP` an environment restarts in the step that ends its episode: `infos["final_obs"]` and
    `infos["final_info"]` keep what the episode ended with, and `final_info["episode"]` has its return `r` and length
    `l`, as a `RecordEpisodeStatistics` around each environment would give. With `AutoresetMode.DISABLED` the caller
    restarts ended episodes: `reset(seed=[...], options={"reset_mask": mask})`.

    Attributes:
        batch_size: environments in one `recv()`; fewer than num_envs where it returns whichever are ready first.
        restarts: worker processes replaced so far; 0 for ever where there are none.
    """

    batch_size: int
    restarts: int = 0
    autoreset: AutoresetMode

    @abstractmethod
    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """Hand over one action for each of `env_ids`; they start to step.

        Without `env_ids` the actions are for the rows of the last `recv()`, which is all of them where batch_size is
        num_envs.

        Raises:
            VectorMisuse: no episode has begun, a row has an action already, or shape or dtype are wrong.
        """

    @abstractmethod
    def recv(self, env_ids: Rows = None) -> Batch:
        """Wait for environments that were sent to: those of `env_ids`, or else the first batch_size that are ready.

        Returns:
            Observations, rewards, terminated, truncated and infos with one row per environment; where these are not
            all, `infos["env_id"]` says which, in the order of the rows.

        Raises:
            VectorMisuse: nothing was sent.
            EnvError: an environment raised, or its process died or hung.
        """

    @abstractmethod
    def begin(self, seed: int, episodes: Sequence[int] | NDArray[np.int64] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start every environment on seeds keyed by (seed, environment, number of its episode).

        Every later restart in the same step takes the next number. An episode then depends on its key alone, and can
        be entered again by its key and its actions; `reset` goes back to Gymnasium's own succession.

        Args:
            episodes: [N] the first episode's number in each environment; zeros where not given.
        """

    def step(self, actions: Any) -> Batch:
        """Step every environment: `send` and then `recv`, whatever batch_size is."""
        everyone = None if self.batch_size == self.num_envs else slice(0, self.num_envs)
        self.send(actions, everyone)
        return self.recv(everyone)


def keyed_seed(seed: int, env: int, episode: int) -> int:
    """A seed in [0, 2^31) for one episode of one environment: SplitMix64's mixing (Steele et al. 2014) of the key."""
    mixed = 0
    for part in (seed, env, episode):
        mixed = (mixed ^ part) + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 31
    return mixed >> 33
