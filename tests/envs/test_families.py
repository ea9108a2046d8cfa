"""Families of environments: the laws that all of them keep, and the published rules of each."""

import copy
import itertools
import json
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import env_section

from paddock.config.build import build
from paddock.envs.bipedal import cppn
from paddock.envs.bipedal.family import Cppns, interval_changes
from paddock.envs.errors import ConfigError
from paddock.envs.family import Encoding, Family
from paddock.envs.tasks.poles import Poles

FAMILIES = ("terrains", "terrains_cppn", "poles")
STAIRS = {
    "stair_height": {"initial": [0, 0.4], "step": 0.2, "max": 5.0},
    "stair_steps": {"initial": [1, 2], "step": 1, "max": 9},
}
RATES = {"node_add": 0.1, "node_delete": 0.075, "weight_rate": 0.75, "weight_power": 0.1}
RATES |= {"amplitude_low": 0.25, "amplitude_high": 16.0}


def offered(name: str, **changes: Any) -> Any:
    return build("env", env_section(name) | changes)


def lineage(family: Family, generations: int, seed: int = 0) -> list[Encoding]:
    generator = np.random.default_rng(seed)
    found = [family.flat()]
    for _ in range(generations):
        found.append(family.mutate(found[-1], generator))
    return found


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return offered(request.param)


# Every family


def test_encodings_are_plain_data(family: Family) -> None:
    for encoding in lineage(family, 50):
        assert json.loads(json.dumps(encoding)) == encoding


def test_a_mutation_depends_on_its_generator_alone_and_leaves_its_parent(family: Family) -> None:
    assert lineage(family, 50) == lineage(family, 50)
    assert lineage(family, 5, seed=1) != lineage(family, 5)
    parent = lineage(family, 10)[-1]
    before = copy.deepcopy(parent)
    family.mutate(parent, np.random.default_rng(0))
    assert parent == before


def test_members_are_made_from_recipes_that_travel(family: Family) -> None:
    spaces = family.env_spec(family.flat(), None).spaces
    for encoding in lineage(family, 4):
        for ground in (None, 7):
            recipe = family.env_spec(encoding, ground)
            assert pickle.loads(pickle.dumps(recipe)) == recipe
            hash(recipe)
            env = recipe.make()
            assert recipe.spaces == spaces
            np.testing.assert_array_equal(env.reset(seed=3)[0], env.reset(seed=3)[0])
            env.close()


# Obstacles


def test_the_flat_terrain_becomes_the_initial_intervals() -> None:
    family = offered("terrains", **STAIRS)
    assert family.flat() == {"roughness": 0.0}
    child = dict(family.mutate(family.flat(), np.random.default_rng(0)))
    assert 0 <= child.pop("roughness") <= 0.6
    assert child == {
        "pit_gap": [0.0, 0.8],
        "stump_height": [0.0, 0.4],
        "stair_height": [0.0, 0.4],
        "stair_steps": [1, 2],
    }


def test_an_interval_changes_by_what_its_bounds_leave() -> None:
    pits = {"initial": [0, 0.8], "step": 0.4, "max": 8.0}
    # Neither bound may fall below where it began.
    assert interval_changes([0.0, 0.8], pits, 0) == [[0.4, 1.2], [0.4, 0.8], [0.0, 1.2]]
    everywhere = interval_changes([4.0, 6.0], pits, 0)
    expected = [[low, high] for low in (4.4, 4.0, 3.6) for high in (6.4, 6.0, 5.6) if (low, high) != (4.0, 6.0)]
    assert everywhere == expected and len(everywhere) == 8
    # low <= high <= max: both at the top, they can only part.
    assert interval_changes([8.0, 8.0], pits, 0) == [[7.6, 8.0], [7.6, 7.6]]
    # Steps of stairs: high is not drawn, so it stays above low.
    steps = {"initial": [1, 2], "step": 1, "max": 9}
    assert interval_changes([1, 2], steps, 1) == [[2, 3], [1, 3]]
    assert interval_changes([8, 9], steps, 1) == [[7, 9], [7, 8]]
    assert interval_changes([0.0, 0.8], {**pits, "max": 0.8, "initial": [0.0, 0.8]}, 0) == [[0.4, 0.8]]


def test_bounds_hold_over_long_lineages() -> None:
    for seed in range(2):
        for child in lineage(offered("terrains", **STAIRS), 300, seed)[1:]:
            assert 0 <= child["roughness"] <= 10 and child["roughness"] == round(child["roughness"], 1)
            for key, most in (("pit_gap", 8.0), ("stump_height", 5.0), ("stair_height", 5.0), ("stair_steps", 9)):
                low, high = child[key]
                assert 0 <= low <= high <= most and [low, high] == [round(low, 1), round(high, 1)]
            assert child["stair_steps"][0] < child["stair_steps"][1] and isinstance(child["stair_steps"][0], int)


