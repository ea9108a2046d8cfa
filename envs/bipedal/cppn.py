"""Terrain from a small network, a CPPN (Wang et al. 2020, Enhanced POET, arXiv:2003.08536).

The network maps where one is along the course, from -pi to pi, to a height. It is plain data:

    {"nodes": [{"id": 0, "bias": 0.0, "response": 1.0, "activation": "identity"}],
     "connections": [{"source": -1, "target": 0, "weight": 0.0, "enabled": True}]}

-1 is the input and 0 the output; a node gives activation(bias + response * sum of weight * source). Mutation is that
of the authors' neat-python configuration, which never adds or deletes a connection by itself; but neat-python draws
from Python's global generator, and here all comes from the one that is given. Further differences: the amplitude is the
largest distance from the height of the first point, anywhere on the course (theirs is the largest height, for x in
[-1, 1) although the terrain has [-pi, pi)); a mutant with the ground of its parent is drawn again (they compare
genomes, so that a new bias of the output will do); the heights are not repeated wherever a stretch of grass begins; and
evolution starts from a flat course (theirs from a random slope).
"""

import copy
from collections.abc import Callable, Mapping
from graphlib import TopologicalSorter
from typing import Any

import numpy as np
from gymnasium.envs.box2d.bipedal_walker import TERRAIN_STARTPAD
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError

Cppn = Mapping[str, Any]  # {"nodes": [...], "connections": [...]}
Array = NDArray[np.float64]

INPUT, OUTPUT = -1, 0
LARGEST = 10.0  # bound of weights and biases under mutation
SAME = 1e-6  # m; grounds that differ by less are one
TRIES = 1000  # mutants drawn before giving up

# neat-python's, with its scales and its bounds against overflow.
ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "identity": lambda z: z,
    "sin": lambda z: np.sin(np.clip(5.0 * z, -60.0, 60.0)),
    "sigmoid": lambda z: 1.0 / (1.0 + np.exp(-np.clip(5.0 * z, -60.0, 60.0))),
    "square": lambda z: z * z,
    "tanh": lambda z: np.tanh(np.clip(2.5 * z, -60.0, 60.0)),
}

FLAT: Cppn = {
    "nodes": [{"id": OUTPUT, "bias": 0.0, "response": 1.0, "activation": "identity"}],
    "connections": [{"source": INPUT, "target": OUTPUT, "weight": 0.0, "enabled": True}],
}


def heights(cppn: Cppn, x: Array) -> Array:
    """What the network gives for each x: [L] in, [L] out, m; infinite where it overflows."""
    connections = [connection for connection in cppn["connections"] if connection["enabled"]]
    nodes = {node["id"]: node for node in cppn["nodes"]}
    values = {INPUT: np.asarray(x, np.float64)}
    with np.errstate(over="ignore", invalid="ignore"):
        for id in _order(cppn):
            if id == INPUT:
                continue
            total = np.zeros_like(values[INPUT])
            for connection in connections:
                if connection["target"] == id:
                    total = total + connection["weight"] * values[connection["source"]]
            node = nodes[id]
            values[id] = ACTIVATIONS[node["activation"]](node["bias"] + node["response"] * total)
    return values[OUTPUT]


def relief(cppn: Cppn, length: int) -> Array:
    """Heights of a course of so many points above its start, [length] m: flat on the start pad, then the network's."""
    middle = length / 2
    ahead = slice(TERRAIN_STARTPAD + 1, None)
    x: Array = (np.arange(length, dtype=np.float64) - middle) * (np.pi / middle)
    found = heights(cppn, x[ahead])
    above = np.zeros(length)
    with np.errstate(invalid="ignore"):
        above[ahead] = found - found[0]
    return above


