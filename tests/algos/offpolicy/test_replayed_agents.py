"""Several agents that learn one policy, or several, from replay, by the laws they obey."""

from pathlib import Path
from typing import Any

import learned
import numpy as np
import pytest
from conftest import deterministic
from learned import leaves

from paddock.algos.multiagent.collector import JointCollector as Collector
from paddock.algos.pool.serial import SerialPool
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm, read_plain
from paddock.envs.errors import ConfigError

SMALL = [
    *("env=gymnasium", "env.fresh=false", "vec.num_envs=4", "algo.num_steps=4", "algo.hidden_sizes=[8]"),
    *(
        "algo.log_every_steps=40",
        "algo.eval_every_steps=80",
        "algo.eval_episodes=2",
        "algo.buffer_size=160",
        "algo.learning_starts=50",
    ),
    *("algo.batch_size=8", "checkpoint.every_s=0"),
]
SPLIT = "algo.policies={first: [a, c], second: [b, d]}"
DQN = ["algo=dqn", "algo.target_every=3", "algo.epsilon_steps=100"]
PQN = ["algo=pqn", "algo.epochs=2", "algo.minibatch_size=8", "algo.layer_norm=false", "algo.epsilon_steps=100"]
OF_REPLAY = ("algo.buffer_size", "algo.learning_starts", "algo.batch_size")  # keys that PQN does not have
VARIANTS = {
    "dqn": [*DQN, "env.id=agents:Mortals", "algo.n_step=3", "algo.priority_exponent=0.6"],
    "turns": [*DQN, "env.id=agents:Turns", "env.max_episode_steps=4", "algo.double=false"],
    "board": [*DQN, "env=tictactoe", "algo.n_step=2"],
    "sac": ["algo=sac", "env.id=agents:Sizes", "algo.n_step=2", "algo.agent_id_feature=true"],
    # Several policies: each for a role, of which one chooses and one gives numbers; or as they are named.
    "roles": ["algo=sac", "env.id=toy_worlds:Skirmish", "+env.kwargs.kinds=2", "algo.updates_per_step=0.3"],
    "split": [*DQN, "env.id=agents:Mortals", SPLIT, "algo.priority_exponent=0.6", "algo.learning_starts=60"],
    "seats": ["algo=td3", "env.id=agents:Sizes", SPLIT, "algo.rollouts=actors", "vec.num_envs=2"],
    "lambda": [*PQN, "env.id=agents:Mortals"],
    "lambda split": [*PQN, "env.id=agents:Mortals", SPLIT, "algo.rollouts=actors", "vec.num_envs=2"],
    "torch": ["algo=sac", "env.id=agents:Sizes", SPLIT, "algo.n_step=2", "algo.backend=torch"],
}


def algorithm(variant: str, folder: Path, *more: str) -> Any:
    return algorithm_of([*VARIANTS[variant], *more], folder)


def algorithm_of(own: list[str], folder: Path) -> Any:
    words = {word.partition("=")[0]: word for word in [*SMALL, *own]}
    if words["algo"] == "algo=pqn":
        words = {key: word for key, word in words.items() if key not in OF_REPLAY}
    return learned.algorithm(*words.values(), folder=folder)


def advance(algo: Any, rows: int) -> list[dict[str, float]]:
    plan = algo.plan()
    found = [deterministic(next(plan)) for _ in range(rows)]
    plan.close()
    return found


@pytest.mark.parametrize("variant", ["turns", "roles", "split", "seats", "lambda split", "torch"])
def test_interrupted_in_the_middle_of_a_world_it_goes_on_the_same(variant: str, tmp_path: Path) -> None:
    whole, first, second = (algorithm(variant, tmp_path / name) for name in ("whole", "cut", "cut"))
    expected = advance(whole, 7)
    assert all(
        np.isfinite(list(row.values())).all()
        and all(abs(value) < 1e3 for key, value in row.items() if key.startswith(whole.group) and "loss" in key)
        for row in expected[4:]
    )
    names = [one.name for one in whole.learning]
    assert all(expected[-1][f"train/{name}/updates"] > 10 for name in names if name)
    assert any("eval/team_return_mean" in row for row in expected) and expected[-1]["train/updates"] > 30
    last, rows = expected[-1], whole.num_rows
    assert last["train/world_steps"] == whole.learning[0].schedule.rollouts * 4 * rows / whole.env.seats
    # Who waits or is dead takes no step, and what has been seen of turns is in the replay.
    assert last["step"] < last["train/world_steps"] * whole.env.seats
    if whole.group != "pqn":
        assert last["step"] - whole.n_step * rows <= sum(one.buffer.steps for one in whole.learning) <= last["step"]
    assert advance(first, 4) == expected[:4]
    second.load_state_dict(first.state_dict())
    assert advance(second, 3) == expected[4:]
    assert leaves(second.state_dict()) == leaves(whole.state_dict())


