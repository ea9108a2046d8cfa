"""The contract of vector environments: Gymnasium's vector interface, in two halves and for chosen rows."""

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

Rows = NDArray[np.intp] | slice | None  # which environments, distinct; None for all
Method = TypeVar("Method", bound=Callable[..., Any])
Seeds = int | Sequence[int | None] | None  # one for each environment, or an int: environment i has seed + i
Episodes = Sequence[int] | NDArray[np.int64] | None  # numbers of episodes [N / seats]; None: zeros
Started = tuple[Any, dict[str, Any]]  # observations and infos
Batch = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class VectorMisuse(PaddockError):
    """The vector environment was called out of order or with arrays of the wrong shape."""


class EnvError(PaddockError):
    """An environment raised, or its process died or hung; the message names it and ends in its traceback."""

    details = True


class VectorEnv(gymnasium.vector.VectorEnv, ABC):
    """N environments side by side: a `gymnasium.vector.VectorEnv` whose `step` is `send` and then `recv`.

    With `AutoresetMode.SAME_STEP` an environment restarts in the step that ends its episode: `infos["final_obs"]` and
    `infos["final_info"]` keep the end of the episode, and `final_info["episode"]` has its return `r` and length `l`.
    `final_obs` is an array of objects, None where nothing ended; where observations come as rows, it is rows of which
    `_final_obs` says which count. With `AutoresetMode.DISABLED` the caller restarts ended episodes:
    `reset(seed=[...], options={"reset_mask": mask})`.

    A multi-agent environment, a world, has as many rows as it has seats: row = world * seats + seat, and `num_envs`
    counts rows. `env_ids` and `reset_mask` name all rows of a world or none; seeds, episodes and attributes are one for
    each world. Infos also have `acts` [rows] bool (the row awaits an action; other actions are ignored), `over` [worlds]
    bool (the world ended in the step) and `stray_reward` (rewards of agents that do not live). `final_obs` and
    `final_info["episode"]` are of a seat's life, and `l` counts the steps that took an action of it. A life ends before
    its world where its agent is terminated or truncated; its row is zeros then, and may be born again. All lives end
    with their world, and restart in the same step (`paddock.envs.vector.multiagent_slots` has the table).

    Attributes:
        seats: rows of each environment; 1 but for worlds.
        batch_size: environments in one `recv()`; fewer than num_envs where it returns the first that are ready.
        restarts: worker processes replaced so far.
        alive: [rows] bool, whether an agent lives in each row's seat, as of the latest step that was received.
        keyed: whether `begin` enters any episode by its number; False where only the run as a whole has a seed.
    """

    batch_size: int
    seats: int = 1
    restarts: int = 0
    alive: NDArray[np.bool_]
    keyed: bool = True
    autoreset: AutoresetMode

    @property
    def worlds(self) -> int:
        """Number of environments, whatever their seats."""
        return int(self.num_envs) // self.seats

    @abstractmethod
    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """Start episodes; an int seeds environment i with seed + i, `options["reset_mask"]` ([N] bool) picks some."""

    @abstractmethod
    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """Send one action for each row of `env_ids`, by default those of the last `recv()`; they start to step.

        Raises:
            VectorMisuse: no episode has begun, a row has an action already, or shape or dtype are wrong.
        """

    @abstractmethod
    def recv(self, env_ids: Rows = None) -> Batch:
        """Wait for environments that were sent to: those of `env_ids`, or else the first batch_size that are ready.

        Returns:
            Observations, rewards, terminated, truncated and infos; `infos["env_id"]` has the rows, if not all.

        Raises:
            VectorMisuse: nothing was sent.
            EnvError: an environment raised, or its process died or hung.
        """

    @abstractmethod
    def begin(self, seed: int, episodes: Episodes = None) -> Started:
        """Start every environment on seeds keyed by (seed, environment, number of its episode).

        Later restarts in the same step take the next numbers. An episode then depends on its key and actions alone.

        Args:
            episodes: [N / seats] the first episode's number in each environment; zeros where not given.
        """

    def renumber(self, numbers: Sequence[int] | NDArray[np.int64]) -> None:
        """Set the numbers [N / seats] by which `begin` keys seeds, for a vector that is one part of a larger one.

        Raises:
            VectorMisuse: this vector cannot.
        """
        if list(numbers) != list(range(self.worlds)):
            raise VectorMisuse(f"renumber: {type(self).__name__} keys seeds by rows alone; choose vec=multiprocess")

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state for `load_state_dict` of another such vector, as arrays and plain data.

        Call it between a `recv` of all environments and the next `send`. None where environments cannot save
        themselves; where `begin` enters single episodes, their actions lead there again.
        """
        return None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume bit-identically where a vector of the same recipe was.

        Raises:
            VectorMisuse: it is another vector's state, or none can be loaded; nothing has changed then.
        """
        raise VectorMisuse(f"load_state_dict: {type(self).__name__} cannot load a state; enter its episodes by `begin`")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as Gymnasium's own have it
        """The seed of each environment's generator, as of Gymnasium's vectors."""
        return tuple(self.call("np_random_seed"))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the result of each environment's method, or its attribute where that is no method."""
        raise NotImplementedError(f"{type(self).__name__} has no single environments to call")

    def get_attr(self, name: str) -> Any:
        """Return an attribute of each environment."""
        return self.call(name)

    def render(self) -> Any:
        """Return each environment's picture."""
        return self.call("render")

    def step(self, actions: Any) -> Batch:
        """Step every environment: `send` and then `recv`, whatever batch_size is."""
        everyone = None if self.batch_size == self.num_envs else slice(0, self.num_envs)
        self.send(actions, everyone)
        return self.recv(everyone)


