"""Build what a section of the configuration names; keys, types and ranges are checked here, once.

A section of the configuration names its class by `_target_`; the class's own signature says which keys there are
and of which types, so nothing is declared twice.
"""

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

from paddock.algos.common.recipe import AlgorithmRecipe
from paddock.envs.errors import ConfigError, nearest, require, resolve

from .vocabulary import find_usual

Section = Mapping[str, Any]

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def build(path: str, section: Section, **parts: Any) -> Any:
    """Check a section against its target's signature, and build what it names.

    Args:
        path: where the section stands in the configuration, for the messages.
        section: plain data with `_target_`, a dotted path.
        parts: what the program adds; only those that the target names are passed on.

    Raises:
        ConfigError: no or unknown target, unknown or missing key, wrong type.
    """
    target, settings = _split(path, section)
    return call_checked(path, target, settings, **parts)


def prepare(path: str, section: Section, **parts: Any) -> AlgorithmRecipe:
    """Check an algorithm's section as `build` does, and return how to make it."""
    target, settings = _split(path, section)
    values, offered = _check(path, target, settings, parts)
    _call(path, target, values, offered)  # which says what is wrong with the values
    return AlgorithmRecipe(target, values, frozenset(offered))


def call_checked(path: str, function: Callable[..., Any], settings: Section, **parts: Any) -> Any:
    """Like `build`, for a function that is at hand."""
    values, offered = _check(path, function, settings, parts)
    return _call(path, function, values, offered)


def _split(path: str, section: Section) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return what a section names, and its settings."""
    require(isinstance(section, Mapping), f"{path}={section!r} is not a mapping; choose an option of the group")
    target = section.get("_target_")
    remedy = "name a class there, such as `_target_: my_package.es.MyES`"
    require(isinstance(target, str), f"{path} has no _target_; {remedy}")
    settings = {key: value for key, value in section.items() if key != "_target_"}
    return resolve(str(target), f"{path}._target_"), settings


def _check(
    path: str, function: Callable[..., Any], settings: Section, parts: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings as the function takes them, and the parts that it names."""
    require(isinstance(settings, Mapping), f"{path}={settings!r} is not a mapping; set its keys: {path}.<key>=...")
    parameters = inspect.signature(function).parameters.values()
    hints = _hints(function)
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    named = {parameter.name: parameter for parameter in parameters if parameter.kind in NAMED}
    offered = {name: part for name, part in parts.items() if name in named or open_ended}
    known = [name for name in named if name not in offered]
    at, values = f"{path}." if path else "", {}
    for name, value in settings.items():
        if name not in known and not (open_ended and name not in offered):
            usual = [key for key in known if f"{at}{key}" in find_usual(str(name))]
            what = f"{at}{name} is not a key of {path or 'the configuration'}"
            raise ConfigError(f"{what}; {nearest([*usual, str(name)][0], known)}")
        require(value != "???", f"{at}{name} has no value; give one: {at}{name}=...")
        # A number such as 1e6 is a float in YAML, whole or not.
        if isinstance(value, float) and value.is_integer() and not _fits(value, hints.get(name)):
            value = int(value)
        if not _fits(value, hints.get(name)):
            shown = name.removesuffix("_")  # an argument whose key is a word of Python's own
            raise ConfigError(f"{at}{shown}={value!r} has the wrong type; allowed: {_describe(hints[name])}")
        values[name] = tuple(value) if isinstance(value, list) else value
    for name in known:
        needed = named[name].default is inspect.Parameter.empty
        require(name in settings or not needed, f"{at}{name} is missing; set it in the YAML of {path or 'the group'}")
    return values, offered


def _call(path: str, function: Callable[..., Any], values: dict[str, Any], offered: dict[str, Any]) -> Any:
    try:
        return function(**values, **offered)
    except ConfigError as error:
        message = str(error)
        # A class names its keys; only the border knows where in the configuration they stand.
        if path and any(message.startswith((f"{name}=", f"{name}:", f"{name}.")) for name in values):
            raise ConfigError(f"{path}.{message}") from error
        raise


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except (NameError, TypeError):
        # Names that somebody's module imports for type checkers only: its types are then not checked.
        return {}


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in arguments)
    if origin is Literal:
        return value in arguments
    if hint is type(None):
        return value is None
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        # Whole ones may be too large to be told by math.isfinite.
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    kind = origin or hint
    if kind in (bool, str):
        return isinstance(value, kind)
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return isinstance(value, Mapping)
    if isinstance(kind, type) and issubclass(kind, Sequence):
        items = _items(arguments)
        return isinstance(value, list | tuple) and (len(items) != 1 or all(_fits(item, items[0]) for item in value))
    return True


def _describe(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_describe(choice) for choice in arguments))
    if origin is Literal:
        return ", ".join(map(str, arguments))
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    if hint in names:
        return names[hint]
    kind = origin or hint
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "a mapping"
    if isinstance(kind, type) and issubclass(kind, Sequence):
        items = _items(arguments)
        return "a list" + (f", each {_describe(items[0])}" if len(items) == 1 else "")
    return str(hint)


def _items(arguments: Sequence[Any]) -> list[Any]:
    """Return the types of a sequence's items."""
    return [argument for argument in arguments if argument is not Ellipsis]