@pytest.mark.parametrize("variant", ["split", "seats"])
def test_two_policies_never_move_each_others_parameters(variant: str, tmp_path: Path) -> None:
    # What the agents of these worlds see and are asked for depends on nobody's actions.
    clean, other = (algorithm(variant, tmp_path / name) for name in ("clean", "other"))
    learner = other.learning[0].learner
    learn = learner.update
    learner.update = lambda batch, rate: learn(batch, 3 * rate)
    rows, changed = advance(clean, 7), advance(other, 7)
    (a, b), (c, d) = clean.weights(), other.weights()
    assert not np.array_equal(a.parameters, c.parameters)
    assert b.parameters.tobytes() == d.parameters.tobytes()
    assert leaves(clean.learning[1].learner.state_dict()) == leaves(other.learning[1].learner.state_dict())
    mine = [key for row in rows for key in row if "/second/" in key]
    assert f"{clean.group}/second/loss" in mine or f"{clean.group}/second/actor_loss" in mine
    for row, same in zip(rows, changed, strict=True):
        assert all(row[key] == same[key] for key in row if "/second/" in key)


def test_each_policy_learns_from_what_its_own_agents_did_alone(tmp_path: Path) -> None:
    """The second never chooses 1 and sees a number that nobody else does: the first one's replay has neither."""
    algo = algorithm("split", tmp_path)
    collect = Collector.collect

    def mark(self: Collector, *given: Any) -> Any:
        rollouts, end = collect(self, *given)
        for k, rollout in enumerate(rollouts):
            rollout.obs[..., 1], rollout.action[:] = k, k
        return rollouts, end

    drawn: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Collector, "collect", mark)
        for one in algo.learning:
            drawn.append([])

            def watch(batch: Any, rate: float, into: Any = drawn[-1], update: Any = one.learner.update) -> Any:
                into.append(batch)
                return update(batch, rate)

            patch.setattr(one.learner, "update", watch)
        advance(algo, 6)
    for k, batches in enumerate(drawn):
        assert len(batches) > 10 and all((batch.obs[..., 1] == k).all() for batch in batches)
        assert all((batch.action == k).all() for batch in batches)


def test_several_policies_begin_with_those_of_their_names(tmp_path: Path) -> None:
    source, target = (algorithm("split", tmp_path / name) for name in ("source", "target"))
    advance(source, 5)
    target.start_from(type(source.initial_policy()).restore(source.initial_policy().state_dict()))
    for one, other in zip(source.weights(), target.weights(), strict=True):
        np.testing.assert_array_equal(one.parameters, other.parameters)
    with pytest.raises(ConfigError, match="it has policies first, second, but this run has a single"):
        algorithm("dqn", tmp_path / "alone").start_from(source.initial_policy())
    told = target.describe()
    assert {"policy first", "policy second", "replay first", "replay second"} < set(told)


def test_native_worlds_change_no_number(tmp_path: Path) -> None:
    found = [advance(algorithm("board", tmp_path / v, f"vec={v}"), 6) for v in ("serial", "native")]
    assert found[0] == found[1] and found[0][-1]["train/updates"] > 30


@pytest.mark.parametrize("variant", ["dqn", "lambda"])
def test_what_the_dead_see_is_learned_from_by_nobody(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = advance(algorithm(variant, tmp_path / "clean"), 6)
    collect = Collector.collect

    def poison(self: Collector, *given: Any) -> Any:
        rollouts, end = collect(self, *given)
        for rollout in rollouts:
            assert rollout.acts is not None
            # What a life that terminated led to is in transitions, and counts for nothing.
            waits = ~rollout.acts[1:] & (~rollout.terminated | (variant == "lambda"))
            rollout.obs[1:][waits[:-1]], rollout.last_obs[waits[-1]] = np.inf, np.inf
            rollout.action[~rollout.acts[:-1]] = 99
        return rollouts, end

    monkeypatch.setattr(Collector, "collect", poison)
    monkeypatch.setattr("paddock.algos.learning.offpolicy.operators.check_rollout", lambda *_: None)
    assert advance(algorithm(variant, tmp_path / "poisoned"), 6) == rows


def test_who_was_cut_off_while_it_waited_may_do_anything_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is legal no action is the best one, and a target would be the least number there is."""
    seen: list[np.ndarray] = []
    collect = Collector.collect

    def look(self: Collector, *given: Any) -> Any:
        rollouts, end = collect(self, *given)
        seen.extend(
            self._policies.specs[0].architecture.inputs.layout.fields(rollouts[0].final_obs)["action_mask"].copy()
        )
        return rollouts, end

    monkeypatch.setattr(Collector, "collect", look)
    advance(algorithm("turns", tmp_path), 3)
    assert len(seen) > 4 and np.all(seen)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algo=dqn", "env.id=agents:Mortals", "algo.policies={x: [a, b]}"], "no policy controls c, d"),
        (
            ["algo=dqn", "env.id=agents:Mortals", SPLIT, "algo.learning_starts=8"],
            "leaves nothing of first to sample; increase it by",
        ),
        (
            ["algo=dqn", "env.id=agents:Mortals", "algo.buffer_size=79"],
            "algo.buffer_size=79 is less than the 80 .*; increase it",
        ),
        (["algo=dqn", "env=cartpole", "algo.agent_id_feature=true"], "needs several agents"),
        (
            ["algo=r2d2", "env.id=agents:Mortals"],
            "algo=r2d2 needs a single agent, but env.id=agents:Mortals has several",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    small = ["env=gymnasium", "env.fresh=false", "vec.num_envs=4", "algo.num_steps=4", "algo.batch_size=8"]
    given = {word.partition("=")[0]: word for word in [*small, *words]}
    with pytest.raises(ConfigError, match=said) as refused:
        build_algorithm(read_plain(compose_alone([*given.values()])), SerialPool(), folder=tmp_path)
    assert "\n" not in str(refused.value)
