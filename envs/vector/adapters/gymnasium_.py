"""Gymnasium's own vector environments, sync and async, behind our contract; they are also our peers in benchmarks.

They restart environments in the same step by themselves, so all that the contract asks beyond that (keyed seeds,
statistics, environments rebuilt for every episode, errors with a name) is done by a wrapper around each environment.
"""

import functools
import multiprocessing
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.error import CustomSpaceError
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import create_shared_memory
from numpy.typing import NDArray

from paddock.envs.errors import PaddockError, require
from paddock.envs.making import RAISED
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.adapters.batched import spaces_of
from paddock.envs.vector.adapters.lockstep import LockStepVectorEnv
from paddock.envs.vector.contract import (
    Batch,
    EnvError,
    Episodes,
    Seeds,
    Started,
    check_open,
    keyed_seed,
    read_episodes,
    read_seeds,
)
from paddock.envs.vector.infos import check_names
from paddock.envs.vector.slots import check_numbers, check_started, named, rebuild


class GymnasiumVectorEnv(LockStepVectorEnv):
    """A `SyncVectorEnv`, or an `AsyncVectorEnv` with one process for each environment."""

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        *,
        start_method: str | None,
        autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        packed: bool = False,
    ) -> None:
        """Build the environments.

        Args:
            start_method: how the processes of the async kind begin; None for the sync kind.
            autoreset, copy, packed: see `Vec.make`.

        Raises:
            ConfigError: the environment cannot be made, or processes may not be started here.
        """
        statistics = autoreset is AutoresetMode.SAME_STEP
        slots = [functools.partial(Slot, spec, i, statistics) for i in range(num_envs)]
        self._async = start_method is not None
        venv: SyncVectorEnv | AsyncVectorEnv
        if start_method is None:
            venv = SyncVectorEnv(slots, copy=copy, autoreset_mode=autoreset)
        else:
            require(
                not multiprocessing.current_process().daemon,
                "vec.mode=async starts processes, which a daemonic process may not; choose vec.mode=sync",
            )
            shared = _can_share(spec.raw_spaces[0])
            venv = AsyncVectorEnv(slots, shared, copy, context=start_method, autoreset_mode=autoreset)
        self._adopt(venv, spec, spaces_of(venv), num_envs, autoreset, packed)
        self._keyed = False  # whether the environments seed their episodes by a key
        self._given: Any = None  # the actions that the sync kind was sent

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """Start episodes, as Gymnasium's `reset` does."""
        mask, seeds = self._choose(options), read_seeds(seed, self.num_envs)
        if self._keyed:
            self._call(self.venv.call, "seed_by", None, None)
            self._keyed = False
        return self._start(mask, seeds, options)

    def begin(self, seed: int, episodes: Episodes = None) -> Started:
        """See `VectorEnv.begin`."""
        check_open(self, "begin")
        numbers = read_episodes(episodes, self.num_envs)
        self._drain()
        self._call(self.venv.call, "seed_by", seed, numbers)
        self._keyed = True
        return self._start(np.ones(self.num_envs, np.bool_), None, None)

    def _drain(self) -> None:
        if self._async:
            super()._drain()
        self._sent = False

    def _start(self, mask: NDArray[np.bool_], seeds: Any, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        observation, infos = self._call(self.venv.reset, seed=seeds, options=None if options is None else dict(options))
        self._begun = True
        self._ended[mask] = False
        return self._keep(observation), infos

    def _start_step(self, actions: Any) -> None:
        if self._async:
            self._call(self.venv.step_async, actions)
        else:
            self._given = actions

    def _finish_step(self) -> Batch:
        return self._call(self.venv.step_wait) if self._async else self._call(self.venv.step, self._given)

    def _call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return method(*arguments, **options)
        except PaddockError:
            self.close(terminate=True)
            raise
        except (EOFError, OSError) as error:
            self.close(terminate=True)
            raise EnvError("a process of an environment died; look for the cause in what it logged last") from error


def _can_share(space: Space) -> bool:
    """Return whether Gymnasium has a form in shared memory for observations; others go through pipes."""
    try:
        create_shared_memory(space)
    except (TypeError, CustomSpaceError):
        return False
    return True


class Slot(gymnasium.Wrapper):
    """One environment of the vector; it rebuilds and seeds its episodes, and says what they added up to."""

    def __init__(self, spec: EnvSpec, number: int, statistics: bool) -> None:
        """Build the environment.

        Args:
            number: which environment of the vector this is.
            statistics: whether the info that ends an episode has its return and length.
        """
        super().__init__(spec.make())
        self._recipe = spec
        self._number = number
        self._who = f"environment {number} ({spec.id})"
        self._statistics = statistics
        self._lived = False
        self._key: int | None = None
        self._next_episode = 0  # under that key
        self._return, self._length = 0.0, 0

    def seed_by(self, key: int | None, episodes: Sequence[int] | None) -> None:
        """Key the seeds of coming episodes, from `episodes[number]` on; None leaves them to the environment again."""
        self._key = key
        self._next_episode = 0 if episodes is None else episodes[self._number]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        if self._key is not None:
            seed = keyed_seed(self._key, self._number, self._next_episode)
            self._next_episode += 1
        try:
            if self._recipe.fresh and self._lived:
                self.env, seed = rebuild(self.env, self._recipe, seed)
            self._lived = True
            self._return, self._length = 0.0, 0
            started = self.env.reset(seed=seed, options=options or None)
        except RAISED as error:
            raise named(error, self._recipe, self._number, "reset") from error
        check_started(started, self._recipe, self._number)
        check_names(started[1], self._who)
        return started

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
        except RAISED as error:
            raise named(error, self._recipe, self._number, "step") from error
        check_numbers((reward, terminated, truncated), self._recipe, f"environment {self._number}")
        self._return += float(reward)
        self._length += 1
        if terminated or truncated:
            observation = deepcopy(observation)  # Gymnasium keeps it while the reset may write over it
        info = info or {}  # None says nothing, too
        if self._statistics and (terminated or truncated):
            info = {"episode": {"r": self._return, "l": self._length}, **info}  # which becomes `final_info`
        else:
            check_names(info, self._who)
        return observation, reward, terminated, truncated, info
