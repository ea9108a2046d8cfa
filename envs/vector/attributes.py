"""The state of somebody else's object, read from its attributes: where all of them are plain, that is all it has."""

import enum
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorWrapper

from paddock.envs.vector.contract import VectorMisuse

DESCRIPTIONS = (gymnasium.Space, EnvSpec, enum.Enum, type)  # which no step changes
PLAIN = (bool, int, float, str, type(None))


def save_attributes(venv: gymnasium.vector.VectorEnv) -> dict[str, Any] | None:
    """Return every attribute of a vector environment and its wrappers, by layer, as arrays and plain data.

    None where one is of another kind, or shares its memory with another: then a copy may not be the same to the bit.
    """
    layers: dict[str, Any] = {}
    kept: list[Any] = []
    for k, layer in enumerate(_layers(venv)):
        if any(vars(base).get("__slots__") for base in type(layer).__mro__):
            return None
        saved: dict[str, Any] = {"class": _name(layer), "array": {}, "scalar": {}, "plain": {}, "generator": {}}
        for name, value in _own(layer):
            if isinstance(value, np.ndarray) and value.flags.forc and not value.dtype.hasobject:
                saved["array"][name] = value.copy("K")
                kept.append(value)
            elif isinstance(value, np.generic) and not value.dtype.hasobject:
                saved["scalar"][name] = np.array(value)
            elif type(value) in PLAIN:
                saved["plain"][name] = value
            elif isinstance(value, np.random.Generator):
                saved["generator"][name] = value.bit_generator.state
                kept.append(value)
            else:
                return None
        layers[str(k)] = saved
    for k, one in enumerate(kept):
        if any(one is other or _overlap(one, other) for other in kept[:k]):
            return None
    return layers


def load_attributes(venv: gymnasium.vector.VectorEnv, state: Mapping[str, Any]) -> None:
    """Give a vector environment of the same making the attributes that another was saved with.

    Raises:
        VectorMisuse: it was saved by another class, or has not these attributes; nothing has changed then.
    """
    layers = list(_layers(venv))
    saved = [state.get(str(k)) for k in range(len(layers))]
    kinds = ("array", "scalar", "plain", "generator")
    for layer, one in zip(layers, saved, strict=True):
        if len(state) != len(layers) or not isinstance(one, Mapping) or one.get("class") != _name(layer):
            raise VectorMisuse(f"load_state_dict: the state is not one of {_name(layer)}; load it into its own kind")
        unknown = {name for name, _ in _own(layer)} - {name for kind in kinds for name in one[kind]}
        if unknown:
            raise VectorMisuse(f"load_state_dict: the state of {_name(layer)} lacks {sorted(unknown)}")
    for layer, one in zip(layers, saved, strict=True):
        assert one is not None
        values: dict[str, Any] = {name: np.array(value, order="K") for name, value in one["array"].items()}
        values |= {name: value[()] for name, value in one["scalar"].items()} | dict(one["plain"])
        for name, value in one["generator"].items():
            bits = getattr(np.random, value["bit_generator"])()
            bits.state = value
            values[name] = np.random.Generator(bits)
        vars(layer).update(values)


def _layers(venv: gymnasium.vector.VectorEnv) -> Iterator[Any]:
    yield venv
    while isinstance(venv, VectorWrapper):
        venv = venv.env
        yield venv


def _own(layer: Any) -> Iterator[tuple[str, Any]]:
    """The attributes that may change, but for the layer inside."""
    for name, value in vars(layer).items():
        inside = name == "env" and isinstance(layer, VectorWrapper)
        if not inside and name != "metadata" and not isinstance(value, DESCRIPTIONS):
            yield name, value


def _name(layer: Any) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _overlap(one: Any, other: Any) -> bool:
    return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.may_share_memory(one, other)
