"""Make an environment by its id, wrap it, and look at what it is; what goes wrong in that ends in one line."""

import contextlib
import functools
import importlib.util
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import DependencyNotInstalled, NamespaceNotFound, UnregisteredEnv
from gymnasium.wrappers import TimeLimit

from paddock.envs.errors import ConfigError, PaddockError, closest, one_line, provide, require, resolve
from paddock.envs.multiagent.adapter import find_owner, layers
from paddock.envs.multiagent.make import names_factory
from paddock.envs.multiagent.roles import Seats, seats_of
from paddock.envs.multiagent.time_limit import MultiAgentTimeLimit
from paddock.envs.stacks import Stack, find_stack

log = logging.getLogger(__name__)

DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
RAISED = BaseException  # an environment's own exit does not end our process; Ctrl-C is raised again
REFUSALS = (TypeError, ValueError, AssertionError, NotImplementedError)  # how constructors refuse their arguments


class EnvConstructionError(ConfigError):
    """An environment's constructor raised what is no refusal of its arguments; the text ends in its traceback."""

    details = True


@dataclass(frozen=True)
class EnvProperties:
    """The properties of an environment that was made to be looked at."""

    seats: Seats  # the agents and their spaces, in order
    limit: int | None  # steps after which something truncates its episodes; None: nothing that is known
    metadata: Mapping[str, Any]  # such as `render_modes`
    stack: Stack | None  # how observations are stacks of frames; None: they are none, or it is not known
    takes_signals: bool  # whether it has a method `receive_signal(key, value)`


@contextlib.contextmanager
def restored_modes() -> Iterator[None]:
    """Restore NumPy's error state and torch's grad mode, which constructors of environments may set."""
    torch: Any = sys.modules.get("torch")
    grad = torch is None or torch.is_grad_enabled()
    try:
        with np.errstate():
            yield
    finally:
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_grad_enabled(grad)


def make_by_id(id: str, kwargs: dict[str, Any], max_episode_steps: int | None) -> Any:
    """Make the environment that is registered by an id, or that the factory gives which it names.

    Raises:
        ConfigError: unknown id, missing package, or arguments the constructor refuses.
    """
    limit = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    try:
        if names_factory(id):
            return resolve(id, "env.id")(**kwargs)
        return gymnasium.make(id, disable_env_checker=True, **limit, **kwargs)
    except NamespaceNotFound as error:
        remedy = "install and name the package that has it, as in `pip install ale-py` and env.id=ale_py:ALE/Pong-v5"
        raise ConfigError(f"env.id={id} is not a registered Gymnasium environment; {remedy}") from error
    except UnregisteredEnv as error:
        newest = {re.sub(r"-v\d+$", "", known): known for known in gymnasium.registry}
        close = closest(re.sub(r"-v\d+$", "", id), newest)
        hint = f"did you mean '{newest[close]}'?" if close else "gymnasium.pprint_registry() lists those there are"
        raise ConfigError(f"env.id={id} is not a registered Gymnasium environment; {hint}") from error
    except DependencyNotInstalled as error:
        raise ConfigError(f"env.id={id} needs a package that is not installed: {one_line(error)}") from error
    except ImportError as error:
        cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error  # Gymnasium's own has no name
        raise ConfigError(f"env.id={id} cannot be imported ({one_line(cause)}); {provide(cause)}") from error
    except REFUSALS as error:
        if not kwargs and not isinstance(error, TypeError):  # a TypeError may name an argument that is missing
            raise
        raise ConfigError(f"env.kwargs={kwargs} is refused by {id}: {one_line(error)}") from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"env.id={id}: {one_line(error)}") from error


def wrap(env: Any, wrapper: dict[str, Any]) -> Any:
    """Return an environment in a wrapper, given by `_target_` and its arguments; ConfigError where that refuses.

    Arguments may be callables by their dotted paths, such as `numpy.sign`, or mappings with a `_target_` of their own.
    """
    target = wrapper.pop("_target_")
    wrapping = resolve(target, "env.wrappers: _target_")
    key = f"env.wrappers: {target}"
    try:
        wrapped = wrapping(env, **{name: _resolve_argument(value, f"{key}: {name}") for name, value in wrapper.items()})
    except REFUSALS as error:
        raise ConfigError(f"env.wrappers: {target} refuses {wrapper}: {one_line(error)}") from error
    alike = isinstance(wrapped, gymnasium.Env) or not isinstance(env, gymnasium.Env)
    require(alike, f"env.wrappers: {target} does not give an environment; name a wrapper")
    return wrapped


def _resolve_argument(value: Any, key: str) -> Any:
    """Return an argument of a wrapper with what it names in place of names; ConfigError where that does not exist."""
    if isinstance(value, Mapping):
        given = {name: _resolve_argument(part, key) for name, part in value.items() if name != "_target_"}
        return resolve(value["_target_"], key)(**given) if "_target_" in value else given
    if isinstance(value, str) and DOTTED.fullmatch(value) and importlib.util.find_spec(value.partition(".")[0]):
        return resolve(value, key)
    return value


def inspect_env(make: Callable[[], Any], id: str, what: str) -> EnvProperties:
    """Return the properties of an environment that is made for the purpose.

    Args:
        what: "X cannot be made with Y", for an error of its constructor that is no refusal of arguments.

    Raises:
        ConfigError: it cannot be made, or does not say its spaces.
    """
    try:
        env = make()
    except (PaddockError, KeyboardInterrupt):
        raise
    except RAISED as error:
        trace = "".join(traceback.format_exception(error)).rstrip()
        raise EnvConstructionError(f"{what}: {type(error).__name__}: {one_line(error)}\n{trace}") from error
    try:
        return EnvProperties(
            seats=seats_of(env, id),
            limit=_find_limit(env),
            metadata=dict(getattr(env, "metadata", {})),
            stack=find_stack(env),
            takes_signals=find_owner(env, "receive_signal") is not None,
        )
    finally:
        close_all([env], id)


def close_all(envs: Iterable[Any], id: str) -> None:
    """Close environments; where one raises, which costs nobody anything any more, a line of the log says so."""
    for env in envs:
        try:
            env.close()
        except KeyboardInterrupt:
            raise
        except RAISED as error:
            _warn(f"env.id={id} raised in close: {type(error).__name__}: {one_line(error)}")


@functools.cache  # once
def _warn(text: str) -> None:
    log.warning("%s", text)


def _find_limit(env: Any) -> int | None:
    limits = [layer.steps for layer in layers(env) if isinstance(layer, MultiAgentTimeLimit)]
    limits += [layer._max_episode_steps for layer in layers(env) if isinstance(layer, TimeLimit)]
    return min(limits, default=None)
