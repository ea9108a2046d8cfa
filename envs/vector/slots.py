"""Consecutive environments of a vector, stepped one after another in one process."""

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from paddock.envs.errors import PaddockError, one_line
from paddock.envs.making import RAISED, close_all
from paddock.envs.multiagent.adapter import find_owner, set_attribute
from paddock.envs.spaces.codecs import SpaceMismatch
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.buffers import AnyBuffer, WriteError, buffer_of
from paddock.envs.vector.contract import EnvError, keyed_seed
from paddock.envs.vector.infos import RESERVED, add_info
from paddock.envs.vector.storage import Layouts, RowIndex, numbers
from paddock.envs.vector.table import Arrays, envs_of

NON_NUMERIC = frozenset((type(None), str, bytes))  # types that NumPy would convert to numbers, such as None to NaN
NO_ENV = -1  # value of `active_env` while no environment runs


def build(spec: EnvSpec, numbers: range, active_env: memoryview | list[int]) -> list[gymnasium.Env]:
    """Make environments; if one fails, close the others.

    Raises:
        ConfigError: the recipe is invalid.
        EnvError: a constructor raised another error.
    """
    envs: list[gymnasium.Env] = []
    try:
        for i in numbers:
            active_env[0] = i
            try:
                envs.append(spec.make())
            except RAISED as error:
                raise_named(error, spec, i, "make")
    except BaseException:  # Ctrl-C too
        close_all(envs, spec.id)
        raise
    active_env[0] = NO_ENV
    return envs


