"""EnvSpec: a picklable, hashable recipe for a Gymnasium environment; `envs.vector` has those for vectors of them.

A recipe, not an environment, is what crosses process borders: every worker cooks its own.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import gymnasium
from gymnasium.error import DependencyNotInstalled, NamespaceNotFound, UnregisteredEnv
from gymnasium.wrappers import TimeLimit

from envs.errors import ConfigError, closest, provide, require, resolve
from envs.ranges import Range, check_fields

REFUSALS = (TypeError, ValueError, AssertionError, NotImplementedError)  # how constructors refuse their arguments


@dataclass(frozen=True)
class Frozen:
    """A mapping or a list made hashable."""

    kind: type  # dict or list
    items: tuple[Any, ...]  # of a mapping: (key, value) pairs, sorted by key

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


@dataclass(frozen=True)
class EnvSpec:
    """How to make an environment.

    Attributes:
        id: a Gymnasium id; ``package:Name-v0`` imports the package that registers it first.
        kwargs: constructor arguments.
        wrappers: wrappers from the inside out, each a mapping with ``_target_`` (dotted path) and its arguments.
        max_episode_steps: truncate after so many steps; None keeps the environment's own limit.
        fresh: rebuild the environment for every episode. An episode then depends on its seed alone even where
            ``reset`` leaks history, as Box2D's world does in BipedalWalker.
    """

    id: str
    kwargs: Mapping[str, Any]
    wrappers: tuple[Mapping[str, Any], ...]
    max_episode_steps: Annotated[int | None, Range("must be at least 1, or null for no other limit", low=1)]
    fresh: bool

    def __post_init__(self) -> None:
        check_fields(self)
        for wrapper in self.wrappers:
            require(
                "_target_" in dict(wrapper), f"wrappers: {dict(wrapper)} lacks '_target_', the wrapper's dotted path"
            )
        object.__setattr__(self, "kwargs", freeze(dict(self.kwargs)))
        object.__setattr__(self, "wrappers", tuple(freeze(dict(wrapper)) for wrapper in self.wrappers))

    def make(self, render_mode: str | None = None) -> gymnasium.Env:
        """Build one environment.

        Raises:
            ConfigError: unknown id, missing package, or arguments the constructor refuses.
        """
        kwargs = self.arguments | ({} if render_mode is None else {"render_mode": render_mode})
        limit = {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}
        try:
            env = gymnasium.make(self.id, disable_env_checker=True, **limit, **kwargs)
        except NamespaceNotFound as error:
            remedy = (
                "install and name the package that has it, as in `pip install ale-py` and env.id=ale_py:ALE/Pong-v5"
            )
            raise ConfigError(f"env.id={self.id} is not a registered Gymnasium environment; {remedy}") from error
        except UnregisteredEnv as error:
            newest = {re.sub(r"-v\d+$", "", id): id for id in gymnasium.registry}
            close = closest(re.sub(r"-v\d+$", "", self.id), newest)
            hint = f"did you mean '{newest[close]}'?" if close else "gymnasium.pprint_registry() lists those there are"
            raise ConfigError(f"env.id={self.id} is not a registered Gymnasium environment; {hint}") from error
        except DependencyNotInstalled as error:
            raise ConfigError(f"env.id={self.id} needs a package that is not installed: {_one_line(error)}") from error
        except ImportError as error:
            cause = (
                error.__cause__ if isinstance(error.__cause__, ImportError) else error
            )  # Gymnasium's own has no name
            raise ConfigError(f"env.id={self.id} cannot be imported ({_one_line(cause)}); {provide(cause)}") from error
        except REFUSALS as error:
            raise ConfigError(f"env.kwargs={kwargs} is refused by {self.id}: {_one_line(error)}") from error
        except gymnasium.error.Error as error:
            raise ConfigError(f"env.id={self.id}: {_one_line(error)}") from error
        for wrapper in self.wrappers:
            env = _wrap(env, dict(thaw(wrapper)))
        return env

    def wrapped(self, target: str) -> "EnvSpec":
        """The same recipe with one more wrapper, without arguments, on the outside."""
        return replace(self, wrappers=(*self.wrappers, {"_target_": target}))

    @property
    def arguments(self) -> dict[str, Any]:
        """`kwargs` as a mapping again."""
        return dict(thaw(self.kwargs))

    @property
    def fields(self) -> dict[str, Any]:
        """The recipe as plain data: what it is built from again."""
        wrappers = [dict(thaw(wrapper)) for wrapper in self.wrappers]
        own = {name: getattr(self, name) for name in ("id", "max_episode_steps", "fresh")}
        return own | {"kwargs": self.arguments, "wrappers": wrappers}

    def as_array(self) -> "EnvSpec":
        """The same recipe with observations as arrays: dictionaries, tuples and choices are flattened."""
        if isinstance(self.spaces[0], gymnasium.spaces.Box):
            return self
        return self.wrapped("gymnasium.wrappers.FlattenObservation")

    def limited(self, max_episode_steps: int) -> "EnvSpec":
        """The same recipe, with this limit where neither it nor the environment has one."""
        return self if self._made[1] else replace(self, max_episode_steps=max_episode_steps)

    @property
    def spaces(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        """(observation space, action space), read from an environment made for the purpose."""
        return self._made[0]

    @functools.cached_property
    def _made(self) -> tuple[tuple[gymnasium.Space, gymnasium.Space], bool]:
        """What an environment made for the purpose says: its spaces, and whether its episodes are limited."""
        env = self.make()
        try:
            return (env.observation_space, env.action_space), _is_limited(env)
        finally:
            env.close()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_made"}


def _wrap(env: gymnasium.Env, wrapper: dict[str, Any]) -> gymnasium.Env:
    target = wrapper.pop("_target_")
    wrap = resolve(target, "env.wrappers: _target_")
    try:
        wrapped = wrap(env, **wrapper)
    except REFUSALS as error:
        raise ConfigError(f"env.wrappers: {target} refuses {wrapper}: {_one_line(error)}") from error
    require(isinstance(wrapped, gymnasium.Env), f"env.wrappers: {target} does not give an environment; name a wrapper")
    return wrapped


def _is_limited(env: gymnasium.Env) -> bool:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return True
        env = env.env
    return False


def freeze(value: Any) -> Any:
    """Make plain data hashable; mappings, lists and tuples stay apart."""
    if isinstance(value, Mapping):
        return Frozen(dict, tuple(sorted((key, freeze(item)) for key, item in value.items())))
    if isinstance(value, list):
        return Frozen(list, tuple(map(freeze, value)))
    return tuple(map(freeze, value)) if isinstance(value, tuple) else value


def thaw(value: Any) -> Any:
    if isinstance(value, Frozen):
        return {key: thaw(item) for key, item in value} if value.kind is dict else [thaw(item) for item in value]
    return tuple(map(thaw, value)) if isinstance(value, tuple) else value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
