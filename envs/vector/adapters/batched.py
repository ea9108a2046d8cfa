"""Adapter of batched simulations such as Gymnasium's `CartPoleVectorEnv`."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode

from paddock.envs.errors import ConfigError, PaddockError, one_line, provide, require, resolve
from paddock.envs.making import RAISED, REFUSALS
from paddock.envs.spaces.views import copied
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.adapters.lockstep import LockStepVectorEnv
from paddock.envs.vector.contract import (
    Batch,
    EnvError,
    Episodes,
    Seeds,
    Started,
    VectorMisuse,
    keyed_seed,
    read_episodes,
)
from paddock.envs.vector.slots import format_traceback


class BatchedVectorEnv(LockStepVectorEnv):
    """Adapter of a `gymnasium.vector.VectorEnv` with same-step autoreset or restarts by the caller.

    All environments share one seed, so `begin` makes runs reproducible but cannot start single episodes.
    """

    keyed = False

    def __init__(
        self,
        venv: gymnasium.vector.VectorEnv,
        spec: EnvSpec,
        autoreset: AutoresetMode,
        copy: bool = True,
        packed: bool = False,
    ) -> None:
        """Adapt `venv`, whose autoreset mode must be `autoreset` or DISABLED; `copy`, `packed` as in `Vec.make`."""
        self._wrap_vector(venv, spec, spaces_of(venv), venv.num_envs, autoreset, packed)
        self._restarts = autoreset is AutoresetMode.SAME_STEP and mode_of(venv) is AutoresetMode.DISABLED
        self._copy = copy
        self._given: Any = None

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """Start episodes; `options` are those of the vector environment."""
        if seed is not None and not isinstance(seed, int | np.integer):
            raise VectorMisuse(f"reset: this vector has a single seed, not {len(seed)}; pass an int")
        mask = self._parse_reset(options)
        self._return[mask], self._length[mask], self._ended[mask] = 0.0, 0, False
        given = None if options is None else dict(options)  # Gymnasium's vectors remove the mask from it
        number = None if seed is None else int(seed)
        observation, infos = self._call("reset", self.venv.reset, seed=number, options=given)
        self._begun = True
        return self._convert(self._own(observation)), infos

    def begin(self, seed: int, episodes: Episodes = None) -> Started:
        """Start all environments on one seed derived from `seed` and `episodes`."""
        mixed = seed
        for i, number in enumerate(read_episodes(episodes, self.num_envs)):
            mixed = keyed_seed(mixed, i, number)
        return self.reset(seed=mixed)

    def _drain(self) -> None:
        self._sent = False  # the step has not started

    def _start_step(self, actions: Any) -> None:
        self._given = actions

    def _finish_step(self) -> Batch:
        observation, reward, terminated, truncated, infos = self._call("step", self.venv.step, self._given)
        reward = np.array(reward, np.float64)
        terminated, truncated = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        self._return += reward
        self._length += 1
        ended = terminated | truncated
        if self.autoreset is AutoresetMode.SAME_STEP and ended.any():
            final_obs = self._finals(observation if self._restarts else infos["final_obs"], ended)
            if self._restarts:
                observation, begun = self._call("reset", self.venv.reset, options={"reset_mask": ended.copy()})
                infos = self._merge_restart(infos, begun, ended)
            infos = self._episodes(infos, final_obs, ended)
        return self._own(observation), reward, terminated, truncated, infos

    def _call(self, verb: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except (PaddockError, KeyboardInterrupt):
            raise
        except RAISED as error:
            what = f"{self._id} raised in {verb}: {type(error).__name__}: {one_line(error)}"
            raise EnvError(f"the vector environment of {what}\n{format_traceback(error)}") from error

    def _own(self, observation: Any) -> Any:
        return copied(observation) if self._copy else observation


def make_batched(
    spec: EnvSpec,
    num_envs: int,
    target: str | None,
    autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
    copy: bool = True,
    packed: bool = False,
) -> BatchedVectorEnv:
    """Build the vector environment of a class or of an id; `autoreset`, `copy` and `packed` as in `Vec.make`.

    `target` is the dotted path of the class that runs `spec.id`; None: its registered `vector_entry_point`.

    Raises:
        ConfigError: there is none, it refuses its arguments, or it lacks the autoreset mode.
    """
    check_whole(spec, "vector")
    creator = _entry_point(spec.id) if target is None else resolve(target, "vec.target")
    limit = {} if spec.max_episode_steps is None else {"max_episode_steps": spec.max_episode_steps}
    modes = [autoreset] if autoreset is AutoresetMode.DISABLED else [autoreset, AutoresetMode.DISABLED]
    offers = "autoreset_mode" in inspect.signature(creator).parameters
    choices: list[dict[str, Any]] = [{"autoreset_mode": mode} for mode in modes] if offers else [{}]
    for choice in choices:
        try:
            venv = _build(spec, num_envs, None if target is None else creator, {**spec.arguments, **limit, **choice})
        except ConfigError:
            if choice is choices[-1]:
                raise
            continue
        if mode_of(venv) in modes:
            _check_spaces(spec, venv, target)
            return BatchedVectorEnv(venv, spec, autoreset, copy, packed)
        venv.close()
    name, own = target or f"the vector environment of {spec.id}", getattr(mode_of(venv), "value", None)
    needed = " or ".join(mode.value for mode in modes)
    what = f"{name} supports autoreset_mode={own} only, but {needed} is needed"
    raise ConfigError(f"{what}; use vec=serial or vec=multiprocess")


def check_whole(spec: EnvSpec, vec: str) -> None:
    """Raise ConfigError if the recipe needs single Python environments (wrappers, or `fresh`)."""
    check_wrappers(spec, vec)
    cannot = f"env.fresh=true: vec={vec} cannot rebuild an environment for every episode"
    require(not spec.fresh, f"{cannot}; set env.fresh=false, or use vec=serial or vec=multiprocess")


def check_wrappers(spec: EnvSpec, vec: str) -> None:
    """Raise ConfigError if the recipe has wrappers."""
    names = [dict(wrapper)["_target_"] for wrapper in spec.wrappers]
    what = f"env.wrappers={names} cannot wrap the environments inside vec={vec}"
    require(not names, f"{what}; use vec=serial or vec=multiprocess")


def spaces_of(venv: gymnasium.vector.VectorEnv) -> tuple[gymnasium.Space, gymnasium.Space]:
    """Return the spaces of one observation and one action."""
    return venv.single_observation_space, venv.single_action_space


def mode_of(venv: gymnasium.vector.VectorEnv) -> AutoresetMode | None:
    """Return a vector environment's autoreset mode; None if unknown."""
    return venv.metadata.get("autoreset_mode")


