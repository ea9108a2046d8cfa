"""Environment recipes and the vector contract, over every environment that conf/ offers."""

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from bindings import MODULES, WORLDS
from conftest import ROOT, env_section, env_spec
from gymnasium.vector import AutoresetMode
from toy_envs import Faulty
from toy_worlds import Skirmish

from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import SerialVectorEnv

OFFERED = sorted(
    path
    for path in (ROOT / "conf" / "env").glob("*.yaml")
    if path.stem not in {"gymnasium", "remote", *MODULES, *WORLDS}  # which other tests have
    and "paddock.envs.spec.EnvSpec" in path.read_text()  # the others are families
)


def spec_of(path: Path) -> EnvSpec:
    keys = env_section(path.stem)
    assert keys.pop("_target_") == "paddock.envs.spec.EnvSpec"
    return EnvSpec(**keys)


def episode(env: gymnasium.Env, seed: int, steps: int = 100) -> list[Any]:
    """The trajectory of random actions, all of whose randomness comes from the seed."""
    actions = copy.deepcopy(env.action_space)
    actions.seed(seed)
    plain = lambda obs: {k: v.tolist() for k, v in obs.items()} if isinstance(obs, dict) else obs.tolist()  # noqa: E731
    seen: list[Any] = [plain(env.reset(seed=seed)[0])]
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(actions.sample())
        seen.append((plain(obs), float(reward), terminated, truncated))
        if terminated or truncated:
            break
    return seen


@pytest.fixture(params=OFFERED, ids=lambda path: path.stem)
def offered(request: pytest.FixtureRequest) -> EnvSpec:
    return spec_of(request.param)


# Recipes


def test_an_episode_depends_on_its_seed_alone(offered: EnvSpec) -> None:
    vec = SerialVectorEnv(offered, 1, AutoresetMode.DISABLED)
    for seed in range(2):
        # Without `fresh`, this environment has lived through all earlier seeds.
        vec.reset(seed=[seed])
        lived = episode(vec.envs[0], seed) if not offered.fresh else None
        new = offered.make()
        assert lived is None or lived == episode(new, seed)
        new.close()
    vec.close()


def test_what_is_bounded_and_left_out_is_part_of_a_recipe() -> None:
    kwargs = {"observation": "everything", "action": "mixed"}
    bounds = {"pile.pile": 3, "rooms.0": 4}
    spec = env_spec("toy_envs:Samples-v0", kwargs=kwargs, bounds=bounds, without=["stacked"])
    assert spec.observations.space == spec.spaces[0] and spec.actions.space == spec.spaces[1]
    assert "stacked" not in spec.spaces[0].spaces and "stacked" in spec.raw_spaces[0].spaces
    again = EnvSpec(**spec.fields)
    assert again == spec != env_spec("toy_envs:Samples-v0", kwargs=kwargs, bounds=bounds) and hash(again) == hash(spec)
    assert spec.fields["bounds"] == bounds and spec.fields["without"] == ["stacked"]
    nested = {"pile": {"pile": 3}, "rooms": {0: 4}}  # as the command line has it
    assert spec == replace(spec, bounds=nested)
    assert len(pickle.dumps(spec)) < 1000  # what is cached does not travel


def test_what_differs_in_training_is_part_of_a_recipe() -> None:
    wrappers = [{"_target_": "gymnasium.wrappers.TimeAwareObservation"}]
    outside = {"_target_": "gymnasium.wrappers.RescaleAction", "min_action": -3.0, "max_action": 3.0}
    training = {"kwargs": {"g": 5.0}, "wrappers": [outside], "max_episode_steps": 7}
    plain = env_spec("Pendulum-v1", kwargs={"g": 9.0, "render_mode": None}, wrappers=wrappers)
    assert plain.in_training() == plain
    spec = replace(plain, training=training)
    assert spec != plain and spec.fields["training"] == training
    again = EnvSpec(**spec.fields)
    assert again == spec and hash(again) == hash(spec) and pickle.loads(pickle.dumps(spec)) == spec
    changed = replace(plain, kwargs={"g": 5.0, "render_mode": None}, wrappers=(*wrappers, outside), max_episode_steps=7)
    assert spec.in_training() == changed and changed.in_training() == changed
    assert spec.limited(100).in_training().max_episode_steps == 7
    assert replace(plain, training={"kwargs": {}}).limited(100).in_training().max_episode_steps is None