def mutate(
    cppn: Cppn,
    length: int,
    generator: np.random.Generator,
    *,
    node_add: float,
    node_delete: float,
    weight_rate: float,
    weight_power: float,
    amplitude_low: float,
    amplitude_high: float,
) -> Cppn:
    """A changed copy whose amplitude over a course of `length` points is neither too low nor too high.

    Args:
        node_add: chance that a node splits a connection.
        node_delete: chance that a node is taken away instead.
        weight_rate: chance for each weight and bias to change.
        weight_power: standard deviation of that change.
        amplitude_low: m; what is lower is scaled to a random one in [1, 3) times as much.
        amplitude_high: m; what is higher is scaled to a random one in [0.75, 1) times as much.

    Raises:
        ConfigError: none of many mutants had another ground.
    """
    parent = _with_response(cppn, 1.0)
    before = relief(parent, length)
    for _ in range(TRIES):
        child = _vary(parent, generator, node_add, node_delete, weight_rate, weight_power)
        after = relief(child, length)
        amplitude = float(np.abs(after).max())
        # A lost path from input to output leaves the ground flat.
        if not np.isfinite(amplitude) or amplitude < SAME or np.abs(after - before).max() < SAME:
            continue
        if amplitude < amplitude_low:
            return _with_response(child, float(generator.uniform(amplitude_low, 3 * amplitude_low)) / amplitude)
        if amplitude > amplitude_high:
            return _with_response(child, float(generator.uniform(0.75 * amplitude_high, amplitude_high)) / amplitude)
        return child
    raise ConfigError(
        f"weight_rate={weight_rate}, weight_power={weight_power} and node_add={node_add} gave no new terrain in "
        f"{TRIES} mutations; raise one of them"
    )


def check(cppn: Any, key: str) -> None:
    """Raise ConfigError, beginning with the key, unless this is a network as described above."""
    shape = "{nodes: [{id, bias, response, activation}], connections: [{source, target, weight, enabled}]}"
    try:
        heights(cppn, np.zeros(1))
    except (KeyError, TypeError, ValueError) as error:  # a cycle is a ValueError
        raise ConfigError(f"{key}={cppn!r} is not a network ({error!r}); give {shape}") from error


def _order(cppn: Cppn) -> list[int]:
    """The ids, each after those that it needs."""
    needs: dict[int, set[int]] = {INPUT: set(), **{node["id"]: set() for node in cppn["nodes"]}}
    for connection in cppn["connections"]:
        needs[connection["target"]].add(connection["source"])
    return list(TopologicalSorter(needs).static_order())


def _vary(
    parent: Cppn,
    generator: np.random.Generator,
    node_add: float,
    node_delete: float,
    weight_rate: float,
    weight_power: float,
) -> Cppn:
    child: Any = copy.deepcopy(dict(parent))
    draw = generator.random()
    if draw < node_add:
        _split(child, generator)
    elif draw < node_add + node_delete:
        _delete(child, generator)
    for items, name in ((child["connections"], "weight"), (child["nodes"], "bias")):
        for item in items:
            if generator.random() < weight_rate:
                item[name] = _bounded(item[name] + generator.normal(0.0, weight_power))
    return child


def _split(child: Any, generator: np.random.Generator) -> None:
    """Put a node into a connection, which remains, disabled: if it is split once more, there are two ways."""
    old = child["connections"][int(generator.integers(len(child["connections"])))]
    id = max(node["id"] for node in child["nodes"]) + 1
    activation = list(ACTIVATIONS)[int(generator.integers(len(ACTIVATIONS)))]
    bias = _bounded(generator.normal(0.0, 0.1))
    child["nodes"].append({"id": id, "bias": bias, "response": 1.0, "activation": activation})
    old["enabled"] = False
    child["connections"] += [
        {"source": old["source"], "target": id, "weight": 1.0, "enabled": True},
        {"source": id, "target": old["target"], "weight": old["weight"], "enabled": True},
    ]


def _delete(child: Any, generator: np.random.Generator) -> None:
    hidden = [node["id"] for node in child["nodes"] if node["id"] != OUTPUT]
    if not hidden:
        return
    id = hidden[int(generator.integers(len(hidden)))]
    child["nodes"] = [node for node in child["nodes"] if node["id"] != id]
    child["connections"] = [item for item in child["connections"] if id not in (item["source"], item["target"])]


def _with_response(cppn: Cppn, response: float) -> Cppn:
    nodes = [{**node, "response": response} if node["id"] == OUTPUT else node for node in cppn["nodes"]]
    return {"nodes": nodes, "connections": cppn["connections"]}


def _bounded(value: float) -> float:
    return float(min(max(value, -LARGEST), LARGEST))