def test_distance_of_terrains_worked_by_hand() -> None:
    family = offered("terrains")
    one = {"roughness": 1.0, "pit_gap": [0.0, 0.8]}
    # Differences 1, 2, 2, 2, 6 in roughness, pits and stumps: 1 + 4 + 4 + 4 + 36 = 49.
    assert family.distance(one, {"roughness": 2.0, "pit_gap": [2.0, 2.8], "stump_height": [2.0, 6.0]}) == 7.0
    assert family.distance({"roughness": 0.0}, {"roughness": 0.0, "stair_height": [0, 3], "stair_steps": [0, 4]}) == 5.0


# CPPNs


def network(activation: str) -> cppn.Cppn:
    return {
        "nodes": [
            {"id": 0, "bias": 0.25, "response": 2.0, "activation": "identity"},
            {"id": 1, "bias": 0.1, "response": 0.5, "activation": activation},
        ],
        "connections": [
            {"source": -1, "target": 0, "weight": 100.0, "enabled": False},
            {"source": -1, "target": 1, "weight": 3.0, "enabled": True},
            {"source": 1, "target": 0, "weight": -1.5, "enabled": True},
        ],
    }


@pytest.mark.parametrize(
    ("activation", "hidden"),
    [
        ("identity", [0.4, -0.2]),
        ("sin", [np.sin(2.0), np.sin(-1.0)]),
        ("square", [0.16, 0.04]),
        ("tanh", [np.tanh(1.0), np.tanh(-0.5)]),
    ],
)
def test_heights_worked_by_hand(activation: str, hidden: list[float]) -> None:
    # The hidden node sees 0.1 + 0.5 * 3 x: 0.4 for x = 0.2, -0.2 for x = -0.2. The output is 0.25 + 2 * (-1.5 hidden).
    expected = 0.25 - 3.0 * np.array(hidden)
    np.testing.assert_allclose(cppn.heights(network(activation), np.array([0.2, -0.2])), expected)


def test_a_lineage_of_networks_keeps_its_rules() -> None:
    family: Cppns = offered("terrains_cppn")
    found = lineage(family, 400, seed=2)
    sizes = []
    for parent, child in itertools.pairwise(found):
        net = child["cppn"]
        cppn.check(net, "cppn")
        heights = cppn.height_profile(net, 200)
        assert 0.25 - 1e-9 <= np.abs(heights).max() <= 16 + 1e-9
        assert np.all(heights[:22] == 0)
        change = len(net["nodes"]) - len(parent["cppn"]["nodes"])
        assert change in (-1, 0, 1)  # one structural mutation at a time
        sizes.append(change)
        numbers = [way["weight"] for way in net["connections"]] + [node["bias"] for node in net["nodes"]]
        assert max(map(abs, numbers)) <= 10
        assert all(node["response"] == 1.0 for node in net["nodes"] if node["id"] != 0)
    # Mutants that lost the path are drawn again, so that fewer lose a node than the published 75 of 1000.
    assert 20 <= sizes.count(1) <= 65 and 3 <= sizes.count(-1) <= 45


# Poles


def test_a_pole_of_the_usual_length_changes_nothing() -> None:
    family: Poles = offered("poles")
    ours, theirs = family.env_spec(family.flat(), None).make(), gymnasium.make("CartPole-v1")
    ours.reset(seed=1), theirs.reset(seed=1)
    for t in range(15):
        np.testing.assert_array_equal(ours.step(t % 2)[0], theirs.step(t % 2)[0])


# The border


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("terrains", {"pit_gap": {"initial": [0.8, 0], "step": 0.4, "max": 8.0}}),
        ("terrains", {"stump_height": {"initial": [0, 0.4], "stepp": 0.4, "max": 8.0}}),
        ("terrains", {"stair_steps": STAIRS["stair_steps"]}),
        ("terrains", {"roughness": None, "pit_gap": None, "stump_height": None}),
        ("terrains", {"length": 20}),
        ("terrains", {"wrappers": [{"min": 1}]}),
        ("terrains_cppn", {"node_add": 1.5}),
        ("poles", {"start": 4.0}),
    ],
    ids=str,
)
def test_a_bad_rule_is_refused_in_one_line_that_names_the_key(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        offered(name, **changes)
    message = str(caught.value)
    assert message.startswith(tuple(f"env.{key}" for key in changes)) and "\n" not in message
