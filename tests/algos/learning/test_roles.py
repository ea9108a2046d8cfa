"""Several policies that learn side by side in one world, by the laws they obey."""

from typing import Any

import numpy as np
import pytest
from learned import advance, algorithm, leaves

from paddock.algos.learning.episodes import Episodes
from paddock.algos.learning.policy_episodes import EvaluationSpec, evaluate_policy
from paddock.algos.multiagent.policies import PolicyGroup
from paddock.envs.errors import ConfigError

SMALL = ["algo=ppo", "env=gymnasium", "env.fresh=false", "vec.num_envs=4", "algo.num_steps=12", "algo.hidden_sizes=[8]"]
SMALL += ["algo.minibatch_size=32", "algo.eval_every_iterations=2", "algo.eval_episodes=3"]
SMALL += ["algo.normalize_observations=true", "algo.normalize_rewards=true"]
A2C = [*[word for word in SMALL if "normalize" not in word and "minibatch" not in word], "algo=a2c"]
ROLES = ["env.id=toy_worlds:Skirmish", "+env.kwargs.kinds=2"]  # other (0, 3) and one (1, 2), with other spaces
SPLIT = ["env.id=agents:Mortals", "algo.policies={first: [a, b], second: [c, d]}"]
VARIANTS = {
    "roles": [*SMALL, *ROLES],
    "split": [*SMALL, *SPLIT],
    "prefetch": [*SMALL, *ROLES, "algo.rollouts=prefetch", "algo.groups=2"],
    "actors": [*SMALL, *ROLES, "algo.rollouts=actors", "vec.num_envs=2", "algo.staleness=2", "algo.advantage=vtrace"],
    "lstm": [*SMALL, *ROLES, "algo.lstm=true"],
    "a2c": [*A2C, *ROLES],
}


def each(algo: Any) -> list[Any]:
    return [one.learner.parameters() for one in algo.learning]


@pytest.mark.parametrize("variant", VARIANTS)
def test_interrupted_it_goes_on_the_same_with_several_policies(variant: str) -> None:
    whole, first, second = (algorithm(*VARIANTS[variant]) for _ in range(3))
    expected = advance(whole, 4)
    assert all(np.isfinite(list(row.values())).all() for row in expected)
    assert expected[-1]["train/world_steps"] == 4 * 12 * 4
    assert advance(first, 2) == expected[:2]
    second.load_state_dict(first.state_dict())
    assert advance(second, 2) == expected[2:]
    assert leaves(second.state_dict()) == leaves(whole.state_dict())


@pytest.mark.parametrize("words", [SMALL, A2C], ids=["ppo", "a2c"])
def test_two_policies_never_move_each_others_parameters(words: list[str]) -> None:
    # What the agents of this world see and are asked for depends on nobody's actions.
    clean, other = algorithm(*words, *SPLIT), algorithm(*words, *SPLIT)
    one = other.learning[0]
    learn = one.team.learn

    def differently(*batch: Any) -> Any:
        learn(*batch)
        return learn(*batch)

    one.team.learn = differently
    rows, changed = advance(clean, 4), advance(other, 4)
    assert not np.array_equal(each(clean)[0], each(other)[0])
    assert each(clean)[1].tobytes() == each(other)[1].tobytes()
    mine = [key for key in rows[0] if "/second/" in key]
    assert mine and all(row[key] == same[key] for row, same in zip(rows, changed, strict=True) for key in mine)


def test_frozen_policies_keep_their_bits_while_others_learn() -> None:
    words = [*SMALL, *SPLIT, "algo.frozen=[second]"]
    whole, first, again = (algorithm(*words) for _ in range(3))
    learned, frozen = (leaves(one.learner.state_dict() | one.normalization.state_dict()) for one in whole.learning)
    rows = advance(whole, 4)
    now = [leaves(one.learner.state_dict() | one.normalization.state_dict()) for one in whole.learning]
    assert now[1] == frozen and now[0] != learned
    assert "ppo/first/entropy" in rows[-1] and "ppo/second/entropy" not in rows[-1]
    assert "train/second/return_mean" in rows[-1]
    advance(first, 2)
    again.load_state_dict(first.state_dict())
    assert advance(again, 2) == rows[2:] and leaves(again.state_dict()) == leaves(whole.state_dict())


def test_frozen_names_some_of_several_policies() -> None:
    for words in (
        [*SPLIT, "algo.frozen=[secnd]"],
        [*SPLIT, "algo.frozen=[first,second]"],
        ["env.id=CartPole-v1", "algo.frozen=['']"],
    ):
        with pytest.raises(ConfigError, match="frozen"):
            algorithm(*SMALL, *words)


