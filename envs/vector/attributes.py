"""The state of a custom vector environment, read from its attributes."""

import enum
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorWrapper

from paddock.envs.vector.contract import VectorMisuse

DESCRIPTIONS = (gymnasium.Space, EnvSpec, enum.Enum, type)  # constant during steps
PLAIN = (bool, int, float, str, type(None))


def save_attributes(venv: gymnasium.vector.VectorEnv) -> dict[str, Any] | None:
    """Return all attributes of a vector environment and its wrappers, by layer, as arrays and plain data.

    Returns None if an attribute is neither, or shares memory with another, so that a copy may not be exact.
    """
    layers: dict[str, Any] = {}
    kept: list[Any] = []
    for k, layer in enumerate(_layers(venv)):
        saved: dict[str, Any] = {}
        for name, value in _own(layer):
            if isinstance(value, np.ndarray) and value.flags.forc and not value.dtype.hasobject:
                saved[name] = value.copy("K")
                kept.append(value)
            elif isinstance(value, np.generic) and not value.dtype.hasobject:
                saved[name] = np.array(value)
            elif type(value) in PLAIN:
                saved[name] = value
            elif isinstance(value, np.random.Generator):
                saved[name] = value.bit_generator.state
                kept.append(value)
            else:
                return None
        layers[str(k)] = {"class": _name(layer), "attributes": saved}
    arrays = [one for one in kept if isinstance(one, np.ndarray)]
    shared = any(np.may_share_memory(one, other) for one, other in itertools.combinations(arrays, 2))
    if shared or len({id(one) for one in kept}) < len(kept):
        return None
    return layers


def load_attributes(venv: gymnasium.vector.VectorEnv, state: Mapping[str, Any]) -> None:
    """Load attributes that `save_attributes` returned for an equal vector environment.

    Raises:
        VectorMisuse: class or attributes differ; nothing is changed.
    """
    layers = list(_layers(venv))
    for k, layer in enumerate(layers):
        saved = state.get(str(k), {})
        unknown = {name for name, _ in _own(layer)} - saved.get("attributes", {}).keys()
        if len(state) != len(layers) or saved.get("class") != _name(layer) or unknown:
            raise VectorMisuse(f"load_state_dict: the state is not one of {_name(layer)}; pass one of the same class")
    for k, layer in enumerate(layers):
        for name, value in state[str(k)]["attributes"].items():
            vars(layer)[name] = _restore(value)


def _restore(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.array(value, order="K") if value.ndim else value[()]
    if not isinstance(value, Mapping):
        return value
    bits = getattr(np.random, value["bit_generator"])()
    bits.state = value
    return np.random.Generator(bits)


def _layers(venv: gymnasium.vector.VectorEnv) -> Iterator[Any]:
    yield venv
    while isinstance(venv, VectorWrapper):
        venv = venv.env
        yield venv


def _own(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that may change, except the wrapped layer."""
    for name, value in vars(layer).items():
        inside = name == "env" and isinstance(layer, VectorWrapper)
        if not inside and name != "metadata" and not isinstance(value, DESCRIPTIONS):
            yield name, value


def _name(layer: Any) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"
