"""EnvPool (Weng et al. 2022, arXiv:2206.10558) behind our contract: the tasks that it has, stepped by C++ threads.

EnvPool restarts an environment in the step after the one that ended its episode. Here that extra step is sent at once,
for the ended rows alone, and a row is handed on when its next episode has begun: the caller sees a restart in
the same step. EnvPool's environments are its own: close to Gymnasium's, not equal to the bit.
"""

import warnings
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError, nearest, require
from paddock.envs.spaces.views import select
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.adapters.batched import check_whole
from paddock.envs.vector.buffers import buffer_of
from paddock.envs.vector.contract import (
    Batch,
    Episodes,
    Rows,
    Seeds,
    Started,
    VectorEnv,
    VectorMisuse,
    check_open,
    describe,
    keyed_seed,
    read_episodes,
    read_seeds,
)
from paddock.envs.vector.infos import pick_infos
from paddock.envs.vector.storage import Layouts, allocate, numbers
from paddock.envs.vector.table import READY, SENT, Arrays, Table

SINGLE = "paddock/EnvPool-v0"  # the id of `paddock.envs.bindings.envpool`, whose kwargs name the task
BOOKKEEPING = ("env_id", "players", "elapsed_step")  # EnvPool's own, in every info
RESERVED = ("num_envs", "batch_size", "num_threads", "seed", "env_seed", "gym_reset_return_info", "max_num_players")


