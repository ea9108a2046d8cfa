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
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy_envs import Faulty
from toy_worlds import Skirmish

from paddock.envs.errors import ConfigError, split_details
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Serial, SerialVectorEnv, VectorMisuse
from paddock.envs.vector.storage import Layouts

OFFERED = sorted(
    path
    for path in (ROOT / "conf" / "env").glob("*.yaml")
    if path.stem not in {"gymnasium", "remote", *MODULES, *WORLDS}  # which other tests have
    and "paddock.envs.spec.EnvSpec" in path.read_text()  # the others are families
)
VEC = Serial(num_envs=3)


def spec_of(path: Path) -> EnvSpec:
    keys = env_section(path.stem)
    assert keys.pop("_target_") == "paddock.envs.spec.EnvSpec"
    return EnvSpec(**keys)


def episode(env: gymnasium.Env, seed: int, steps: int = 150) -> list[Any]:
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


def test_a_recipe_travels_and_compares_by_value(offered: EnvSpec) -> None:
    offered.spaces  # noqa: B018, what is cached must not travel
    other = pickle.loads(pickle.dumps(offered))
    assert other == offered and hash(other) == hash(offered)


def test_an_episode_depends_on_its_seed_alone(offered: EnvSpec) -> None:
    vec = SerialVectorEnv(offered, 1, AutoresetMode.DISABLED)
    for seed in range(8):
        # Without `fresh`, this environment has lived through all earlier seeds.
        vec.reset(seed=[seed])
        lived = episode(vec.envs[0], seed) if not offered.fresh else None
        new = offered.make()
        assert lived is None or lived == episode(new, seed)
        new.close()
    vec.close()


def test_a_rebuilt_environment_forgets_what_box2d_remembers() -> None:
    walker = env_spec("BipedalWalker-v3", fresh=True)
    vec = SerialVectorEnv(walker, 1, AutoresetMode.DISABLED)
    actions = np.random.default_rng(0).uniform(-1, 1, (200, 1, 4)).astype(np.float32)

    def play(venv: SerialVectorEnv) -> list[Any]:
        seen = [venv.reset(seed=[3])[0].tolist()]
        for action in actions:
            obs, reward, terminated, _, _ = venv.step(action)
            seen.append((obs.tolist(), reward.tolist()))
            if terminated[0]:
                break
        return seen

    first = play(vec)
    assert play(vec) == first
    assert play(SerialVectorEnv(walker, 1, AutoresetMode.DISABLED)) == first


@pytest.mark.parametrize(
    "value",
    [
        (84, 84),
        ((1, 2), (3, 4)),
        (),
        [],
        {},
        [(1, 2), [3, {"a": (4,)}]],
        {"names": {"x": ()}, "sizes": ((1, 2), [3])},
    ],
)
def test_a_recipes_arguments_stay_what_they_were(value: Any) -> None:
    spec = EnvSpec("CartPole-v1", {"given": value}, ({"_target_": "x", "more": value},), None, False)
    for copied in (spec, pickle.loads(pickle.dumps(spec)), EnvSpec(**spec.fields), spec.wrapped("y")):
        assert repr(copied.arguments) == repr({"given": value})
        assert repr(copied.fields["wrappers"][0]) == repr({"_target_": "x", "more": value})
    assert hash(spec) == hash(EnvSpec(**spec.fields))


def test_lists_tuples_and_mappings_are_other_arguments() -> None:
    values: list[Any] = [(("a", 1),), [("a", 1)], {"a": 1}, [["a", 1]]]
    assert len({EnvSpec("CartPole-v1", {"given": value}, (), None, False) for value in values}) == 4


def test_what_is_bounded_and_left_out_is_part_of_a_recipe() -> None:
    kwargs = {"observation": "everything", "action": "mixed"}
    bounds = {"pile.pile": 3, "graph.0": [4, 9]}
    spec = env_spec("toy_envs:Samples-v0", kwargs=kwargs, bounds=bounds, without=["stacked", "edgeless"])
    assert spec.observations.space == spec.spaces[0] and spec.actions.space == spec.spaces[1]
    assert "stacked" not in spec.spaces[0].spaces and "stacked" in spec.raw_spaces[0].spaces
    again = EnvSpec(**spec.fields)
    assert again == spec != env_spec("toy_envs:Samples-v0", kwargs=kwargs, bounds=bounds) and hash(again) == hash(spec)
    assert spec.fields["bounds"] == bounds and spec.fields["without"] == ["stacked", "edgeless"]
    nested = {"pile": {"pile": 3}, "graph": {0: [4, 9]}}  # as the command line has it
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


def test_a_recipe_says_where_its_training_is_from_however_it_was_copied() -> None:
    training = {"kwargs": {"g": 5.0}}
    bare, own = (env_spec("Pendulum-v1", kwargs=kwargs, training=training) for kwargs in ({}, {"g": 9.0}))
    for spec, said in ((bare, "env.training.kwargs"), (own, "env.kwargs and env.training.kwargs")):
        copies = spec.in_training(), pickle.loads(pickle.dumps(spec.in_training())), spec.in_training().limited(9)
        assert [copy.spell_key("kwargs") for copy in (*copies, copies[0].wrapped("x.Y"))] == [said] * 4
        assert spec.spell_key("kwargs") == "env.kwargs"


