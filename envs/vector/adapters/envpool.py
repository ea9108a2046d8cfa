"""Adapter of EnvPool (Weng et al. 2022, arXiv:2206.10558), whose tasks are stepped by C++ threads.

EnvPool restarts an environment in the step after the end of its episode. The adapter takes that step at once for ended
environments, so that they restart in the same step. EnvPool's environments are not bit-identical to Gymnasium's.
"""

import warnings
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError, nearest, require
from paddock.envs.spaces.views import copied, flatten
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.adapters.batched import check_whole
from paddock.envs.vector.adapters.lockstep import LockStepVectorEnv
from paddock.envs.vector.contract import (
    Batch,
    Episodes,
    Seeds,
    Started,
    VectorMisuse,
    check_open,
    keyed_seed,
    read_episodes,
    read_seeds,
)
from paddock.envs.vector.infos import merge_infos, pick_infos

SINGLE = "paddock/EnvPool-v0"  # the id of `paddock.envs.bindings.envpool`, whose kwargs name the task
BOOKKEEPING = ("env_id", "players", "elapsed_step")  # EnvPool's keys in every info
RESERVED = ("num_envs", "batch_size", "num_threads", "seed", "env_seed", "gym_reset_return_info", "max_num_players")


class EnvPoolVectorEnv(LockStepVectorEnv):
    """Vector environment of EnvPool.

    EnvPool seeds pools, not episodes, so `begin` makes a new pool: equal (seed, episodes) and actions give equal
    trajectories, but later episodes cannot be started by number.
    """

    keyed = False

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        threads: int,
        autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        packed: bool = False,
    ) -> None:
        """Prepare the pool, which `reset` and `begin` make; `threads` of 0 is EnvPool's default.

        `autoreset` and `packed` are those of `Vec.make`; batches are always copies.

        Raises:
            ConfigError: EnvPool is not installed, lacks the task, or does not support the recipe.
        """
        what = f"vec=envpool always restarts environments, but autoreset={autoreset.name} is needed"
        require(autoreset is AutoresetMode.SAME_STEP, f"{what}; use vec=serial or vec=multiprocess")
        self._envpool = _import_envpool()
        self._task, options = _read(self._envpool, spec)
        self._options = {"num_envs": num_envs, "batch_size": num_envs, "num_threads": threads, **options}
        try:
            with warnings.catch_warnings():  # Gymnasium's, about EnvPool's limits in double precision
                warnings.simplefilter("ignore")
                made = self._envpool.make_spec(self._task, **self._options)
                spaces = made.gymnasium_observation_space, made.gymnasium_action_space
        except (TypeError, ValueError, AssertionError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"EnvPool's {self._task} rejects {options}: {reason}") from error
        self._wrap_vector(None, spec, spaces, num_envs, autoreset, packed)

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """Start an episode in every environment; with seeds, in a new pool."""
        if options:
            raise VectorMisuse(f"reset: EnvPool takes no options, got {sorted(options)}; remove them")
        seeds = read_seeds(seed, self.num_envs)
        given = [one for one in seeds if one is not None]
        if given and given != seeds:
            raise VectorMisuse(f"reset: EnvPool seeds all environments or none, got {seeds}; pass an int for each")
        return self._start(given or None)

    def begin(self, seed: int, episodes: Episodes = None) -> Started:
        """Start in a new pool; each environment's first episode is keyed, and later ones follow from it."""
        started = read_episodes(episodes, self.num_envs)
        return self._start([keyed_seed(seed, i, number) for i, number in enumerate(started)])

    def close_extras(self, **kwargs: Any) -> None:
        """Release the pool and end its threads."""
        if self.venv is not None:
            self.venv.close()
            self.venv = None

    def _start(self, seeds: list[int] | None) -> Started:
        check_open(self, "reset")
        self._drain()
        if seeds is not None or self.venv is None:
            self.close_extras()
            if seeds is None:
                seeds = np.random.default_rng().integers(2**31, size=self.num_envs).tolist()
            with warnings.catch_warnings():  # as above
                warnings.simplefilter("ignore")
                self.venv = self._envpool.make(self._task, env_type="gymnasium", seed=seeds, **self._options)
                self.venv.observation_space, self.venv.action_space  # noqa: B018, created on first access
        self._return[:], self._length[:] = 0.0, 0
        self._begun = True
        observation, info = self.venv.reset()
        return self._convert(observation), self._spread(info, np.arange(self.num_envs))

    def _start_step(self, actions: Any) -> None:
        self.venv.send(actions, np.arange(self.num_envs))

    def _finish_step(self) -> Batch:
        observation, reward, terminated, truncated, info = self.venv.recv()
        reward = reward.astype(np.float64)
        self._return += reward
        self._length += 1
        ended = terminated | truncated
        infos = self._spread(info, np.arange(self.num_envs))
        if ended.any():
            over, finals = np.flatnonzero(ended), self._finals(observation, ended)
            self.venv.send(self._actions.take(over, copy=True), over)  # the actions are ignored
            fresh, *_, info = self.venv.recv()
            observation = copied(observation)
            for whole, part in zip(flatten(observation), flatten(fresh), strict=True):
                whole[over] = part
            infos = self._episodes(self._merge_restart(infos, self._spread(info, over), ended), finals, ended)
        return observation, reward, terminated, truncated, infos

    def _spread(self, info: dict[str, Any], rows: NDArray[np.intp]) -> dict[str, Any]:
        """Return the infos of some environments as infos of all, in Gymnasium's form."""
        own = {key: value for key, value in info.items() if key not in BOOKKEEPING}
        spread: dict[str, Any] = {}
        merge_infos(spread, pick_infos(own, np.ones(len(rows), np.bool_)), rows, self.num_envs)
        return spread


def _import_envpool() -> Any:
    try:
        import envpool
    except ImportError as error:
        raise ConfigError(f"vec=envpool needs EnvPool and cannot import it ({error}); pip install envpool") from error
    return envpool


def _read(envpool: Any, spec: EnvSpec) -> tuple[str, dict[str, Any]]:
    """Return EnvPool's name and options of the recipe's task."""
    check_whole(spec, "envpool")
    task, options, named = spec.id.rpartition(":")[2], spec.arguments, f"env.id={spec.id}"
    if task == SINGLE:
        task = options.pop("task", "")
        named = f"env.kwargs.task={task}"
    known = envpool.list_all_envs()
    if task not in known:
        hint = nearest(task.rpartition("/")[2], known)
        raise ConfigError(f"{named} is not an EnvPool task; {hint} Otherwise use vec=multiprocess")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        allowed = set(envpool.make_spec(task)._config_keys).difference(RESERVED)
    for key in options:
        require(key in allowed, f"env.kwargs.{key} is not an option of EnvPool's {task}; {nearest(key, allowed)}")
    limit = {} if spec.max_episode_steps is None else {"max_episode_steps": spec.max_episode_steps}
    return task, options | limit
