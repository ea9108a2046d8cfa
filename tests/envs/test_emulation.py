"""Emulated environments lose nothing of an observation, reach every action, keep masks, and restart as Gymnasium's."""

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from conftest import env_spec
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from test_spaces import same
from toy_envs import KeepActions
from toy_worlds import Scripted
from vector_cases import EVERYTHING

import paddock
from paddock.envs.errors import ConfigError
from paddock.envs.vector import Serial

WORKSHOP: dict[str, Any] = {"bounds": {"made": 3}, "bins": 4}
SAME_STEP, NEXT_STEP = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP


def test_bytes_restore_observations_of_every_space() -> None:
    raw, env = EVERYTHING.make(), paddock.emulate(EVERYTHING, form="bytes", bins=2)
    expected, flat = [raw.reset(seed=1)[0]], [env.reset(seed=1)[0]]
    for _ in range(5):
        expected.append(raw.step(raw.action_space.sample())[0])
        flat.append(env.step(env.action_space.sample())[0])
        assert env.observation_space.contains(flat[-1])
    assert all(same(one, env.unflatten_observation(row)) for one, row in zip(expected, flat, strict=True))
    batch = env.unflatten_observation(np.stack(flat))
    assert all(same(one["start"], int(other)) for one, other in zip(expected, batch["start"], strict=True))


def test_tensors_of_bytes_are_unflattened_to_the_same_numbers() -> None:
    env = paddock.emulate("toy_envs:Workshop-v0", form="bytes", **WORKSHOP)
    rows = np.stack([env.reset(seed=seed)[0] for seed in range(4)])
    arrays = env.unflatten_observation(rows)
    for tensor in (torch.from_numpy(rows), torch.from_numpy(rows).float()):  # as most replay buffers store them
        tree = env.unflatten_observation(tensor)
        assert np.array_equal(tree["bench"].numpy(), arrays["bench"])
        assert np.array_equal(tree["state"][1].numpy(), arrays["state"][1])
        assert ["".join(map(chr, code)).strip("\0") for code in tree["order"].numpy()] == list(arrays["order"])


def test_features_are_one_hot_choices_and_scaled_pixels() -> None:
    env = paddock.emulate("toy_envs:Parts-v0")
    flat, _ = env.reset(seed=3)
    raw, _ = gymnasium.make("toy_envs:Parts-v0").reset(seed=3)
    expected = [raw["count"] == np.arange(100), raw["image"].ravel() / 255, raw["pair"][0], [raw["pair"][1]]]
    assert flat.dtype == np.float32
    tree = env.unflatten_observation(flat[None])
    for name, one in zip(("count", "image", "bits", "number"), expected, strict=True):
        part = {**tree, "bits": tree["pair"][0], "number": tree["pair"][1]}[name]
        assert np.allclose(part.ravel(), one, atol=1e-6), name


def test_flat_actions_reach_every_combination_of_choices() -> None:
    env = paddock.emulate(KeepActions(gymnasium.make("toy_envs:Levers-v0")), bins=3, discrete=True)
    for action in range(env.action_space.n):
        env.reset()
        env.step(np.int64(action))
    given = env.env.kept
    found = [(*own["aim"][0].tolist(), int(own["move"]), *own["keys"].tolist()) for own in given]
    levels = [-1.0, 1.0, 3.0]
    assert sorted(found) == sorted(itertools.product(levels, levels, [-1, 0, 1], [0, 1], [0, 1]))


def test_masked_samples_are_legal_and_reach_the_environment() -> None:
    for discrete in (False, True):
        env = paddock.emulate("toy_envs:Workshop-v0", discrete=discrete, **WORKSHOP)
        vector = paddock.emulate_vector("toy_envs:Workshop-v0", 3, discrete=discrete, **WORKSHOP)
        env.reset(seed=0)
        vector.reset(seed=[0, 1, 2])
        rng = np.random.default_rng(0)
        for _ in range(60):  # an illegal action raises
            masks = vector.action_masks()
            vector.step(np.stack([draw(rng, mask, vector.single_action_space) for mask in masks]))
            if any(env.step(draw(rng, env.action_masks(), env.action_space))[2:4]):
                env.reset()


def draw(rng: np.random.Generator, mask: Any, space: Any) -> Any:
    """Draw a legal action uniformly."""
    if isinstance(space, spaces.Discrete):
        return rng.choice(np.flatnonzero(mask))
    parts = np.split(mask, np.cumsum(space.nvec)[:-1])
    return np.array([rng.choice(np.flatnonzero(part)) for part in parts])


def test_mask_without_legal_choice_allows_all() -> None:
    env = paddock.emulate(Stuck())
    env.reset()
    assert env.action_masks().tolist() == [True, False, True]
    env.step(0)
    assert env.action_masks().all()


class Stuck(gymnasium.Env):
    """Ends in the first step, after which no action is legal."""

    observation_space = spaces.Dict(action_mask=spaces.MultiBinary(3))
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return {"action_mask": np.array([1, 0, 1], np.int8)}, {}

    def step(self, action: Any) -> Any:
        return {"action_mask": np.zeros(3, np.int8)}, 0.0, True, False, {}


@pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP])
@pytest.mark.parametrize("id", ["toy_envs:Parts-v0", "toy_envs:Workshop-v0", "toy_envs:Cell-v0"])
def test_vectors_restart_as_those_of_gymnasium(mode: AutoresetMode, id: str) -> None:
    options: dict[str, Any] = {**WORKSHOP, "bounds": {}} if "Workshop" not in id else WORKSHOP
    ours = paddock.emulate_vector(id, 4, autoreset=mode, **options)
    theirs = SyncVectorEnv([lambda: paddock.emulate(id, **options)] * 4, autoreset_mode=mode)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space and ours.metadata["autoreset_mode"] is mode
    assert np.array_equal(ours.reset(seed=5)[0], theirs.reset(seed=5)[0])
    rng, ends = np.random.default_rng(0), 0
    for _ in range(60):
        masks = ours.action_masks()
        actions = np.stack([draw(rng, mask, ours.single_action_space) for mask in masks])
        (*left, infos), (*right, other) = ours.step(actions), theirs.step(actions)
        assert all(np.array_equal(one, two) for one, two in zip(left, right, strict=True))
        ends += int((left[2] | left[3]).sum())
        assert ("final_obs" in infos) == ("final_obs" in other)
        for one, two in zip(infos.get("final_obs", ()), other.get("final_obs", ()), strict=True):
            assert (one is None and two is None) or np.array_equal(one, two)
    assert ends > 4


def test_agents_have_equal_spaces_constant_rows_and_zeros_while_dead() -> None:
    spec = env_spec("toy_worlds:Skirmish", kwargs={"agents": 5, "kinds": 2})
    flat = paddock.emulate_vector(spec, 2, bins=3)
    plain = Serial(num_envs=2).make(spec)
    assert flat.num_envs == 10 and flat.single_observation_space.shape == (13,)  # 9 choices and 4 numbers; 3 numbers
    assert flat.single_action_space == spaces.MultiDiscrete([5, 3])
    rows, seen = flat.reset(seed=0)[0], plain.reset(seed=0)[0]
    for _ in range(80):
        alive = plain.alive.reshape(2, 5)
        of = {"one": [1, 2, 4], "other": [0, 3]}
        rows = rows.reshape(2, 5, 13)
        assert np.array_equal(rows[:, of["one"], :3].reshape(6, 3), seen["one"]) and not rows[:, of["one"], 3:].any()
        numbers = np.where(alive[:, of["other"]].reshape(-1, 1), seen["other"]["b"].reshape(4, 4), 0)
        assert np.allclose(rows[:, of["other"], 9:].reshape(4, 4), numbers) and not rows[~alive].any()
        rows = flat.step(np.tile([4, 1], (10, 1)))[0]  # of three levels of a number, the last, 1, and the middle, 0
        seen = plain.step({"one": np.full(6, 4), "other": np.tile(np.array([1, 0], np.float32), (4, 1))})[0]


def test_several_agents_restart_one_step_later_with_next_step() -> None:
    spec = env_spec("toy_worlds:Skirmish", kwargs={"agents": 3})
    runs: dict[AutoresetMode, list[list[Any]]] = {}
    for mode in (SAME_STEP, NEXT_STEP):
        vector = paddock.emulate_vector(spec, 2, autoreset=mode)
        vector.reset(seed=2)
        runs[mode], over = [[], []], np.zeros(2, np.bool_)
        for _ in range(120):
            _, reward, terminated, truncated, infos = vector.step(np.full(6, 1))
            for world in np.flatnonzero(~over if mode is NEXT_STEP else [True, True]).tolist():
                mine = slice(3 * world, 3 * world + 3)
                runs[mode][world].append((*reward[mine], *terminated[mine], *truncated[mine]))
            over = infos["over"]
    for same_step, next_step in zip(runs[SAME_STEP], runs[NEXT_STEP], strict=True):
        assert 60 < len(next_step) < 120 and same_step[: len(next_step)] == next_step


def test_single_multiagent_environment_is_a_vector_of_its_agents() -> None:
    pytest.importorskip("mpe2")
    tag = paddock.emulate("mpe2.simple_tag_v3:parallel_env")
    rows, _ = tag.reset(seed=0)
    assert rows.shape == (4, 16) and not rows[3, 14:].any() and rows[:, 2:14].all()
    assert tag.action_space == spaces.MultiDiscrete([5] * 4)


def test_actions_that_are_not_flat_are_refused_by_their_reason() -> None:
    with pytest.raises(ConfigError, match="bins"):
        paddock.emulate("toy_envs:Levers-v0")
    with pytest.raises(ConfigError, match="bins"):
        paddock.emulate("Pendulum-v1", discrete=True)
    with pytest.raises(ConfigError, match="neither"):
        paddock.emulate("toy_envs:Samples-v0", kwargs={"observation": "start", "action": "text"})
    with pytest.raises(ConfigError, match=r"env\.id"):
        paddock.emulate(Scripted("ab", []))