class EnvSlots(ABC):
    """Base of consecutive environments of a vector, for one agent or for several.

    They read actions from the vector's arrays and write results there. Methods take rows of the vector (all rows of an
    environment) and return infos in Gymnasium's form, one row for each.
    """

    _observation: AnyBuffer

    def __init__(
        self,
        spec: EnvSpec,
        envs: list[Any],
        first: int,
        arrays: Arrays,
        layouts: Layouts,
        autoreset: AutoresetMode,
        active_env: memoryview | list[int],
    ) -> None:
        """Take environments of `build`; `first` is the index of the first in the vector.

        `active_env[0]` is set to the index of the running environment, or to NO_ENV.
        """
        self.envs = envs
        self._agents = layouts.agents
        self._spec = spec
        self._first = first
        self._arrays = arrays
        self._same_step = autoreset is AutoresetMode.SAME_STEP
        self._active_env = active_env
        self._key: int | None = None  # of episode seeds, set by `begin`
        self._numbers: Sequence[int] = range(first, first + len(envs))  # of environments, in keyed seeds
        self._started = [False] * len(envs)  # has had an episode
        self._prepare(layouts)

    @abstractmethod
    def _prepare(self, layouts: Layouts) -> None:
        """Set up the rest of the subclass."""

    @abstractmethod
    def step(self, rows: RowIndex) -> dict[str, Any]:
        """Step these environments, and restart those that end in the same step.

        Raises:
            EnvError: an environment raised or returned an invalid observation; no episode ends then.
        """

    def reset(self, rows: RowIndex, seeds: Sequence[int | None], options: dict[str, Any]) -> dict[str, Any]:
        """Start an episode on each seed; later episodes follow Gymnasium's seeding."""
        self._key = None
        return self._start(rows, seeds, options)

    def begin(self, rows: RowIndex, key: int, episodes: Sequence[int]) -> dict[str, Any]:
        """Start an episode of each number on keyed seeds; later episodes take the next numbers."""
        self._key = key
        envs = envs_of(rows, len(self._agents))
        self._arrays.episode[envs] = episodes
        seeds = [self._keyed(i, number) for i, number in zip(numbers(envs), episodes, strict=True)]
        return self._start(rows, seeds, {})

    @abstractmethod
    def _start(self, rows: RowIndex, seeds: Sequence[int | None], options: dict[str, Any]) -> dict[str, Any]:
        """Reset these environments and write the results."""

    @abstractmethod
    def _rebuild(self, k: int, seed: int | None) -> int | None:
        """Rebuild the k-th environment; return the seed of its next episode."""

    @abstractmethod
    def _owner(self, row: int) -> tuple[str, int]:
        """Return a row's label for messages and the index of its environment."""

    def renumber(self, numbers: Sequence[int]) -> None:
        """Set the environments' numbers in keyed seeds."""
        self._numbers = numbers

    def call(self, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
        """Return the result of each environment's method, or the value of its attribute."""

        def get(env: Any, _: Any) -> Any:
            attribute = getattr(find_owner(env, name) or env, name)
            return attribute(*arguments, **keywords) if callable(attribute) else attribute

        return self._each(get, self.envs, name)

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each environment."""
        self._each(lambda env, value: set_attribute(env, name, value), values, f"set_attr of {name}")

    def _each(self, function: Callable[[Any, Any], Any], values: Sequence[Any], verb: str) -> list[Any]:
        """Call a function with each environment and value; raise EnvError for an environment that fails."""
        found = []
        for i, (env, value) in enumerate(zip(self.envs, values, strict=True), self._first):
            self._active_env[0] = i
            try:
                found.append(function(env, value))
            except RAISED as error:
                raise_named(error, self._spec, i, verb)
        self._active_env[0] = NO_ENV
        return found

    def close(self) -> None:
        """Close every environment."""
        close_all(self.envs, self._spec.id)

    def _keyed(self, i: int, episode: int) -> int:
        assert self._key is not None
        return keyed_seed(self._key, self._numbers[i - self._first], episode)

    def _reset(self, i: int, seed: int | None, options: dict[str, Any]) -> tuple[Any, dict[Any, Any]]:
        self._active_env[0] = i
        k = i - self._first
        try:
            if self._spec.fresh and self._started[k]:
                seed = self._rebuild(k, seed)
            self._started[k] = True
            started: tuple[Any, dict[Any, Any]] = self.envs[k].reset(seed=seed, options=options or None)
        except RAISED as error:
            raise_named(error, self._spec, i, "reset")
        check_started(started, self._spec, i)
        return started

    def _add_info(
        self, infos: dict[str, Any], info: dict[str, Any], at: int, size: int, row: int, final: bool = False
    ) -> None:
        """Add a row's info, final or not, at one of `size` rows; raise EnvError if it has a reserved key."""
        if final:
            info = {"final_info": info}
        elif not RESERVED.isdisjoint(info):
            names = ", ".join(sorted(RESERVED.intersection(info)))
            what = f"{self._owner(row)[0]} ({self._spec.id}): an info has {names}"
            raise EnvError(f"{what}, which are reserved keys; rename or remove them in a wrapper")
        add_info(infos, info, at, size)

    def _write(self, rows: RowIndex, observations: list[Any]) -> None:
        try:
            self._observation.write(rows, observations)
        except WriteError as refused:
            raise_mismatch(refused, self._spec, *self._owner(refused.row))


class Slots(EnvSlots):
    """Consecutive environments of one agent."""

    def _prepare(self, layouts: Layouts) -> None:
        arrays = self._arrays
        self._steps = [env.step for env in self.envs]
        self._observation = buffer_of(layouts.observation_space, layouts.observation, arrays.observation)
        self._action = buffer_of(layouts.action_space, layouts.action, arrays.action)
        self._shape = arrays.observation.shape[1:] if layouts.observation.plain else None

    def step(self, rows: RowIndex) -> dict[str, Any]:
        """See `EnvSlots.step`."""
        arrays, active_env, same_step = self._arrays, self._active_env, self._same_step
        envs = numbers(rows)
        steps = self._of(self._steps, rows)
        observations: list[Any] = []
        rewards: list[Any] = []
        ends: list[Any] = []
        cuts: list[Any] = []
        infos: dict[str, Any] = {}
        over: list[int] = []  # of `envs`, where an episode ended
        try:
            for i, step, action in zip(envs, steps, self._action.take_each(rows), strict=True):
                active_env[0] = i
                observation, reward, terminated, truncated, info = step(action)
                if same_step and (terminated or truncated):
                    over.append(len(rewards))
                    if info:
                        self._add_info(infos, info, len(rewards), len(envs), i, final=True)
                elif info:
                    self._add_info(infos, info, len(rewards), len(envs), i)
                observations.append(observation)
                rewards.append(reward)
                ends.append(terminated)
                cuts.append(truncated)
        except RAISED as error:
            raise_named(error, self._spec, active_env[0], "step")
        try:
            arrays.reward[rows], arrays.terminated[rows], arrays.truncated[rows] = rewards, ends, cuts
            fit = NON_NUMERIC.isdisjoint(map(type, chain(rewards, ends, cuts)))
        except RAISED:
            fit = False
        if not fit:
            for i, *given in zip(envs, rewards, ends, cuts, strict=True):
                check_numbers(given, self._spec, f"environment {i}")
        self._write(rows, observations)
        fresh = []
        for k in over:
            i = envs[k]
            seed = None if self._key is None else self._keyed(i, int(arrays.episode[i]) + 1)
            observation, info = self._reset(i, seed, {})
            fresh.append(observation)
            if info:
                self._add_info(infos, info, k, len(envs), i)
        # Written last: if an environment fails above, no episode has ended.
        arrays.running_return[rows] += arrays.reward[rows]
        arrays.running_length[rows] += 1
        for k, observation in zip(over, fresh, strict=True):
            i = envs[k]
            arrays.final[i] = arrays.observation[i]
            arrays.end(i)
            self._write_one(i, observation)  # after `end`, by which the parent attributes a later crash
        active_env[0] = NO_ENV
        return infos

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """See `EnvSlots.set_attr`."""
        super().set_attr(name, values)
        self._steps = [env.step for env in self.envs]

    def _of(self, things: list[Any], rows: RowIndex) -> list[Any]:
        if isinstance(rows, slice):
            return things[rows.start - self._first : rows.stop - self._first]
        return [things[i - self._first] for i in rows.tolist()]

    def _start(self, rows: RowIndex, seeds: Sequence[int | None], options: dict[str, Any]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        observations = []
        envs = numbers(rows)
        for k, (i, seed) in enumerate(zip(envs, seeds, strict=True)):
            observation, info = self._reset(i, seed, options)
            observations.append(observation)
            self._add_info(infos, info, k, len(envs), i)
        if observations:
            self._write(rows, observations)
        self._arrays.running_return[rows] = 0
        self._arrays.running_length[rows] = 0
        self._active_env[0] = NO_ENV
        return infos

    def _rebuild(self, k: int, seed: int | None) -> int:
        env, own = rebuild(self.envs[k], self._spec, seed)
        self.envs[k], self._steps[k] = env, env.step
        return own

    def _owner(self, row: int) -> tuple[str, int]:
        return f"environment {row}", row

    def _write_one(self, i: int, observation: Any) -> None:
        array = self._arrays.observation
        if isinstance(observation, np.ndarray) and (observation.shape, observation.dtype) == (self._shape, array.dtype):
            array[i] = observation
        else:
            self._write(slice(i, i + 1), [observation])


def check_started(started: Any, spec: EnvSpec, i: int) -> None:
    """Raise EnvError unless environment i returned (observation, info) from reset."""
    if not (isinstance(started, tuple | list) and len(started) == 2 and isinstance(started[1], Mapping)):
        what = f"environment {i} ({spec.id}) did not return (observation, info) from reset"
        raise EnvError(f"{what}; the info may be an empty dict")


def check_numbers(given: Sequence[Any], spec: EnvSpec, label: str) -> None:
    """Raise EnvError unless a reward, and the optional flags after it, are numbers."""
    for name, one in zip(("reward", "terminated", "truncated"), given, strict=False):
        try:
            fits = type(one) not in NON_NUMERIC and np.asarray(one, np.float64).ndim == 0
        except (TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            raise EnvError(f"{label} ({spec.id}) returned {name} as {type(one).__name__}; return one number")


def rebuild(env: gymnasium.Env, spec: EnvSpec, seed: int | None) -> tuple[gymnasium.Env, int]:
    """Return a new environment for an old one, and its seed: the given one or one sampled by the old environment."""
    if seed is None:
        seed = int(env.unwrapped.np_random.integers(2**31))
    close_all([env], spec.id)
    return spec.make(), seed


def raise_named(error: BaseException, spec: EnvSpec, i: int, verb: str) -> NoReturn:
    """Raise EnvError with the traceback for an error of environment i; Ctrl-C and our errors are raised unchanged."""
    if isinstance(error, (PaddockError, KeyboardInterrupt, GeneratorExit)):
        raise error
    what = f"raised in {verb}: {type(error).__name__}: {one_line(error)}"
    raise EnvError(f"environment {i} ({spec.id}) {what}\n{format_traceback(error)}") from error


def raise_mismatch(refused: WriteError, spec: EnvSpec, label: str, i: int) -> NoReturn:
    """Raise EnvError for an observation of environment i that does not fit its space."""
    if not isinstance(refused.cause, SpaceMismatch):
        raise_named(refused.cause, spec, i, "step")
    what = f"{label} ({spec.id}) returned an observation with {refused.cause}"
    raise EnvError(f"{what}; fix the environment or its observation_space") from None


def format_traceback(error: BaseException) -> str:
    """Return an error's traceback as Python prints it."""
    return "".join(traceback.format_exception(error)).rstrip()