@pytest.mark.parametrize(
    ("training", "named"),
    [
        ({"kwarg": {}}, r"training\.kwarg is not a key of training; did you mean 'kwargs'?"),
        ({"kwargs": [1]}, r"training\.kwargs=\[1\] must be a mapping"),
        ({"wrappers": [{"target": "x"}]}, "has no _target_"),
    ],
    ids=["unknown", "kwargs", "wrapper"],
)
def test_what_cannot_differ_in_training_is_refused(training: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        env_spec("Pendulum-v1", training=training)


def test_what_varies_in_size_needs_a_bound_or_is_left_out() -> None:
    spec = env_spec("toy_envs:Samples-v0", kwargs={"observation": "pile", "action": "stacked"})
    with pytest.raises(ConfigError, match=r"at pile is a Sequence.*\+env.bounds.pile=n.*env.without=\[pile\]"):
        spec.observations  # noqa: B018, which is made when it is asked for
    with pytest.raises(ConfigError, match="the space is a Sequence, whose elements vary in size; wrap"):
        spec.actions  # noqa: B018
    with pytest.raises(ConfigError, match=r"env.bounds.pil is not a .*'pile'"):
        replace(spec, bounds={"pile": 3, "pil": 3}).observations  # noqa: B018
    assert list(replace(spec, without=("pile",)).spaces[0].spaces) == ["near"]
    first = env_spec("toy_envs:Samples-v0", kwargs={"observation": "rooms", "action": "bits"}, without=[0])
    assert first.spaces[0] == gymnasium.spaces.Tuple([gymnasium.spaces.MultiDiscrete([2, 3])])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"id": "BipedalWalker-v33"}, "BipedalWalker"),
        ({"id": "CartPol-v1"}, "CartPole-v1"),
        ({"id": "no_such_package:Thing-v0"}, "no_such_package"),
        ({"kwargs": {"gravity_of": 1}}, "gravity_of"),
        ({"wrappers": [{"_target_": "gymnasium.wrappers.NoSuchWrapper"}]}, "NoSuchWrapper"),
        ({"wrappers": [{"_target_": "gymnasium.wrappers.ClipAction", "no_such": 1}]}, "no_such"),
        ({"without": "mission"}, "without='mission' must be a list"),
    ],
    ids=str,
)
def test_a_recipe_that_cannot_be_made_says_why(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        env_spec(**({"id": "CartPole-v1"} | changes)).make()
    assert "\n" not in str(caught.value)


# The walker


@pytest.mark.parametrize("name", ["BipedalWalker-v3", "BipedalWalkerHardcore-v3"])
def test_our_walker_gives_the_numbers_of_gymnasiums(name: str) -> None:
    ours = env_spec(f"paddock.envs.bipedal:paddock/{name}").make()  # one for all episodes
    ends = 0
    for seed in range(4):
        theirs = env_spec(name).make()  # a new one for each
        generator = np.random.default_rng(seed)
        np.testing.assert_array_equal(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
        for t in range(200):
            action = generator.uniform(-1.5, 1.5, 4).astype(np.float32)
            if seed % 3 == 0:  # gentle, so that it stands for long
                action = np.array([0.5, -0.3, -0.5, 0.3], np.float32) * np.float32(np.sin(t / 10))
            got, expected = ours.step(action), theirs.step(action)
            np.testing.assert_array_equal(got[0], expected[0])
            assert got[0].dtype == expected[0].dtype
            assert got[1:] == expected[1:]
            if expected[2]:
                ends += 1
                break
        theirs.close()
    assert ends >= 2
    ours.close()


@pytest.mark.parametrize(
    ("owner", "id", "line"),
    [
        (
            Faulty,
            "toy_envs:Faulty-v0",
            r"AttributeError: .*\); define observation_space and action_space in its constr",
        ),
        (Skirmish, "toy_worlds:Skirmish", r"KeyError: 'one_0'\); .* as methods, for each of possible_agents"),
    ],
    ids=["one agent", "world"],
)
def test_an_environment_without_spaces_is_one_line(
    owner: type, id: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(owner, "action_space")
    if owner is Skirmish:
        monkeypatch.setattr(owner, "action_space", {}.__getitem__, raising=False)
    with pytest.raises(ConfigError, match=rf"^env\.id={id} does not define its spaces \({line}") as caught:
        env_spec(id).spaces  # noqa: B018
    assert "\n" not in str(caught.value)
