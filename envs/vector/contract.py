"""Interface of vector environments: Gymnasium's, with `step` split into `send` and `recv` of chosen rows."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from paddock.envs.errors import PaddockError

if TYPE_CHECKING:
    from paddock.envs.vector.storage import Layouts

Rows = NDArray[np.intp] | slice | None  # distinct row indices; None: all
Method = TypeVar("Method", bound=Callable[..., Any])
Seeds = int | Sequence[int | None] | None  # one per environment, or an int: environment i gets seed + i
Episodes = Sequence[int] | NDArray[np.int64] | None  # episode numbers [N / seats]; None: zeros
Started = tuple[Any, dict[str, Any]]  # observations and infos
Batch = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class VectorMisuse(PaddockError):
    """A vector environment was called out of order or with invalid arrays."""


class EnvError(PaddockError):
    """An environment raised, or its process died or hung; the message names it and includes the traceback."""

    details = True


class VectorEnv(gymnasium.vector.VectorEnv, ABC):
    """N environments as a `gymnasium.vector.VectorEnv` whose `step` is `send` followed by `recv`.

    With `AutoresetMode.SAME_STEP` an environment restarts in the step that ends its episode: `infos["final_obs"]` and
    `infos["final_info"]` keep the end of the episode, and `final_info["episode"]` has its return `r` and length `l`.
    `final_obs` is an object array with None for running episodes; for packed observations, it is rows that are valid
    where `_final_obs` is true. With `AutoresetMode.DISABLED` the caller restarts ended episodes with
    `reset(seed=[...], options={"reset_mask": mask})`.

    A multi-agent environment ("world") has one row per seat: row = world * seats + seat; `num_envs` counts rows.
    `env_ids` and `reset_mask` select whole worlds; seeds, episodes and attributes are per world. Additional infos are
    `acts` [rows] bool (the next step takes the row's action), `over` [worlds] bool (the episode ended in the step) and
    `stray_reward` (rewards of agents that are not alive). `final_obs` and `final_info["episode"]` refer to an agent's
    life, and `l` counts its actions. Rows of dead agents are zeros until the agent appears again; all lives end with
    the episode (table in `paddock.envs.vector.multiagent_slots`).

    Attributes:
        seats: rows per environment; 1 for single-agent environments.
        batch_size: number of rows that `recv()` returns; below num_envs, it returns the first that are ready.
        restarts: number of worker processes replaced so far.
        alive: [rows] bool, agents alive after the latest received step.
        keyed: `begin` can start any episode by its number; False if only the whole run has a seed.
    """

    batch_size: int
    seats: int = 1
    restarts: int = 0
    alive: NDArray[np.bool_]
    keyed: bool = True
    autoreset: AutoresetMode

    @property
    def worlds(self) -> int:
        """Return the number of environments, whatever their seats."""
        return int(self.num_envs) // self.seats

    @abstractmethod
    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """Start episodes; an int seeds environment i with seed + i, `options["reset_mask"]` [N] selects rows."""

    @abstractmethod
    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """Start a step with one action per row of `env_ids`, by default those of the last `recv()`.

        Raises:
            VectorMisuse: an episode has not started, a row already has an action, or shape or dtype are wrong.
        """

    @abstractmethod
    def recv(self, env_ids: Rows = None) -> Batch:
        """Wait for the steps of `env_ids`, or for the first batch_size that are ready.

        Returns:
            Observations, rewards, terminated, truncated and infos; `infos["env_id"]` has the rows unless all.

        Raises:
            VectorMisuse: no step is pending.
            EnvError: an environment raised, or its process died or hung.
        """

    @abstractmethod
    def begin(self, seed: int, episodes: Episodes = None) -> Started:
        """Start all environments on seeds keyed by (seed, environment, episode number).

        Automatic restarts take the next episode numbers, so an episode depends on its key and actions only.

        Args:
            seed: first part of the key.
            episodes: [N / seats], number of each environment's first episode; None: zeros.
        """

    def renumber(self, numbers: Sequence[int] | NDArray[np.int64]) -> None:
        """Set the environment numbers [N / seats] in keys, for a vector that is part of a larger one.

        Raises:
            VectorMisuse: not supported by this vector.
        """
        if list(numbers) != list(range(self.worlds)):
            raise VectorMisuse(f"renumber: {type(self).__name__} derives seeds from rows only; use vec=multiprocess")

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state as arrays and plain data, or None if it cannot be saved.

        Call it between a `recv` of all environments and the next `send`. Without it, keyed episodes can be restored by
        `begin` and their actions.
        """
        return None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a vector of the same recipe, bit-identically.

        Raises:
            VectorMisuse: the state is another vector's, or loading is not supported; nothing is changed.
        """
        raise VectorMisuse(f"load_state_dict: {type(self).__name__} cannot load a state; start episodes by `begin`")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as Gymnasium's own have it
        """Return the seed of each environment's generator, as Gymnasium's vectors do."""
        return tuple(self.call("np_random_seed"))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the result of each environment's method, or the value of its attribute."""
        raise NotImplementedError(f"{type(self).__name__} has no single environments to call")

    def get_attr(self, name: str) -> Any:
        """Return an attribute of each environment."""
        return self.call(name)

    def render(self) -> Any:
        """Return each environment's rendered frame."""
        return self.call("render")

    def step(self, actions: Any) -> Batch:
        """Step all environments by `send` and `recv`, whatever batch_size is."""
        everyone = None if self.batch_size == self.num_envs else slice(0, self.num_envs)
        self.send(actions, everyone)
        return self.recv(everyone)


def closes_on_interrupt(method: Method) -> Method:
    """Decorate a method to close the vector on Ctrl-C, which may leave a protocol in an unknown state."""

    @functools.wraps(method)
    def call(self: VectorEnv, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except KeyboardInterrupt:
            self.close()
            raise

    return cast(Method, call)


def describe(venv: VectorEnv, env: Any, layouts: "Layouts", num_envs: int, autoreset: AutoresetMode) -> None:
    """Set the attributes of Gymnasium's vector environments for N = `num_envs` rows.

    `env` is one of the environments, or an object with its metadata and render mode.

    Raises:
        VectorMisuse: `autoreset` is not supported.
    """
    if autoreset is AutoresetMode.NEXT_STEP:
        raise VectorMisuse("autoreset=NEXT_STEP is not supported; use SAME_STEP or DISABLED")
    venv.num_envs = num_envs
    venv.autoreset = autoreset
    venv.seats = layouts.seats
    venv.metadata = {**getattr(env, "metadata", {}), "autoreset_mode": autoreset}
    venv.render_mode = getattr(env, "render_mode", None)  # optional in multi-agent environments
    venv.single_observation_space = layouts.observation_space
    venv.single_action_space = layouts.action_space
    venv.observation_space = batch_rows(layouts.observation_space, num_envs, layouts.role_seats)
    venv.action_space = batch_rows(layouts.action_space, num_envs, layouts.role_seats)


def batch_rows(space: Space, num_envs: int, seats: Sequence[int]) -> Space:
    """Return the space of a batch of N rows; for several roles, a Dict by role."""
    if len(seats) == 1:
        return batch_space(space, num_envs)
    assert isinstance(space, spaces.Dict)
    roles = zip(space.items(), seats, strict=True)
    return spaces.Dict([(name, batch_space(one, num_envs // sum(seats) * n)) for (name, one), n in roles])


def check_open(venv: VectorEnv, verb: str) -> None:
    """Raise VectorMisuse if a vector environment is closed."""
    if venv.closed:
        raise VectorMisuse(f"{verb}: this vector environment is closed; create a new one")


def read_seeds(seed: Seeds, num_envs: int) -> list[int | None]:
    """Return one seed per environment: those given, or seed + i for environment i, or None for all."""
    if seed is None or isinstance(seed, int | np.integer):
        return [None if seed is None else int(seed) + i for i in range(num_envs)]
    seeds = [None if one is None else int(one) for one in seed]
    if len(seeds) != num_envs:
        raise VectorMisuse(f"reset: got {len(seeds)} seeds for {num_envs} environments; pass one each")
    return seeds


def read_mask(options: dict[str, Any] | None, num_envs: int) -> tuple[dict[str, Any], NDArray[np.intp] | None]:
    """Return the options without `reset_mask`, and the rows that it selects; None if it is not given."""
    others = dict(options or {})
    mask = others.pop("reset_mask", None)
    if mask is None:
        return others, None
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (num_envs,):
        raise VectorMisuse(f"reset: reset_mask must be a bool array of shape ({num_envs},); got {mask!r}")
    if not mask.any():
        raise VectorMisuse("reset: reset_mask selects no environment; set True for those to restart")
    return others, np.flatnonzero(mask)


def read_episodes(episodes: Episodes, num_envs: int) -> list[int]:
    """Return the number of each environment's first episode."""
    numbers = [0] * num_envs if episodes is None else [int(number) for number in episodes]
    if len(numbers) != num_envs:
        raise VectorMisuse(f"begin: got {len(numbers)} episode numbers for {num_envs} environments; pass one each")
    return numbers


def read_values(values: Any, num_envs: int) -> list[Any]:
    """Return one value per environment: those of a list or tuple, or the same for all."""
    if not isinstance(values, list | tuple):
        return [values] * num_envs
    if len(values) != num_envs:
        raise VectorMisuse(f"set_attr: got {len(values)} values for {num_envs} environments; pass one each, or one")
    return list(values)


def keyed_seed(seed: int, env: int, episode: int) -> int:
    """Return a seed in [0, 2^31) for an episode: the key mixed by SplitMix64 (Steele et al. 2014)."""
    return int(_mix(*map(int, (seed, env, episode))))  # NumPy's integers would overflow


def keyed_seeds(seed: int, envs: NDArray[np.int64], episodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the `keyed_seed` of each environment, [N]."""
    return np.asarray(_mix(seed, envs.astype(np.uint64), episodes.astype(np.uint64))).astype(np.int64)


def _mix(*parts: Any) -> Any:
    mixed: Any = 0
    for part in parts:
        mixed = (mixed ^ part) + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 31
    return mixed >> 33
