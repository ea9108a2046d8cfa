"""Scores beside Stable-Baselines3: both sides have the same settings and steps, and nothing that was scored is lost."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from learned import algorithm
from sb3_stand_in import import_peer

from paddock.envs.errors import ConfigError
from scripts.bench.contenders import contest
from scripts.bench.contenders.contest import Missing
from scripts.bench.peers import paddock_ppo, paddock_replay
from scripts.bench.runs import hardcore
from scripts.bench.runs import seeds as bench

PPO = [name for name, (experiment, _) in bench.ROWS.items() if experiment.startswith("ppo")]
REPLAYED = [name for name in bench.ROWS if name not in PPO]


@pytest.mark.parametrize("name", PPO)
def test_paddock_plays_the_experiment_and_the_peer_its_settings(name: str) -> None:
    recipe = bench.translate(*bench.ROWS[name])
    ppo = paddock_ppo.build(recipe, [], seed=1)
    for setting in paddock_ppo.SAME_NAME:
        assert getattr(ppo, setting) == recipe[setting], setting
    assert ppo.vec.num_envs == recipe["num_envs"] and ppo.normalize_observations == recipe["normalize"]
    with closing(ppo.env.make()) as ours, closing(gymnasium.make(recipe["env"])) as theirs:
        assert ours.action_space == theirs.action_space and ours.observation_space == theirs.observation_space


@pytest.mark.parametrize("name", REPLAYED)
def test_both_learn_from_replay_by_the_experiment(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = bench.translate(*bench.ROWS[name])
    ours = algorithm(f"experiment={recipe['experiment']}", folder=tmp_path)
    with closing(ours.env.make()) as env, closing(gymnasium.make(recipe["env"])) as other:
        assert env.action_space == other.action_space and env.observation_space == other.observation_space
    theirs = import_peer("sb3_replay", monkeypatch).settings(recipe)
    assert (theirs["batch_size"], theirs["buffer_size"]) == (ours.batch_size, ours.capacity)
    assert (theirs["learning_starts"], theirs["train_freq"]) == (ours.warmup, ours.num_steps)
    assert theirs["gradient_steps"] == ours.num_steps * ours.updates_per_step
    assert theirs["policy_kwargs"]["net_arch"] == list(ours.hidden)
    assert (theirs["learning_rate"], theirs["gamma"], theirs["tau"]) == (ours.learning_rate, ours.gamma, ours.tau)


def test_the_peer_counts_in_steps_what_is_counted_in_updates_here(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = import_peer("sb3_replay", monkeypatch)
    theirs = peer.settings(bench.translate(*bench.ROWS["dqn_mountaincar"]))
    assert theirs["target_update_interval"] == 600  # 300 updates, one for two steps
    assert theirs["exploration_fraction"] == 0.2  # 24,000 of 120,000 steps
    assert (theirs["exploration_initial_eps"], theirs["exploration_final_eps"]) == (1.0, 0.07)
    assert peer.settings(bench.translate(*bench.ROWS["sac_pendulum"]))["ent_coef"] == "auto_1.0"
    assert peer.settings(bench.translate(*bench.ROWS["td3_pendulum"]))["policy_delay"] == 2


def test_stable_baselines_is_given_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = import_peer("sb3_ppo", monkeypatch)
    monkeypatch.setattr(peer, "evaluate_policy", lambda model, envs, episodes, **_: ([1.0, 3.0], [5, 5]))
    recipe = bench.translate(*bench.ROWS["bipedal"])
    assert peer.score(recipe, 1, episodes=2, seed=7)["return_mean"] == 2.0
    given, model = peer.PPO.call_args.kwargs, peer.PPO.return_value
    assert (given["n_steps"], given["batch_size"], given["n_epochs"]) == (2048, 64, 10)
    assert (given["gamma"], given["clip_range"], given["seed"]) == (0.999, 0.18, 7)
    assert given["vf_coef"] == 0.5 * recipe["value_coef"]  # of whole squares, where ours is of halved ones
    assert model.learn.call_args.args == (5_000_000,)
    # The observations of what is played are normalized as those of training were, and its rewards are the game's.
    played = peer.VecNormalize.call_args
    assert played.kwargs == {"training": False, "norm_reward": False}
    assert peer.VecNormalize.return_value.obs_rms is model.get_env().obs_rms


def test_a_seed_is_scored_by_its_last_policy() -> None:
    recipe = bench.translate(*bench.ROWS["cartpole"]) | {"steps": 500}
    scored = paddock_ppo.score(recipe, [], episodes=3, seed=1)
    assert scored["steps"] == 512 and 1 <= scored["return_mean"] <= 500
    assert scored == paddock_ppo.score(recipe, [], episodes=3, seed=1)


def test_a_seed_of_replay_is_scored_by_its_last_policy_too() -> None:
    recipe = bench.translate(*bench.ROWS["sac_pendulum"]) | {"steps": 1000}
    scored = paddock_replay.score(recipe, last_episodes=3, seed=1)
    assert scored["steps"] == 1000 and -2000 < scored["return_mean"] < 0
    assert scored == paddock_replay.score(recipe, last_episodes=3, seed=1)


def test_the_peers_evaluations_are_kept_as_the_notebook_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"step": 2000, "eval/return_mean": -900.0}

    def scripted(side: str, recipe: dict[str, Any], seed: int, peers: str) -> dict[str, Any]:
        told = {"steps": recipe["steps"], "return_mean": -150.0 - seed}
        return told | ({"evaluations": [row]} if side == "sb3" else {})

    monkeypatch.setattr(bench, "score", scripted)
    curves, scores = tmp_path / "curves", tmp_path / "scores.json"
    command = ["--rows", "sac_pendulum", "--seeds", "2", "--json", str(scores), "--curves", str(curves)]
    assert bench.main(command) == 0
    assert sorted(file.name for file in curves.iterdir()) == [
        f"sb3_sac_pendulum{seed}.evaluations.jsonl" for seed in (1, 2)
    ]
    assert json.loads((curves / "sb3_sac_pendulum1.evaluations.jsonl").read_text()) == row
    assert "evaluations" not in scores.read_text()


def test_a_run_that_was_cut_off_goes_on_with_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[str, int]] = []

    def scripted(side: str, recipe: dict[str, Any], seed: int, peers: str) -> dict[str, Any]:
        if len(played) == 5:
            raise KeyboardInterrupt
        played.append((side, seed))
        return {"steps": recipe["steps"], "return_mean": 10.0 * seed + (side == "sb3")}

    monkeypatch.setattr(bench, "score", scripted)
    monkeypatch.setattr(bench, "AT_ONCE", 1)
    command = ["--rows", "cartpole", "--seeds", "3", "--json", str(tmp_path / "scores.json")]
    with pytest.raises(KeyboardInterrupt):
        bench.main(command)
    kept = json.loads((tmp_path / "scores.json").read_text())["rows"]["cartpole"]["scores"]
    assert [len(kept[side]) for side in bench.SIDES] == [3, 2]
    played.clear()
    assert bench.main(command) == 0 and played == [("sb3", 3)]
    kept = (tmp_path / "scores.json").read_bytes()
    for other in (["--steps", "100"], ["--quick"]):
        with pytest.raises(ConfigError, match=r"scores of cartpole with other settings \(steps\); name another"):
            bench.main([*command, *other])
    assert (tmp_path / "scores.json").read_bytes() == kept


@pytest.mark.parametrize(("theirs", "reached"), [((1.0, 2.0, 4.0), True), ((11.0, 12.0, 14.0), False)])
def test_a_row_is_reached_where_intervals_overlap(theirs: tuple[float, ...], reached: bool) -> None:
    scores = {
        side: {str(seed): {"steps": 9, "return_mean": value} for seed, value in enumerate(values)}
        for side, values in {"paddock": (0.0, 2.0, 3.0), "sb3": theirs}.items()
    }
    judged = bench.judge(scores)
    assert judged["reached"] is reached and judged["sides"]["paddock"]["mean"] == pytest.approx(5 / 3)
    assert (judged["above"] == 0.0) is not reached


@pytest.mark.parametrize("main", [bench.main, hardcore.main])
def test_a_peer_that_is_not_installed_is_one_line(main: Callable[[Any], int], monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        def __init__(self, file: str, python: str) -> None:
            pass

        def ask(self, **request: Any) -> dict[str, Any]:
            raise Missing("ModuleNotFoundError: No module named 'stable_baselines3'")

        def close(self) -> None:
            pass

    monkeypatch.setattr(contest, "Player", Absent)
    with pytest.raises(ConfigError, match=r"'stable_baselines3'; pip install 'paddock\[bench\]', or .* --peers"):
        main(["--quick"])
