"""Build objects from configuration sections, checking keys and types against the signature of `_target_`."""

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


def build(path: str, section: Section, **extra: Any) -> Any:
    """Check a section against its target's signature, and call the target.

    Args:
        path: the section's path in the configuration, for messages.
        section: plain data with `_target_`, a dotted path.
        **extra: further arguments, each passed only if the target has a parameter of that name.
    """
    target, settings = _split(path, section)
    return call_checked(path, target, settings, **extra)


def prepare(path: str, section: Section, **extra: Any) -> AlgorithmRecipe:
    """Check an algorithm's section as `build` does, and return a recipe to build it."""
    target, settings = _split(path, section)
    values, offered = _check(path, target, settings, extra)
    _call(path, target, values, offered)  # to check the values
    return AlgorithmRecipe(target, values, frozenset(offered))


def call_checked(path: str, function: Callable[..., Any], settings: Section, **extra: Any) -> Any:
    """Check settings as `build` does, and call a function with them."""
    values, offered = _check(path, function, settings, extra)
    return _call(path, function, values, offered)


def _split(path: str, section: Section) -> tuple[Callable[..., Any], dict[str, Any]]:
    option = f"{path.replace('.', '/')}={section if isinstance(section, str) else 'OPTION'}"
    require(isinstance(section, Mapping), f"{path}={section!r} is not a mapping; write {option}")
    target = section.get("_target_")
    what = f"{path} has no _target_; set it to a class, such as `_target_: my_package.es.MyES`"
    if path.startswith("track."):
        what = f"{path}.{next(iter(section), '_target_')} needs track={path.removeprefix('track.')}"
    require(isinstance(target, str), what)
    settings = {key: value for key, value in section.items() if key != "_target_"}
    return resolve(str(target), f"{path}._target_"), settings


def _check(
    path: str, function: Callable[..., Any], settings: Section, extra: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings as arguments of the function, and the extra arguments that it accepts."""
    require(isinstance(settings, Mapping), f"{path}={settings!r} is not a mapping; set its keys: {path}.<key>=...")
    parameters = inspect.signature(function).parameters.values()
    hints = _hints(function)
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    named = {parameter.name: parameter for parameter in parameters if parameter.kind in NAMED}
    offered = {name: value for name, value in extra.items() if name in named or open_ended}
    known = [name for name in named if name not in offered]
    at, values = f"{path}." if path else "", {}
    for name, value in settings.items():
        if name not in known and not (open_ended and name not in offered):
            meant = [key.removeprefix(at) for key in find_usual(str(name)) if key.startswith(at)]
            usual = [key for key in meant if key.partition(".")[0] in known]
            what = f"{at}{name} is not a key of {path or 'the configuration'}"
            raise ConfigError(f"{what}; {nearest([*usual, str(name)][0], [*usual, *known])}")
        require(value != "???", f"{at}{name} has no value; set {at}{name}=...")
        kinds = [hints.get(name), *typing.get_args(hints.get(name))]
        absent = value is None and type(None) in kinds
        if not absent and any(getattr(kind, "_is_protocol", False) for kind in kinds):  # the parameter's own section
            value = build(f"{at}{name}", value)
        # YAML parses 1e6 as a float.
        if isinstance(value, float) and value.is_integer() and not _fits(value, hints.get(name)):
            value = int(value)
        if not _fits(value, hints.get(name)):
            key = f"{at}{name.removesuffix('_')}"  # `return_` stands for the key `return`
            raise ConfigError(f"{key}={value!r} must be {_describe(hints[name])}{_example(key, value, hints[name])}")
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
        # A class names its own keys; add the section's path.
        if path and any(message.startswith((f"{name}=", f"{name}:", f"{name}.")) for name in values):
            raise ConfigError(f"{path}.{message}") from error
        raise


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except (NameError, TypeError):
        # A module may import names for type checkers only; its types are then not checked.
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
        # math.isfinite overflows for large integers.
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
        return ("one of " if len(arguments) > 1 else "") + ", ".join(map(str, arguments))
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false", type(None): "null"}
    if hint in names:
        return names[hint]
    kind = origin or hint
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "a mapping"
    if isinstance(kind, type) and issubclass(kind, Sequence):
        items = _items(arguments)
        plural = {int: "integers", float: "numbers", str: "strings", Mapping: "mappings"}
        item = typing.get_origin(items[0]) or items[0] if len(items) == 1 else None
        return f"a list of {plural[item]}" if item in plural else "a list"
    return str(hint)


def _example(key: str, value: Any, hint: Any) -> str:
    """Return the value as an element of a list or as the class of a mapping, if the hint takes that."""
    if not isinstance(value, list) and _fits([value], hint):
        return f", such as {key}=[{value}]"
    if isinstance(value, str) and _fits({}, hint):
        return f", such as '{key}={{_target_: {value}}}'"
    if isinstance(value, list) and value and isinstance(value[0], str) and _fits([{}], hint):
        return f", such as '{key}=[{{_target_: {value[0]}}}]'"
    return ""


def _items(arguments: Sequence[Any]) -> list[Any]:
    return [argument for argument in arguments if argument is not Ellipsis]
