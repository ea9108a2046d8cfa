"""Several agents that share a policy: rollouts, learning and evaluation, by the laws they obey."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learned import advance, algorithm, assert_same, followed, leaves, parameters, played, weights

from paddock.algos.learning.episode_metrics import summarize
from paddock.algos.learning.policy_episodes import EvaluationSpec, evaluate_policy
from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.multiagent.collector import JointCollector as Collector
from paddock.algos.multiagent.policies import PolicyGroup
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.heads import make_head
from paddock.algos.networks.inputs import spaces_of
from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Serial

SMALL = [
    "algo=ppo",
    "env=gymnasium",
    "env.fresh=false",
    "vec.num_envs=4",
    "algo.num_steps=12",
    "algo.minibatch_size=32",
    "algo.hidden_sizes=[8]",
    "algo.eval_every_iterations=2",
    "algo.eval_episodes=3",
    "algo.normalize_observations=true",
    "algo.normalize_rewards=true",
    "checkpoint.every_s=0",
]
MORTALS, TURNS = ["env.id=agents:Mortals"], ["env.id=agents:Turns"]
VARIANTS = {
    "mortals": MORTALS,
    "turns": TURNS,
    "prefetch": [*MORTALS, "algo.rollouts=prefetch", "algo.groups=2"],
    "actors": [*TURNS, "algo.rollouts=actors", "vec.num_envs=2"],
    "lstm": [*TURNS, "algo.lstm=true"],
    "vtrace": [*TURNS, "algo.rollouts=actors", "algo.advantage=vtrace", "algo.staleness=2"],
    "a2c": [*MORTALS, "algo=a2c"],
}


def arguments(variant: str, *more: str) -> list[str]:
    words = [*SMALL, *VARIANTS[variant], *more]
    if "algo=a2c" in words:
        words = [word for word in words if "normalize" not in word and "minibatch" not in word and word != "algo=ppo"]
    return words


def config(id: str, *, lstm: bool = False, groups: int = 1, steps: int = 7) -> RolloutConfig:
    env = EnvSpec(id=id, kwargs={}, wrappers=(), max_episode_steps=None, fresh=False)
    observations, actions = spaces_of(env)
    sizes: dict[str, Any] = {"hidden_sizes": (8,), "activation": "tanh", "shared": False, "initial_log_std": 0.0}
    architecture = Architecture.for_spaces(observations, make_head(actions), encoder="auto", lstm=lstm, **sizes)
    return RolloutConfig(env, Serial(num_envs=4), architecture, 3, steps, groups, "auto")


@pytest.mark.parametrize(
    "of",
    [config("agents:Mortals"), config("agents:Mortals", lstm=True, groups=2), config("agents:Turns", lstm=True)],
    ids=["mortals", "lstm", "turns"],
)
def test_any_process_can_go_on_in_the_middle_of_a_world(of: RolloutConfig) -> None:
    undisturbed, points = followed(of, 5)
    assert any((point.length > 0).any() for point in points)
    for k in (1, 2, 4):
        kept = points[k].state_dict(of.policy_group)
        elsewhere = Collector(of)
        again = ResumePoint.restore(kept, of.policy_group, 1)
        (rollout,), end = elsewhere.collect([weights(of, k)], again, k)
        assert_same(rollout, undisturbed[k])
        assert points[k].advance([end]).same_as(points[k + 1])
        elsewhere.close()


def test_a_rollout_says_who_acted_and_what_each_life_came_to() -> None:
    of = config("agents:Mortals", steps=12)
    (rollout,) = played(of, 1)
    world = rollout.acts[:, :4]
    # The first four steps of every episode: a dies after two, b after one, and lives once more from step 3 on; d is
    # born in step 1.
    expected = [[1, 1, 1, 0], [1, 0, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]]
    np.testing.assert_array_equal(world[:5], expected)
    assert rollout.terminated[0, 1] and rollout.terminated[1, 0] and rollout.terminated[3, 1]
    over = int(np.flatnonzero(rollout.terminated[:, 2])[0])  # c lives to the end, where d is cut off
    assert rollout.truncated[over, 3] and [over, 3] in rollout.final_at.tolist()
    np.testing.assert_array_equal(world[over + 1], [1, 1, 1, 0])
    assert rollout.stray_reward == 0.5 * (~rollout.acts[:-1, ::4]).sum()
    assert rollout.steps == rollout.acts[:-1].sum() < 12 * 16 and rollout.world_steps == 12 * 4
    assert not rollout.obs[~rollout.acts[:-1]].any() and not rollout.reward[~rollout.acts[:-1]].any()
    right = rollout.obs[..., 0] == rollout.action[..., 0]
    np.testing.assert_array_equal(rollout.reward, right & rollout.acts[:-1])
    assert len(rollout.returns) == (rollout.terminated | rollout.truncated).sum()


def test_groups_of_worlds_change_no_episode() -> None:
    (whole,), (parts,) = played(config("agents:Mortals"), 1), played(config("agents:Mortals", groups=2), 1)
    for name in ("obs", "action", "reward", "terminated", "truncated", "acts", "logprob"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name), err_msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_interrupted_in_the_middle_of_a_world_it_goes_on_the_same(variant: str) -> None:
    whole, first, second = (algorithm(*arguments(variant)) for _ in range(3))
    expected = advance(whole, 4)
    assert all(np.isfinite(list(row.values())).all() for row in expected)
    assert expected[-1]["train/world_steps"] == 4 * 12 * whole.actors.num_rows / whole.env.seats
    assert expected[-1]["step"] < expected[-1]["train/world_steps"] * whole.env.seats
    assert advance(first, 2) == expected[:2]
    second.load_state_dict(first.state_dict())
    assert advance(second, 2) == expected[2:]
    assert leaves(second.state_dict()) == leaves(whole.state_dict())


@pytest.mark.parametrize("words", [["algo.backend=dense"], ["algo.backend=torch"], ["algo.lstm=true"]])
def test_what_the_dead_see_is_learned_from_by_nobody(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clean, poisoned = (algorithm(*arguments("mortals", *words)) for _ in range(2))
    rows = advance(clean, 3)
    hide = PolicyGroup.blank_inactive

    def poison(self: PolicyGroup, k: int, obs: Any, acts: Any) -> None:
        obs[~acts] = np.nan
        hide(self, k, obs, acts)

    monkeypatch.setattr(PolicyGroup, "blank_inactive", poison)
    assert advance(poisoned, 3) == rows
    np.testing.assert_array_equal(parameters(poisoned), parameters(clean))


def test_rows_that_act_are_the_ones_that_minibatches_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    algo = algorithm(*arguments("turns"))
    (rollout,) = played(replace(algo.actors._config, num_steps=12), 1)
    learned = rollout.learned_mask()
    parts = list(algo._minibatches(rollout.reward.shape, learned, np.random.default_rng(0)))
    assert sorted(np.concatenate(parts)) == np.flatnonzero(learned).tolist()
    # Nothing else of the batch matters: not to the loss, not to its scale.
    values = algo.learner.evaluate_batch(rollout, algo.actors.newest[0])
    batch, _ = algo._batch(rollout, rollout.reward, learned, values)
    for array in (batch.advantage, batch.target, batch.value, batch.logprob):
        array[~learned] = np.nan
    algo.learner.optimizer_step(values, batch, parts, _surrogate(), 0.01, 0.5)
    assert np.isfinite(parameters(algo)).all()


def _surrogate() -> Any:
    from paddock.algos.networks.dense.shape import LossSettings

    return LossSettings(0.2, None, 0.5, 0.01, normalize_advantages=True)


def test_where_no_turn_ends_it_says_so() -> None:
    with pytest.raises(ConfigError, match=r"no agent completed a transition.*increase algo.num_s"):
        advance(algorithm(*arguments("turns", "algo.num_steps=1", "algo.minibatch_size=8")), 1)


# Whole episodes


class Truthful:
    """Does as it is told, but for its third action in a life, which is wrong; `state` counts actions."""

    def act(self, obs: Any, state: Any = None) -> Any:
        count = np.zeros((len(obs), 1), np.float32) if state is None else state
        right = obs[:, 0].astype(np.int64)
        return np.where(count[:, 0] == 2, 1 - right, right), {}, count + 1


@pytest.mark.parametrize("batched", [True, False])
def test_lives_and_teams_are_counted_in_whole_episodes(batched: bool) -> None:
    env = config("agents:Mortals").env
    what = EvaluationSpec(env, Truthful(), 100, stochastic=False, batched=batched)
    played = evaluate_policy(what, [1, 2, 3, 4, 5])
    for length, lives, mean in zip(played.lengths, played.lives, played.returns, strict=True):
        # b lives 1 step and then 2, a lives 2, c lives all, d all but the first; c and d do one thing wrong.
        assert sorted(lives) == sorted([1, 2, 2, length - 1, length - 2])
        assert mean == sum(lives) / 4
    told = summarize(played, env, -np.inf, 7, 100)
    total = 5 * 5 + 2 * (played.lengths - 1).sum() - 5
    assert told["eval/lives"] == 25 and told["eval/episodes"] == 5
    assert told["eval/return_mean"] == pytest.approx(total / 25)
    assert told["eval/team_return_mean"] == pytest.approx(total / 5)


def test_an_episode_that_is_cut_off_counts_the_lives_that_went_on() -> None:
    what = EvaluationSpec(config("agents:Mortals").env, Truthful(), 2, stochastic=False)
    played = evaluate_policy(what, [1])
    assert played.lengths.tolist() == [2] and sorted(played.lives[0]) == [1, 1, 2, 2]  # b again has not acted yet


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_nobody_is_asked_in_a_step_in_which_nobody_acts(masked: bool, kinds: int) -> None:
    pauses = ["env.id=agents:Pauses", f"+env.kwargs.masked={masked}", f"+env.kwargs.kinds={kinds}"]
    algo = algorithm(*SMALL, *pauses, "algo.eval_every_iterations=1")
    advance(algo, 1)
    (told,) = algo.evaluate_last()
    assert (told["eval/return_mean"], told["eval/length_mean"], told["eval/lives"]) == (3, 6, 6)
    for stochastic in (False, True):
        what = EvaluationSpec(algo.env, algo.policy(), 100, stochastic=stochastic)
        assert [lives.tolist() for lives in evaluate_policy(what, [1, 2]).lives] == [[3, 3]] * 2


def test_one_vector_of_es_plays_all_agents(tmp_path: Path) -> None:
    words = ["algo=es", "env=gymnasium", "env.fresh=false", *MORTALS, "vec.num_envs=2", "algo.population=4"]
    few, many = (
        algorithm(*words, "algo.hidden_sizes=[4]", f"vec.num_envs={n}", "algo.eval_episodes=3") for n in (1, 3)
    )
    assert advance(few, 3) == advance(many, 3)
    assert 0 < advance(few, 1)[0]["train/return_mean"] < 8


def test_agents_with_a_shared_policy_differ_by_their_seat_feature() -> None:
    words = ["algo=a2c", "env=gymnasium", "env.fresh=false", "env.id=agents:Blind", "vec.num_envs=8"]
    words += ["algo.num_steps=8", "algo.hidden_sizes=[16]", "algo.learning_rate=0.03", "algo.eval_every_iterations=20"]
    alike, seated = (algorithm(*words, f"algo.agent_id_feature={told}") for told in ("false", "true"))
    for algo, expected in ((alike, 1 / 3), (seated, 1.0)):
        advance(algo, 20)
        (told,) = algo.evaluate_last()
        assert told["eval/return_mean"] == pytest.approx(expected)
    assert seated.env.roles[0].observation_space.shape == (4,)
    with pytest.raises(ConfigError, match="needs several agents"):
        algorithm("algo=ppo", "env=cartpole", "algo.agent_id_feature=true")