@pytest.mark.parametrize("words", [[*SMALL, *ROLES], [*SMALL, *SPLIT, "algo.lstm=true"], [*A2C, *SPLIT]])
def test_what_the_dead_of_any_role_see_is_learned_from_by_nobody(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clean, poisoned = algorithm(*words), algorithm(*words)
    rows = advance(clean, 3)
    hide = PolicyGroup.blank_inactive

    def poison(self: PolicyGroup, k: int, obs: Any, acts: Any) -> None:
        obs.view(np.uint8).reshape(len(obs), -1)[~acts] = 255  # not a number, nor a choice
        hide(self, k, obs, acts)

    monkeypatch.setattr(PolicyGroup, "blank_inactive", poison)
    assert advance(poisoned, 3) == rows
    for one, other in zip(each(clean), each(poisoned), strict=True):
        assert np.isfinite(one).all() and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("words", [["algo.lstm=true"], []], ids=["lstm", "dense"])
def test_evaluation_of_several_policies_is_that_of_each_row_by_itself(words: list[str]) -> None:
    algo = algorithm(*SMALL, *ROLES, *words, "algo.eval_every_iterations=1")
    advance(algo, 2)
    played: list[Episodes] = [
        evaluate_policy(EvaluationSpec(algo.env, algo.policy(), 50, stochastic=False, batched=company), [1, 2, 3])
        for company in (True, False)
    ]
    for one, other in zip(played[0].lives, played[1].lives, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    algo.load_state_dict(algo.state_dict())
    np.testing.assert_array_equal(
        evaluate_policy(EvaluationSpec(algo.env, algo.policy("best"), 50, stochastic=True), [4]).returns,
        evaluate_policy(EvaluationSpec(algo.env, algo.policy("best"), 50, stochastic=True), [4]).returns,
    )


def test_what_is_told_of_each_policy_adds_up() -> None:
    row = advance(algorithm(*SMALL, *ROLES, "algo.eval_every_iterations=1"), 2)[1]
    for group in ("train", "eval"):
        means = [row[f"{group}/{name}/return_mean"] for name in ("one", "other")]
        assert min(means) <= row[f"{group}/return_mean"] <= max(means)
    assert "ppo/one/entropy" in row and "ppo/entropy" not in row
    alone = advance(algorithm(*SMALL, "env.id=agents:Mortals", "algo.policies={all: [a, b, c, d]}"), 2)[1]
    assert "ppo/entropy" in alone and not any(key.count("/") > 1 for key in alone)


def test_several_policies_begin_with_those_of_their_names() -> None:
    source = algorithm(*SMALL, *ROLES)
    advance(source, 2)
    initial = type(source.initial_policy()).restore(source.initial_policy().state_dict())
    target = algorithm(*SMALL, *ROLES, "algo.epochs=1")
    target.start_from(initial)
    for one, other in zip(source.weights(), target.weights(), strict=True):
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-5)
        assert np.array_equal(one.parameters[:40], other.parameters[:40])
    named = algorithm(*SMALL, *ROLES, "algo.policies={mine: one, other: other}")
    with pytest.raises(ConfigError, match="it has policies other, one, but this run needs mine"):
        named.start_from(initial)
    for words in (["algo=ppo"], ["algo=es"]):
        alone = algorithm(*words, "env=cartpole")
        with pytest.raises(ConfigError, match="it has policies other, one, but this run has a single"):
            alone.start_from(initial)
    whole = algorithm(*SMALL, "env.id=agents:Mortals")
    split = algorithm(*SMALL, *SPLIT)
    split.start_from(whole.initial_policy())
    a, b = split.weights()
    policy = whole.learner.architecture.policy_layout.num_parameters
    assert a.parameters[:policy].tobytes() == b.parameters[:policy].tobytes() == each(whole)[0][:policy].tobytes()


def test_other_algorithms_refuse_several_roles_in_one_line() -> None:
    small = ["env=gymnasium", "env.fresh=false", *ROLES]
    with pytest.raises(ConfigError, match=r"2 roles.*algo=ppo, a2c, dqn, pqn, sac and td3 learn a policy for each"):
        algorithm("algo=es", *small)
    with pytest.raises(ConfigError, match="has a single agent"):
        algorithm("algo=ppo", "env=cartpole", "algo.policies={a: agent}")