def _check_spaces(spec: EnvSpec, venv: gymnasium.vector.VectorEnv, target: str | None) -> None:
    spaces = spaces_of(venv)
    what = f"vec.target={target} has spaces {spaces}, and env.id={spec.id} has {spec.raw_spaces}"
    require(target is None or spaces == spec.raw_spaces, f"{what}; use the same task for both")


def _entry_point(env_id: str) -> Callable[..., Any]:
    module, _, name = env_id.rpartition(":")
    try:
        importlib.import_module(module or "gymnasium")
    except ImportError as error:
        raise ConfigError(f"env.id={env_id} cannot be imported ({error}); {provide(error)}") from error
    entry = getattr(gymnasium.registry.get(name), "vector_entry_point", None)
    if entry is None:
        remedy = "set vec.target to its class, or use vec=serial or vec=multiprocess"
        raise ConfigError(f"env.id={env_id} has no vector environment; {remedy}")
    return load_env_creator(entry) if isinstance(entry, str) else entry


def _build(
    spec: EnvSpec, num_envs: int, creator: Callable[..., Any] | None, arguments: dict[str, Any]
) -> gymnasium.vector.VectorEnv:
    try:
        if creator is not None:
            venv = creator(num_envs=num_envs, **arguments)
        else:
            venv = gymnasium.make_vec(spec.id, num_envs, vectorization_mode="vector_entry_point", **arguments)
    except (*REFUSALS, gymnasium.error.Error) as error:
        raise ConfigError(f"the vector environment of {spec.id} rejects {arguments}: {one_line(error)}") from error
    given = f"vec.target returns a {type(venv).__name__}"
    require(isinstance(venv, gymnasium.vector.VectorEnv), f"{given}; use a subclass of gymnasium.vector.VectorEnv")
    return venv