class EnvPoolVectorEnv(VectorEnv):
    """An EnvPool; with batch_size < num_envs `recv` returns the first batch_size that are ready.

    A pool has seeds and an episode has none, so `begin` makes a new pool: the same (seed, episodes) and actions give
    the same trajectories whatever the order of arrival, but no later episode can be entered by its number.
    """

    keyed = False

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        batch_size: int,
        threads: int,
        autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        packed: bool = False,
    ) -> None:
        """Prepare the pool; `reset` and `begin` make it.

        Args:
            threads: that step environments; 0 leaves the number to EnvPool.
            autoreset, copy, packed: see `Vec.make`.

        Raises:
            ConfigError: EnvPool is not installed, has no such task, or cannot honour the recipe.
        """
        asked = f"vec=envpool restarts environments by itself, and {autoreset.name} is asked for"
        require(autoreset is AutoresetMode.SAME_STEP, f"{asked}; choose vec=serial or vec=multiprocess")
        self._envpool = _import_envpool()
        self._task, options = _read(self._envpool, spec)
        # A pool hands out whole batches only. Where fewer rows than that are under way, spare environments make up the
        # number, and nobody sees theirs. A batch of them is enough; with the rest, all together are whole batches.
        spares = 0 if batch_size == num_envs else 2 * batch_size - 1 - (num_envs - 1) % batch_size
        self._total = num_envs + spares
        self._options = {"num_envs": self._total, "batch_size": batch_size, "num_threads": threads, **options}
        self._pool: Any = None
        self.batch_size = batch_size
        try:
            with warnings.catch_warnings():  # Gymnasium's, about EnvPool's limits in double precision
                warnings.simplefilter("ignore")
                made = self._envpool.make_spec(self._task, **self._options)
                observation_space, action_space = made.gymnasium_observation_space, made.gymnasium_action_space
        except (TypeError, ValueError, AssertionError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"EnvPool's {self._task} refuses {options}: {reason}") from error
        layouts = Layouts.of(spec, observation_space, action_space)
        if packed:
            layouts.check_rows(spec)
        describe(self, None, layouts, num_envs, autoreset)
        arrays = Arrays.allocate(layouts, num_envs, np.zeros)
        self._table = Table(arrays, layouts, autoreset, copy, packed)
        actions = self.single_action_space, layouts.action
        self._actions = buffer_of(*actions, arrays.action)
        # Actions for those to whom they do not count.
        self._nothing = buffer_of(*actions, allocate(layouts.action, self._total, np.zeros))
        self._observation: Any = buffer_of(self.single_observation_space, layouts.observation, arrays.observation)
        self._final: Any = buffer_of(self.single_observation_space, layouts.observation, arrays.final)
        self._flying = np.zeros(self._total, np.bool_)  # in the pool
        self._beginning = np.zeros(num_envs, np.bool_)  # what comes next from the pool begins an episode
        self._ready: list[int] = []  # in the order of arrival
        self._latest: Rows = None  # whom the last batch was of

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """Start an episode in every environment; with seeds, in a new pool."""
        if options:
            raise VectorMisuse(f"reset: EnvPool takes no options, got {sorted(options)}; leave them out")
        if seed is None:
            return self._start(None)
        seeds = read_seeds(seed, self.num_envs)
        if None in seeds:
            raise VectorMisuse(f"reset: EnvPool seeds all environments or none, got {seeds}; pass an int for each")
        return self._start([one for one in seeds if one is not None])

    def begin(self, seed: int, episodes: Episodes = None) -> Started:
        """Start in a new pool; each environment's first episode is keyed, and later ones follow from it."""
        started = read_episodes(episodes, self.num_envs)
        return self._start([keyed_seed(seed, i, number) for i, number in enumerate(started)])

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`; the threads begin to step."""
        check_open(self, "send")
        rows = self._table.rows(self._latest if env_ids is None else env_ids, "send")
        if self.batch_size == self.num_envs != len(numbers(rows)):
            raise VectorMisuse(
                f"send: EnvPool steps its {self.num_envs} environments together, not {list(numbers(rows))}; "
                "choose vec.batch_size < vec.num_envs, or vec=multiprocess"
            )
        self._table.accept(actions, rows)
        self._table.mark(SENT, rows)
        self._post(self._actions.take(rows, copy=False), np.arange(self.num_envs)[rows])

    def recv(self, env_ids: Rows = None) -> Batch:
        """See `VectorEnv.recv`."""
        check_open(self, "recv")
        rows = self._table.outstanding(env_ids)
        if env_ids is None:
            wanted = min(self.batch_size, len(numbers(rows)))
            while len(self._ready) < wanted:
                self._gather()
            if wanted < self.num_envs:
                rows = np.array(self._ready[:wanted], np.intp)
            del self._ready[:wanted]
        else:
            asked = set(numbers(rows))
            while not asked.issubset(self._ready):
                self._gather()
            self._ready = [i for i in self._ready if i not in asked]
        self._latest = rows
        return self._table.batch(rows)

    def close_extras(self, **kwargs: Any) -> None:
        """Release the pool; its threads end."""
        self._drop()

    def _start(self, seeds: list[int] | None) -> tuple[Any, dict[str, Any]]:
        check_open(self, "reset")
        while self._flying.any():
            self._gather()
        if seeds is not None or self._pool is None:
            self._drop()
            if seeds is None:
                seeds = np.random.default_rng().integers(2**31, size=self.num_envs).tolist()
            spare = [keyed_seed(seeds[0], i, 0) for i in range(self.num_envs, self._total)]
            with warnings.catch_warnings():  # as above
                warnings.simplefilter("ignore")
                self._pool = self._envpool.make(self._task, env_type="gymnasium", seed=seeds + spare, **self._options)
                self._pool.observation_space, self._pool.action_space  # noqa: B018, it makes them when first asked
        everyone, arrays = self._table.everyone, self._table.arrays
        self._table.forget(everyone)
        self._flying[:], self._beginning[:] = True, True
        arrays.running_return[:], arrays.running_length[:] = 0, 0
        self._pool.async_reset()
        while self._flying.any():
            self._gather()
        self._ready.clear()
        self._latest = None
        return self._table.start(everyone)

    def _drop(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None  # its threads end with it

    def _post(self, actions: Any, ids: NDArray[np.intp]) -> None:
        self._flying[ids] = True
        self._pool.send(actions, ids)

    def _gather(self) -> None:
        """Take a batch from the pool, store it, and send what has ended into its next episode."""
        missing = self.batch_size - int(self._flying.sum())
        if missing > 0 and self._total > self.num_envs:
            idle = self.num_envs + np.flatnonzero(~self._flying[self.num_envs :])[:missing]
            self._post(self._nothing.take(idle, copy=False), idle)
        observation, reward, terminated, truncated, info = self._pool.recv()
        ids = np.array(info["env_id"], np.intp)
        self._flying[ids] = False
        if self._total > self.num_envs:
            visible = np.flatnonzero(ids < self.num_envs)
            ids, observation, info = ids[visible], select(observation, visible), select(info, visible)
            reward, terminated, truncated = reward[visible], terminated[visible], truncated[visible]
        arrays, begins = self._table.arrays, self._beginning[ids]
        ended = (terminated | truncated) & ~begins
        moved, of = (ids, slice(None)) if not begins.any() else (ids[~begins], ~begins)
        arrays.enter(moved, reward[of], terminated[of], truncated[of])
        self._beginning[ids] = ended
        own = {key: value for key, value in info.items() if key not in BOOKKEEPING}
        go_on = ~ended
        self._table.note(ids[go_on], pick_infos(own, go_on))
        if ended.any():
            over = ids[ended]
            self._final.pack(over, select(observation, ended))
            arrays.end(over)
            self._table.note(over, pick_infos({"final_info": own}, ended))
            self._post(self._nothing.take(over, copy=False), over)
            ids, observation = ids[go_on], select(observation, go_on)
        self._observation.pack(ids, observation)
        self._table.mark(READY, ids)
        self._ready.extend(ids.tolist())


def _import_envpool() -> Any:
    try:
        import envpool
    except ImportError as error:
        raise ConfigError(f"vec=envpool needs EnvPool and cannot import it ({error}); pip install envpool") from error
    return envpool


def _read(envpool: Any, spec: EnvSpec) -> tuple[str, dict[str, Any]]:
    """EnvPool's name of the task and what to ask of it."""
    check_whole(spec, "envpool")
    task, options, named = spec.id.rpartition(":")[2], spec.arguments, f"env.id={spec.id}"
    if task == SINGLE:
        task = options.pop("task", "")
        named = f"env.kwargs.task={task}"
    known = envpool.list_all_envs()
    if task not in known:
        hint = nearest(task.rpartition("/")[2], known)
        raise ConfigError(f"{named} is no task of EnvPool's; {hint} If not, choose vec=multiprocess")
    allowed = [key for key in read_options(envpool, task) if key not in RESERVED]
    for key in options:
        require(key in allowed, f"env.kwargs.{key} is no option of EnvPool's {task}; {nearest(key, allowed)}")
    limit = {} if spec.max_episode_steps is None else {"max_episode_steps": spec.max_episode_steps}
    return task, options | limit


def read_options(envpool: Any, task: str) -> list[str]:
    """Return the names of a task's options, which EnvPool tells nowhere in public."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(envpool.make_spec(task)._config_keys)
