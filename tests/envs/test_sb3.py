"""Stable-Baselines3 gets from `paddock.sb3.VecEnv` what it gets from its own vector environments."""

from typing import Any

import numpy as np
import pytest

import paddock

pytest.importorskip("stable_baselines3")
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from test_emulation import NEXT_STEP, WORKSHOP, draw

from paddock.envs.errors import ConfigError
from paddock.sb3 import VecEnv

IDS: dict[str, dict[str, Any]] = {"toy_envs:Parts-v0": {}, "toy_envs:Workshop-v0": WORKSHOP}


@pytest.mark.filterwarnings("ignore")  # recommendations
@pytest.mark.parametrize("form", ["features", "bytes"])
def test_emulated_environments_pass_the_checks_of_stable_baselines3(form: Any) -> None:
    for id, options in {**IDS, "Pendulum-v1": {}}.items():
        if "Workshop" not in id:  # which refuses the illegal actions that are tried
            check_env(paddock.emulate(id, form=form, **options))


@pytest.mark.parametrize("id", IDS)
def test_steps_and_infos_equal_those_of_dummy_vec_env(id: str) -> None:
    ours: Any = VecEnv(paddock.emulate_vector(id, 3, **IDS[id]))
    theirs: Any = DummyVecEnv([lambda: Monitor(paddock.emulate(id, **IDS[id]))] * 3)
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    for vector in (ours, theirs):
        vector.seed(4)
    assert np.array_equal(ours.reset(), theirs.reset())
    rng, ends = np.random.default_rng(0), 0
    for _ in range(60):
        masks = np.stack(ours.env_method("action_masks"))
        assert np.array_equal(masks, np.stack(theirs.env_method("action_masks")))
        actions = np.stack([draw(rng, mask, ours.action_space) for mask in masks])
        (*left, infos), (*right, others) = ours.step(actions), theirs.step(actions)
        assert all(one.dtype == two.dtype and np.array_equal(one, two) for one, two in zip(left, right, strict=True))
        for k in range(3):
            info, other = infos[k], others[k]
            assert info.get("TimeLimit.truncated", False) == other.pop("TimeLimit.truncated")
            info.pop("TimeLimit.truncated", None)
            assert info.keys() == other.keys() and ("episode" in info) == left[2][k]
            if left[2][k]:
                ends += 1
                assert np.array_equal(info["terminal_observation"], other["terminal_observation"])
                assert info["episode"]["r"] == pytest.approx(other["episode"]["r"], abs=1e-5)
                assert info["episode"]["l"] == other["episode"]["l"]
                assert ours.reset_infos[k].keys() == theirs.reset_infos[k].keys()
    assert ends > 8


def test_ppo_of_stable_baselines3_learns_a_bandit() -> None:
    vector = VecEnv(paddock.emulate_vector("paddock.envs.sanity:paddock/Bandit-v0", 8))
    model = PPO("MlpPolicy", vector, n_steps=32, batch_size=64, learning_rate=0.01, seed=0, device="cpu")
    model.learn(3000)
    lengths = evaluate_policy(model, vector, 20, return_episode_rewards=True)[1]
    assert lengths == [1] * 20
    assert np.mean([episode["r"] for episode in model.ep_info_buffer or ()]) > 0.8  # chance: 0.1


def test_each_agent_is_a_row_and_attributes_are_those_of_its_environment() -> None:
    vector: Any = VecEnv(paddock.emulate_vector("paddock.envs.sanity.relay:Relay", 2))
    assert vector.reset().shape == (6, *vector.observation_space.shape)
    dones = [vector.step(np.zeros(6, np.int64))[2] for _ in range(6)]
    assert np.stack(dones).any(axis=0).all() and not dones[0].all()
    assert len(vector.get_attr("possible_agents")) == 6
    assert not vector.has_attr("missing") and vector.has_attr("action_masks")


def test_vectors_that_restart_one_step_later_are_refused() -> None:
    with pytest.raises(ConfigError, match="SAME_STEP"):
        VecEnv(paddock.emulate_vector("CartPole-v1", 2, autoreset=NEXT_STEP))
