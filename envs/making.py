"""Make an environment by its id, wrap it and inspect it; failures are one-line errors."""

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
from paddock.envs.multiagent.adapter import layers
from paddock.envs.multiagent.make import names_factory
from paddock.envs.multiagent.roles import Seats, seats_of
from paddock.envs.multiagent.time_limit import MultiAgentTimeLimit
from paddock.envs.stacks import Stack, find_stack

log = logging.getLogger(__name__)

DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
JAX_LIBRARIES = ("gymnax", "pgx", "brax")  # prefixes of ids that `paddock.envs.bindings.jax_` makes
FILE = re.compile(r"(?:\./)?([\w/.-]+)\.py(?::(\w+))?")  # an id that is a path
RAISED = BaseException  # includes SystemExit of environments; KeyboardInterrupt is raised again
REFUSALS = (TypeError, ValueError, AssertionError, NotImplementedError)  # raised by constructors for their arguments


class EnvConstructionError(ConfigError):
    """An environment's constructor failed for a reason other than its arguments; the message ends in the traceback."""

    details = True


@dataclass(frozen=True)
class EnvProperties:
    """Properties of an environment, read from an instance."""

    seats: Seats  # the agents and their spaces, in order
    limit: int | None  # steps after which episodes are truncated; None: no known limit
    metadata: Mapping[str, Any]  # such as `render_modes`
    stack: Stack | None  # frame stack of observations; None: none, or unknown


@contextlib.contextmanager
def restored_modes() -> Iterator[None]:
    """Restore NumPy's error state and torch's grad mode, which constructors may change."""
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
    """Make the environment of a registered id or of a factory `module:name`.

    Raises:
        ConfigError: the id is unknown, a package is missing, or the constructor refuses its arguments.
    """
    if match := FILE.fullmatch(id):
        module, name = match[1].replace("/", "."), match[2] or "ClassName"
        raise ConfigError(f"env.id={id}: env.id takes MODULE:NAME, not a path; use env.id={module}:{name}")
    limit = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    try:
        if id.partition(":")[0] in JAX_LIBRARIES:
            return _make_jax(id, kwargs, max_episode_steps)
        if names_factory(id):
            return resolve(id, "env.id")(**kwargs)
        if id in gymnasium.registry and str(gymnasium.registry[id].entry_point).startswith("gymnasium.envs.mujoco"):
            importlib.import_module("paddock.envs.bindings.mujoco")  # keeps warnings out of the working directory
        return gymnasium.make(id, disable_env_checker=True, **limit, **kwargs)
    except NamespaceNotFound as error:
        remedy = "install its package and specify it, as in `pip install ale-py` and env.id=ale_py:ALE/Pong-v5"
        raise ConfigError(f"env.id={id} is not a registered Gymnasium environment; {remedy}") from error
    except UnregisteredEnv as error:
        newest = {re.sub(r"-v\d+$", "", known): known for known in gymnasium.registry}
        close = closest(re.sub(r"-v\d+$", "", id), newest)
        if DOTTED.fullmatch(id):
            close, newest = id, {id: ":".join(id.rsplit(".", 1))}
        hint = f"did you mean '{newest[close]}'?" if close else "gymnasium.pprint_registry() lists all"
        raise ConfigError(f"env.id={id} is not a registered Gymnasium environment; {hint}") from error
    except DependencyNotInstalled as error:
        raise ConfigError(f"env.id={id} needs a package that is not installed: {one_line(error)}") from error
    except ImportError as error:
        cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error  # Gymnasium's has no name
        raise ConfigError(f"env.id={id} cannot be imported ({one_line(cause)}); {provide(cause)}") from error
    except REFUSALS as error:
        if not kwargs and not isinstance(error, TypeError):  # a TypeError may be about a missing argument
            raise
        raise ConfigError(f"{id} rejects env.kwargs={kwargs}: {one_line(error)}") from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"env.id={id}: {one_line(error)}") from error


def _make_jax(id: str, kwargs: dict[str, Any], max_episode_steps: int | None) -> gymnasium.Env[Any, Any]:
    from paddock.envs.bindings.jax_ import JaxEnv, make_task  # JAX takes a second to import

    task = make_task(id, kwargs, max_episode_steps)
    limit = max_episode_steps or task.limit
    return JaxEnv(task) if limit is None else TimeLimit(JaxEnv(task), limit)


def wrap(env: Any, wrapper: dict[str, Any]) -> Any:
    """Wrap an environment with `_target_` and its arguments; raise ConfigError if the wrapper refuses them.

    Arguments may be dotted paths of callables, such as `numpy.sign`, or mappings with another `_target_`.
    """
    target = wrapper.pop("_target_")
    wrapping = resolve(target, "env.wrappers: _target_")
    key = f"env.wrappers: {target}"
    try:
        wrapped = wrapping(env, **{name: _resolve_argument(value, f"{key}: {name}") for name, value in wrapper.items()})
    except REFUSALS as error:
        raise ConfigError(f"env.wrappers: {target} rejects {wrapper}: {one_line(error)}") from error
    alike = isinstance(wrapped, gymnasium.Env) or not isinstance(env, gymnasium.Env)
    require(alike, f"env.wrappers: {target} does not return an environment; use a wrapper")
    return wrapped


def _resolve_argument(value: Any, key: str) -> Any:
    """Return a wrapper's argument with dotted paths resolved; raise ConfigError if one does not exist."""
    if isinstance(value, Mapping):
        given = {name: _resolve_argument(part, key) for name, part in value.items() if name != "_target_"}
        return resolve(value["_target_"], key)(**given) if "_target_" in value else given
    if isinstance(value, str) and DOTTED.fullmatch(value) and importlib.util.find_spec(value.partition(".")[0]):
        return resolve(value, key)
    return value


def inspect_env(make: Callable[[], Any], id: str, what: str) -> EnvProperties:
    """Make an environment, return its properties and close it.

    Raises:
        ConfigError: it cannot be made, for which `what` is the message, or it lacks spaces.
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
        )
    finally:
        close_all([env], id)


def close_all(envs: Iterable[Any], id: str) -> None:
    """Close environments; log a warning for each that raises."""
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