def closes_on_interrupt(method: Method) -> Method:
    """Make Ctrl-C in a method close the vector: it may have come between any two steps of a protocol."""

    @functools.wraps(method)
    def call(self: VectorEnv, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except KeyboardInterrupt:
            self.close()
            raise

    return cast(Method, call)


def describe(venv: VectorEnv, env: Any, layouts: "Layouts", num_envs: int, autoreset: AutoresetMode) -> None:
    """Set the attributes that Gymnasium's vector environments have.

    Args:
        env: an environment, or anything with the metadata and render mode of one.
        layouts: how its observations and actions lie in rows.
        num_envs: N, rows.

    Raises:
        VectorMisuse: the way of restarting is none of ours.
    """
    if autoreset is AutoresetMode.NEXT_STEP:
        raise VectorMisuse("autoreset=NEXT_STEP is not supported; use SAME_STEP or DISABLED")
    venv.num_envs = num_envs
    venv.autoreset = autoreset
    venv.seats = layouts.seats
    venv.metadata = {**getattr(env, "metadata", {}), "autoreset_mode": autoreset}
    venv.render_mode = getattr(env, "render_mode", None)  # of worlds, not all say so
    venv.single_observation_space = layouts.observation_space
    venv.single_action_space = layouts.action_space
    venv.observation_space = batch_rows(layouts.observation_space, num_envs, layouts.role_seats)
    venv.action_space = batch_rows(layouts.action_space, num_envs, layouts.role_seats)


def batch_rows(space: Space, num_envs: int, seats: Sequence[int]) -> Space:
    """Return the space of N rows' elements; of worlds with several roles, a Dict of each role's."""
    if len(seats) == 1:
        return batch_space(space, num_envs)
    assert isinstance(space, spaces.Dict)
    roles = zip(space.items(), seats, strict=True)
    return spaces.Dict([(name, batch_space(one, num_envs // sum(seats) * n)) for (name, one), n in roles])


def check_open(venv: VectorEnv, verb: str) -> None:
    """Raise VectorMisuse if the environments were closed."""
    if venv.closed:
        raise VectorMisuse(f"{verb}: this vector environment is closed; make a new one")


def read_seeds(seed: Seeds, num_envs: int) -> list[int | None]:
    """One seed for each environment: those given, or seed + i for environment i, or None for all."""
    if seed is None or isinstance(seed, int | np.integer):
        return [None if seed is None else int(seed) + i for i in range(num_envs)]
    seeds = [None if one is None else int(one) for one in seed]
    if len(seeds) != num_envs:
        raise VectorMisuse(f"reset: got {len(seeds)} seeds for {num_envs} environments; pass one each")
    return seeds


def read_mask(options: dict[str, Any] | None, num_envs: int) -> tuple[dict[str, Any], NDArray[np.intp] | None]:
    """The options for the environments, and which of them `reset_mask` picks; None where it is not given."""
    others = dict(options or {})
    mask = others.pop("reset_mask", None)
    if mask is None:
        return others, None
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (num_envs,):
        raise VectorMisuse(f"reset: reset_mask must be a bool array of shape ({num_envs},); got {mask!r}")
    if not mask.any():
        raise VectorMisuse("reset: reset_mask picks no environment; set True for those to restart")
    return others, np.flatnonzero(mask)


def read_episodes(episodes: Episodes, num_envs: int) -> list[int]:
    """The number of each environment's first episode."""
    numbers = [0] * num_envs if episodes is None else [int(number) for number in episodes]
    if len(numbers) != num_envs:
        raise VectorMisuse(f"begin: got {len(numbers)} episode numbers for {num_envs} environments; pass one each")
    return numbers


def read_values(values: Any, num_envs: int) -> list[Any]:
    """One attribute's value for each environment: those of a list or tuple, or the same for all."""
    if not isinstance(values, list | tuple):
        return [values] * num_envs
    if len(values) != num_envs:
        raise VectorMisuse(f"set_attr: got {len(values)} values for {num_envs} environments; pass one each, or one")
    return list(values)


def keyed_seed(seed: int, env: int, episode: int) -> int:
    """A seed in [0, 2^31) for one episode of one environment: SplitMix64's mixing (Steele et al. 2014) of the key."""
    mixed = 0
    for part in map(int, (seed, env, episode)):  # NumPy's own numbers are too small for it
        mixed = (mixed ^ part) + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 31
    return mixed >> 33
