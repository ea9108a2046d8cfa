"""How Hardcore begins beside Stable-Baselines3: the same environments for both, and no run is played twice."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from compiled import native  # noqa: F401, a fixture
from sb3_stand_in import import_peer

from paddock.envs.errors import ConfigError
from scripts.bench.contenders import contest
from scripts.bench.peers import paddock_ppo
from scripts.bench.runs import hardcore as bench


@pytest.mark.usefixtures("native")
def test_the_peer_steps_gymnasium_s_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = import_peer("sb3_ppo", monkeypatch).NativeVecEnv(bench.NATIVE, 3, seed=5)
    alone = [gymnasium.make("BipedalWalkerHardcore-v3", max_episode_steps=2000) for _ in range(3)]
    expected = np.stack([env.reset(seed=5 + index)[0] for index, env in enumerate(alone)])
    np.testing.assert_array_equal(envs.reset(), expected)
    random, ended, returns = np.random.default_rng(1), 0, np.zeros(3)
    for _ in range(400):
        actions = random.uniform(-1, 1, (3, 4)).astype(np.float32)
        observations, rewards, done, infos = envs.step(actions)
        for index, env in enumerate(alone):
            observation, reward, terminated, truncated, _ = env.step(actions[index])
            returns[index] += reward
            assert rewards[index] == np.float32(reward) and done[index] == (terminated or truncated)
            if done[index]:
                np.testing.assert_array_equal(infos[index]["terminal_observation"], observation)
                assert infos[index]["TimeLimit.truncated"] == (truncated and not terminated)
                assert infos[index]["episode"]["r"] == pytest.approx(returns[index], rel=1e-5)
                ended, returns[index] = ended + 1, 0.0
                observation, _ = env.reset()
            np.testing.assert_array_equal(observations[index], observation)
    assert ended >= 3
    envs.close()


@pytest.mark.usefixtures("native")
def test_a_run_is_followed_rollout_by_rollout() -> None:
    recipe = {"experiment": "ppo_hardcore"}
    shorter = ["algo.num_steps=64", "algo.epochs=1", "vec.num_envs=4"]
    rows = paddock_ppo.follow(recipe, shorter, until=700, seed=1)["rows"]
    assert [row["step"] for row in rows] == [256, 512, 768]
    assert all(row["entropy"] > 5 for row in rows) and sum(row["episodes"] or 0 for row in rows) > 0


def test_the_peer_tells_of_a_rollout_what_its_update_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = import_peer("sb3_ppo", monkeypatch)
    follow = peer.Follow(until=8)
    follow.model.logger.name_to_value = learned = {}
    for step, entropy in ((4, 2.0), (8, 1.5), (12, 1.0)):
        follow.num_timesteps, follow.locals = step, {"infos": [{"episode": {"r": float(step)}}, {}]}
        assert follow._on_step() is (step <= 8)
        follow._on_rollout_end()
        learned["train/entropy_loss"] = -entropy
    assert follow.rows == [
        {"step": 4, "episodes": 1, "return_mean": 4.0, "entropy": 2.0},
        {"step": 8, "episodes": 1, "return_mean": 8.0, "entropy": 1.5},
        {"step": 12, "episodes": 1, "return_mean": 12.0},
    ]


def test_means_are_of_episodes_and_of_updates_near_a_point() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 700_000, "episodes": 9, "return_mean": 900.0, "entropy": 9.0},  # too far
        {"step": 800_000, "episodes": 1, "return_mean": -100.0, "entropy": 4.0},
        {"step": 1_000_000, "episodes": 0, "return_mean": None, "entropy": 3.0},
        {"step": 1_200_000, "episodes": 3, "return_mean": -60.0},  # of the last rollout no update was told
    ]
    assert bench.average(rows, 1_000_000) == {"return_mean": -70.0, "entropy": 3.5}
    assert bench.average(rows, 1_800_000) == {"return_mean": -60.0, "entropy": None}, "else the nearest"


def test_runs_that_were_made_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked: list[tuple[str, int]] = []

    class Scripted:
        def __init__(self, file: str, python: str) -> None:
            self.file = file

        def ask(self, recipe: dict[str, Any], setting: Any, until: int, seed: int) -> dict[str, Any]:
            asked.append((self.file, seed))
            level = 50.0 if self.file == "sb3_ppo.py" else 0.0
            row = {"step": until // 2, "episodes": 1, "return_mean": level + seed, "entropy": 1.0}
            return {"rows": [row]}

        def close(self) -> None:
            pass

    monkeypatch.setattr(contest, "Player", Scripted)
    command = ["--steps", "1000", "--json", str(tmp_path / "rows.json"), "--sides", "observe_first", bench.PEER]
    assert bench.main([*command, "--seeds", "1"]) == 0
    assert len(asked) == 2
    assert bench.main([*command, "--seeds", "3"]) == 1, "whose intervals lie apart"
    assert sorted(asked) == [("paddock_ppo.py", seed) for seed in (1, 2, 3)] + [
        ("sb3_ppo.py", seed) for seed in (1, 2, 3)
    ]
    assert "52 [51, 53] of 3 seeds at 500" in capsys.readouterr().out
    assert json.loads((tmp_path / "rows.json").read_text())["rows"][bench.PEER]["3"][0]["return_mean"] == 53.0
    with pytest.raises(ConfigError, match="name another file"):
        bench.main([*command, "--steps", "4000"])