@pytest.mark.parametrize(
    ("training", "named"),
    [
        ({"kwarg": {}}, r"training\.kwarg is not a key of training; did you mean 'kwargs'?"),
        ({"fresh": True}, r"training\.fresh is not a key of training"),
        ({"kwargs": [1]}, r"training\.kwargs=\[1\] must be a mapping"),
        ({"wrappers": {"_target_": "x"}}, "must be a list"),
        ({"wrappers": [{"target": "x"}]}, "lacks '_target_'"),
        ({"max_episode_steps": 0}, "max_episode_steps=0 must be at least 1"),
    ],
    ids=["unknown", "other", "kwargs", "wrappers", "wrapper", "limit"],
)
def test_what_cannot_differ_in_training_is_refused(training: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        env_spec("Pendulum-v1", training=training)


def test_spaces_without_a_known_size_are_the_environments_own_until_something_is_said_of_them() -> None:
    spec = env_spec("toy_envs:Samples-v0", kwargs={"observation": "pile", "action": "stacked"})
    assert spec.spaces == spec.raw_spaces
    with pytest.raises(ConfigError, match=r"at pile is a Sequence.*\+env.bounds.pile=n.*env.without=\[pile\]"):
        spec.observations  # noqa: B018, which is made when it is asked for
    with pytest.raises(
        ConfigError, match=r"the space is a Sequence.*\+env.action_bounds.element=n, or wrap the environment"
    ):
        spec.actions  # noqa: B018
    for wrong, named in (
        ({"bounds": {"pile": 3, "pil": 3}}, "env.bounds.pil"),
        ({"bounds": {"pile": 3}, "without": ["pil"]}, "did you mean 'pile'?"),
        (
            {"bounds": {"pile": 3}, "action_bounds": {"element": 3, "elemen": 3}},
            "env.action_bounds.elemen is no .*'element'",
        ),
    ):
        with pytest.raises(ConfigError, match=named):
            Layouts.of(replace(spec, **wrong), *spec.raw_spaces)
    assert list(replace(spec, without=("pile",)).spaces[0].spaces) == ["near"]
    first = env_spec("toy_envs:Samples-v0", kwargs={"observation": "graph", "action": "bits"}, without=[0])
    assert first.spaces[0] == gymnasium.spaces.Tuple([gymnasium.spaces.MultiDiscrete([2, 3])])


def test_wrappers_and_arguments_reach_the_environment() -> None:
    wrappers = [
        {"_target_": "gymnasium.wrappers.TimeAwareObservation"},
        {"_target_": "gymnasium.wrappers.RescaleAction", "min_action": -3.0, "max_action": 3.0},
    ]
    made = env_spec("Pendulum-v1", kwargs={"g": 5.0}, wrappers=wrappers, max_episode_steps=11).make()
    inner: Any = made.unwrapped
    assert inner.g == 5.0
    assert made.observation_space.shape == (4,)
    assert isinstance(made.action_space, gymnasium.spaces.Box) and made.action_space.high[0] == 3.0
    made.reset(seed=0)
    assert [made.step(made.action_space.sample())[3] for _ in range(11)] == [False] * 10 + [True]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"id": "BipedalWalker-v33"}, "BipedalWalker"),
        ({"id": "CartPol-v1"}, "CartPole-v1"),
        ({"id": "no_such_package:Thing-v0"}, "no_such_package"),
        ({"kwargs": {"gravity_of": 1}}, "gravity_of"),
        ({"wrappers": [{"_target_": "gymnasium.wrappers.NoSuchWrapper"}]}, "NoSuchWrapper"),
        ({"wrappers": [{"_target_": "gymnasium.wrappers.ClipAction", "no_such": 1}]}, "no_such"),
        ({"wrappers": [{"min": 1}]}, "_target_"),
        ({"max_episode_steps": 0}, "max_episode_steps=0"),
        ({"without": "mission"}, "without='mission' must be a list"),
    ],
    ids=str,
)
def test_a_recipe_that_cannot_be_made_says_why(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        env_spec(**({"id": "CartPole-v1"} | changes)).make()
    assert "\n" not in str(caught.value)


# Vectors


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Blackjack-v1"])
def test_a_vector_gives_what_gymnasiums_own_gives(id: str) -> None:
    recipe = env_spec(id, max_episode_steps=15)
    ours = VEC.make(recipe)
    theirs = SyncVectorEnv([recipe.make] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    np.testing.assert_equal(ours.reset(seed=5), theirs.reset(seed=5))
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    theirs.action_space.seed(0)
    ends = 0
    for _ in range(60):
        actions = theirs.action_space.sample()
        got, expected = ours.step(actions), theirs.step(actions)
        np.testing.assert_equal(got[:4], expected[:4])
        for key in expected[4]:
            if key not in ("final_info", "_final_info"):
                assert str(got[4][key]) == str(expected[4][key])  # arrays of arrays, which NumPy cannot compare
        ends += int(expected[2].sum() + expected[3].sum())
    assert ends > 3
    ours.close()
    ours.close()
    theirs.close()


def test_chosen_environments_restart_on_chosen_seeds() -> None:
    vec = VEC.make(env_spec("CartPole-v1"), autoreset=AutoresetMode.DISABLED)
    first, _ = vec.reset(seed=[1, 2, 3])
    again, _ = vec.reset(seed=[None, 7, None], options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(again[[0, 2]], first[[0, 2]])
    expected, _ = env_spec("CartPole-v1").make().reset(seed=7)
    np.testing.assert_array_equal(again[1], expected)


def test_only_those_sent_to_are_stepped() -> None:
    vec = VEC.make(env_spec("CartPole-v1"), autoreset=AutoresetMode.DISABLED)
    vec.reset(seed=[1, 2, 3])
    vec.send(np.array([1, 0]), np.array([2, 0]))
    obs, reward, _, _, infos = vec.recv(np.array([2, 0]))
    assert reward.tolist() == [1, 1] and infos["env_id"].tolist() == [2, 0]
    alone = env_spec("CartPole-v1").make()
    alone.reset(seed=3)
    np.testing.assert_array_equal(obs[0], alone.step(1)[0])


def test_batches_are_the_callers_own() -> None:
    vec = VEC.make(env_spec("CartPole-v1"))
    first, _ = vec.reset(seed=0)
    kept = first.copy()
    vec.step(np.zeros(3, int))
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize(
    ("misuse", "named"),
    [
        (lambda vec: vec.recv(), "nothing was sent"),
        (lambda vec: vec.send(np.zeros(3, int)), "call reset first"),
        (lambda vec: vec.reset(seed=[1, 2]), "2 seeds for 3"),
        (lambda vec: (vec.reset(seed=0), vec.send(np.zeros(2, int))), "2 actions for 3"),
        (lambda vec: (vec.reset(seed=0), vec.send(np.zeros(3, int)), vec.send(np.zeros(3, int))), "call recv first"),
        (lambda vec: vec.reset(options={"reset_mask": [True]}), "reset_mask must be a bool array"),
    ],
    ids=["recv", "no-reset", "seeds", "actions", "send-twice", "mask"],
)
def test_misuse_is_one_clear_error(misuse: Any, named: str) -> None:
    vec = VEC.make(env_spec("CartPole-v1"))
    with pytest.raises(VectorMisuse, match=named):
        misuse(vec)


def test_too_few_environments_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_envs=0"):
        Serial(num_envs=0)


# The walker


@pytest.mark.parametrize("name", ["BipedalWalker-v3", "BipedalWalkerHardcore-v3"])
def test_our_walker_gives_the_numbers_of_gymnasiums(name: str) -> None:
    ours = env_spec(f"paddock.envs.bipedal:paddock/{name}").make()  # one for all episodes
    ends = 0
    for seed in range(12):
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
    assert ends >= 4
    ours.close()


def test_arguments_may_have_mappings_of_keys_of_several_types() -> None:
    rewards = {"goal": 5, 2: 1, 0: {"b": 1, 1: 2}, True: 0}
    spec = env_spec("CartPole-v1", kwargs={"rewards": rewards})
    assert spec.arguments == {"rewards": rewards}
    assert hash(spec) == hash(env_spec("CartPole-v1", kwargs={"rewards": dict(reversed(rewards.items()))}))


@pytest.mark.parametrize("ask", [lambda spec: spec.spaces, Serial(num_envs=2).make], ids=["looked at", "serial"])
@pytest.mark.parametrize(
    ("owner", "id", "line"),
    [
        (
            Faulty,
            "toy_envs:Faulty-v0",
            r"AttributeError: .*\); give it observation_space and action_space in its constr",
        ),
        (Skirmish, "toy_worlds:Skirmish", r"KeyError: 'one_0'\); .* as methods, for each of possible_agents"),
    ],
    ids=["one agent", "world"],
)
def test_an_environment_without_spaces_is_one_line(
    ask: Any, owner: type, id: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(owner, "action_space")
    if owner is Skirmish:
        monkeypatch.setattr(owner, "action_space", {}.__getitem__, raising=False)
    with pytest.raises(ConfigError, match=rf"^env\.id={id} does not say its spaces \({line}") as caught:
        ask(env_spec(id))
    assert "\n" not in str(caught.value)


def test_whatever_a_constructor_raises_is_one_line_before_its_traceback() -> None:
    with pytest.raises(ConfigError) as caught:
        _ = env_spec("toy_envs:Faulty-v0", kwargs={"fault": "make"}).spaces
    line, details = split_details(caught.value)
    assert (
        line
        == "env.id=toy_envs:Faulty-v0 cannot be made with env.kwargs={'fault': 'make'}: RuntimeError: no such thing"
    )
    assert details.startswith("Traceback") and "toy_envs.py" in details
