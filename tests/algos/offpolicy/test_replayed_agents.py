"""Several agents that learn one policy from replay, by the laws they obey."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import deterministic
from learned import leaves

from algos.learning.rollouts.collector import Collector
from algos.pool.serial import SerialPool
from envs.errors import ConfigError
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm, read_plain

SMALL = [
    *("env=gymnasium", "env.fresh=false", "vec.num_envs=4", "algo.num_steps=4", "algo.hidden=[8]"),
    *("algo.row_every=40", "algo.eval_every=80", "algo.eval_episodes=2", "algo.capacity=160", "algo.warmup=50"),
    *("algo.batch_size=8", "checkpoint.every_s=0"),
]
DQN = ["algo=dqn", "algo.target_every=3", "algo.epsilon_steps=100"]
VARIANTS = {
    "dqn": [*DQN, "env.id=agents:Mortals", "algo.n_step=3", "algo.priority_exponent=0.6"],
    "turns": [*DQN, "env.id=agents:Turns", "env.max_episode_steps=4", "algo.double=false"],
    "board": [*DQN, "env=tictactoe", "algo.n_step=2"],
    "ahead": [*DQN, "env.id=agents:Mortals", "algo.rollouts=prefetch", "algo.groups=2", "algo.epsilon_ladder=true"],
    "choices": ["algo=sac", "env.id=agents:Turns", "env.max_episode_steps=4", "algo.updates_per_step=0.3"],
    "sac": ["algo=sac", "env.id=agents:Sizes", "algo.n_step=2", "algo.seat_feature=true"],
    "td3": ["algo=td3", "env.id=agents:Sizes", "algo.rollouts=actors", "vec.num_envs=2"],
}


def algorithm(variant: str, folder: Path, *more: str) -> Any:
    words = {word.partition("=")[0]: word for word in [*SMALL, *VARIANTS[variant], *more]}
    return build_algorithm(read_plain(compose_alone([*words.values()])), SerialPool(), folder=folder)


def advance(algo: Any, rows: int) -> list[dict[str, float]]:
    plan = algo.plan()
    found = [deterministic(next(plan)) for _ in range(rows)]
    plan.close()
    return found


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "board"])
def test_interrupted_in_the_middle_of_a_world_it_goes_on_the_same(variant: str, tmp_path: Path) -> None:
    whole, first, second = (algorithm(variant, tmp_path / name) for name in ("whole", "cut", "cut"))
    expected = advance(whole, 7)
    assert all(
        np.isfinite(list(row.values())).all() and abs(row[f"{whole.group}/loss"]) < 1e3
        for row in expected[4:]
        if f"{whole.group}/loss" in row
    )
    assert any("eval/team_return_mean" in row for row in expected) and expected[-1]["train/updates"] > 30
    last, rows = expected[-1], whole.num_rows
    assert last["train/world_steps"] == whole.pace.rollouts * 4 * rows / whole.env.seats
    # Who waits or is dead takes no step, and what has been seen of turns is in the replay.
    assert last["step"] < last["train/world_steps"] * whole.env.seats
    assert last["step"] - whole.n_step * rows <= whole.replay.steps <= last["step"]
    assert advance(first, 4) == expected[:4]
    second.load_state_dict(first.state_dict())
    assert advance(second, 3) == expected[4:]
    assert leaves(second.state_dict()) == leaves(whole.state_dict())


@pytest.mark.parametrize("variant", ["dqn", "sac"])
def test_worker_processes_change_no_number(variant: str, tmp_path: Path) -> None:
    here = advance(algorithm(variant, tmp_path / "here"), 6)
    assert advance(algorithm(variant, tmp_path / "there", "vec=multiprocess", "vec.workers=2"), 6) == here


def test_native_worlds_change_no_number(tmp_path: Path) -> None:
    found = [advance(algorithm("board", tmp_path / v, f"vec={v}"), 6) for v in ("serial", "native")]
    assert found[0] == found[1] and found[0][-1]["train/updates"] > 30


@pytest.mark.parametrize("variant", ["dqn", "sac"])
def test_what_the_dead_see_is_learned_from_by_nobody(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = advance(algorithm(variant, tmp_path / "clean"), 6)
    collect = Collector.collect

    def poison(self: Collector, *given: Any) -> Any:
        rollouts, end = collect(self, *given)
        for rollout in rollouts:
            assert rollout.acts is not None
            # What a life that terminated led to is stored, and counts for nothing.
            waits = ~rollout.acts[1:] & ~rollout.terminated
            rollout.obs[1:][waits[:-1]], rollout.last_obs[waits[-1]] = np.inf, np.inf
            rollout.action[~rollout.acts[:-1]] = 99
        return rollouts, end

    monkeypatch.setattr(Collector, "collect", poison)
    monkeypatch.setattr("algos.learning.offpolicy.operators.check_rollout", lambda rollout: None)
    assert advance(algorithm(variant, tmp_path / "poisoned"), 6) == rows


def test_who_was_cut_off_while_it_waited_may_do_anything_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is legal no action is the best one, and a target would be the least number there is."""
    seen: list[np.ndarray] = []
    collect = Collector.collect

    def look(self: Collector, *given: Any) -> Any:
        rollouts, end = collect(self, *given)
        seen.extend(self._parts.each[0].architecture.inputs.layout.fields(rollouts[0].final_obs)["action_mask"].copy())
        return rollouts, end

    monkeypatch.setattr(Collector, "collect", look)
    advance(algorithm("turns", tmp_path), 3)
    assert len(seen) > 4 and np.all(seen)


def test_epsilon_and_warmup_count_actions(tmp_path: Path) -> None:
    algo, drawn = algorithm("turns", tmp_path), []
    exploration = algo.actors._config.exploration
    draw = type(exploration).draw

    def watch(self: Any, head: Any, generator: Any, lead: Any, step: int, first: int) -> Any:
        drawn.append(step)
        return draw(self, head, generator, lead, step, first)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(exploration), "draw", watch)
        advance(algo, 3)
    # One of two agents acts in each step: 4 worlds x 4 steps in a rollout.
    assert drawn == [16 * k for k in range(len(drawn))] and len(drawn) > 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algo=r2d2", "env.id=agents:Mortals"], "algo=r2d2 takes environments of one agent, and .* has 4; algo=dqn"),
        (["algo=pqn", "env.id=agents:Mortals"], "algo=pqn takes environments of one agent, and .* has 4; algo=dqn"),
        (
            ["algo=dqn", "env.id=toy_worlds:Skirmish", "+env.kwargs.kinds=2"],
            "agents of 2 roles .*algo=ppo and algo=a2c",
        ),
        (["algo=dqn", "env.id=agents:Mortals", "algo.warmup=16"], "algo.warmup=16 leaves nothing .* raise it by 1 or"),
        (["algo=dqn", "env.id=agents:Mortals", "algo.capacity=79"], "algo.capacity=79 is less than 80, .*; raise it"),
        (["algo=dqn", "env=cartpole", "algo.seat_feature=true"], "has one agent; leave it at false"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    small = ["env=gymnasium", "env.fresh=false", "vec.num_envs=4", "algo.num_steps=4", "algo.batch_size=8"]
    given = {word.partition("=")[0]: word for word in [*small, *words]}
    if "pqn" in words[0]:
        del given["algo.batch_size"]
    with pytest.raises(ConfigError, match=said) as refused:
        build_algorithm(read_plain(compose_alone([*given.values()])), SerialPool(), folder=tmp_path)
    assert "\n" not in str(refused.value)
