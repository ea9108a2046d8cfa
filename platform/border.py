"""Where configuration becomes objects: every name, type and range is checked here, once, with one clear line.

A section of the configuration names its class by `_target_`; the class's own signature says which keys there are
and of which types, so nothing is declared twice.
"""

import functools
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

from envs.errors import ConfigError, nearest, require

Section = Mapping[str, Any]


def prepare(path: str, section: Section, **parts: Any) -> Callable[[], Any]:
    """Check a section against its target's signature and return the call that builds it.

    Args:
        path: where the section stands in the configuration, for the messages.
        section: plain data with `_target_`, a dotted path.
        parts: what the program adds; only those that the target names are passed on.

    Raises:
        ConfigError: no or unknown target, unknown or missing key, wrong type.
    """
    require(
        isinstance(section, Mapping), f"{path}={section!r} is not a mapping; choose an option of the group '{path}'"
    )
    target = section.get("_target_")
    require(isinstance(target, str), f"{path}._target_ is missing; it names the class, such as 'my_package.es.MyES'")
    try:
        function = pkgutil.resolve_name(str(target))
    except (ImportError, AttributeError, ValueError) as error:
        remedy = "install the package that provides it, or mend the path"
        raise ConfigError(f"{path}._target_={target} cannot be imported ({error}); {remedy}") from error
    return prepare_call(path, function, {key: value for key, value in section.items() if key != "_target_"}, **parts)


def prepare_call(path: str, function: Callable[..., Any], settings: Section, **parts: Any) -> Callable[[], Any]:
    """Like `prepare`, for a function that is at hand."""
    parameters = inspect.signature(function).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    offered = {name: part for name, part in parts.items() if name in parameters or open_ended}
    known = [name for name in parameters if name not in offered]
    for name, value in settings.items():
        if name not in known and not open_ended:
            raise ConfigError(f"{path}.{name} is not a key of {path}; {nearest(name, known)}")
        if name in hints and not _fits(value, hints[name]):
            raise ConfigError(f"{path}.{name}={value!r} has the wrong type; allowed: {_spell(hints[name])}")
    for name in known:
        parameter = parameters[name]
        needed = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        require(name in settings or not needed, f"{path}.{name} is missing; set it in the YAML of {path}")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return functools.partial(_call, path, function, values | offered)


def build(path: str, section: Section, **parts: Any) -> Any:
    """Check a section and build what it names."""
    return prepare(path, section, **parts)()


def _call(path: str, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except ConfigError as error:
        message = str(error)
        # A class names its keys; only the border knows where in the configuration they stand.
        if any(message.startswith((f"{name}=", f"{name}:")) for name in arguments):
            raise ConfigError(f"{path}.{message}") from error
        raise


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in arguments)
    if origin is Literal:
        return value in arguments
    if hint is type(None):
        return value is None
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if hint is str:
        return isinstance(value, str)
    kind = origin or hint
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return isinstance(value, Mapping)
    if isinstance(kind, type) and issubclass(kind, Sequence):
        items = [argument for argument in arguments if argument is not Ellipsis]
        return isinstance(value, list | tuple) and (len(items) != 1 or all(_fits(item, items[0]) for item in value))
    return True


def _spell(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_spell(choice) for choice in arguments))
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if hint is type(None):
        return "null"
    kind = origin or hint
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "a mapping"
    if isinstance(kind, type) and issubclass(kind, Sequence) and kind is not str:
        items = [argument for argument in arguments if argument is not Ellipsis]
        return "a list" + (f" of {_spell(items[0])}" if len(items) == 1 else "")
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(hint, str(hint))
