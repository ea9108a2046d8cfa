"""Opponents in training: earlier versions of the policy, by the laws they obey."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from learned import advance, algorithm, leaves, parameters
from test_agents import MORTALS, SMALL, TURNS  # type: ignore[import-not-found]  # pytest puts this folder on the path

from algos.learning.selfplay.opponents import Draw
from algos.networks.actor import ActorPolicy
from algos.networks.multiagent.versions import VersionsActor, stack
from envs.errors import ConfigError

AGAINST = "algo.opponents={keep: 3, every: 2, newest: 0.4}"
VARIANTS = {
    "turns": TURNS,
    "mortals": [*MORTALS, "algo.groups=2"],
    "prefetch": [*TURNS, "algo.rollouts=prefetch"],
    "actors": [*TURNS, "algo.rollouts=actors", "vec.num_envs=2", "algo.staleness=0"],
    "lstm": [*TURNS, "algo.lstm=true"],
    "a2c": [*TURNS, "algo=a2c"],
}


def build(variant: str, *more: str, against: str = AGAINST) -> Any:
    words = [*SMALL, *VARIANTS[variant], against, *more]
    if variant == "a2c":
        words = [word for word in words if "normalize" not in word and "minibatch" not in word and word != "algo=ppo"]
    return algorithm(*words)


@pytest.mark.parametrize("variant", VARIANTS)
def test_interrupted_with_opponents_drawn_it_goes_on_the_same(variant: str) -> None:
    undisturbed = build(variant)
    expected = advance(undisturbed, 5)
    for k in (1, 4) if variant == "turns" else (3,):
        first = build(variant)
        advance(first, k)
        again = build(variant)
        again.load_state_dict(first.state_dict())
        assert advance(again, 5 - k) == expected[k:]
        assert leaves(again.state_dict()) == leaves(undisturbed.state_dict())


def test_worker_processes_change_no_number() -> None:
    here, there = build("mortals"), build("mortals", "vec=multiprocess", "vec.num_envs=4", "vec.workers=2")
    assert advance(here, 3) == advance(there, 3)
    np.testing.assert_array_equal(parameters(here), parameters(there))


def test_playing_itself_alone_is_playing_without_opponents() -> None:
    with_them = build("turns", against="algo.opponents={keep: 2, every: 1, newest: 1}")
    without = algorithm(*SMALL, *TURNS)
    assert advance(with_them, 4) == advance(without, 4)
    np.testing.assert_array_equal(parameters(with_them), parameters(without))


def test_nobody_learns_from_what_opponents_do() -> None:
    one = build("turns", "algo.normalize_rewards=false", "algo.num_steps=40")
    with_rollouts = one.actors.rollouts()
    met = 0
    for iteration in range(3):
        (rollout,) = next(with_rollouts)
        draw, seats = one.actors._config.parts.cast, 2
        episodes = rollout.start.episode.copy()
        for t in range(40):
            who = draw(np.arange(4), episodes).ravel()
            assert not rollout.acts[t, who > 0].any() and not rollout.learned_from()[t, who > 0].any()
            assert not rollout.reward[t, who > 0].any() and not rollout.terminated[t, who > 0].any()
            met += int((who > 0).sum())
            over = (rollout.terminated[t] | rollout.truncated[t]).reshape(4, seats).any(axis=1)
            episodes += over
            # The learner's side is told of the end of every episode, as one of two always is the learner's.
            assert (rollout.reward[t].reshape(4, seats)[over] != 0).any(axis=1).all()
        (newest,) = one.weights()
        one.actors.publish(*one.frozen.acting([replace(newest, version=iteration + 1)]))
    with_rollouts.close()
    assert met > 40


def test_who_plays_depends_on_world_and_episode_alone_and_sides_alternate() -> None:
    draw = Draw(7, 0.25, 3, ((0, 2), (1, 3)))
    worlds, episodes = (grid.ravel() for grid in np.meshgrid(np.arange(20), np.arange(200)))
    seats = draw(worlds, episodes)
    order = np.random.default_rng(1).permutation(len(worlds))
    np.testing.assert_array_equal(draw(worlds[order], episodes[order]), seats[order])
    alone = (seats == 0).all(axis=1)
    assert abs(alone.mean() - 0.25) < 4 * (0.25 * 0.75 / 4000) ** 0.5
    first, second = (seats[:, [0, 2]], seats[:, [1, 3]])
    assert (first[:, 0] == first[:, 1]).all() and (second[:, 0] == second[:, 1]).all()
    assert ((first[:, 0] > 0) != (second[:, 0] > 0))[~alone].all()
    # Who learns has the first side in every other episode.
    np.testing.assert_array_equal(second[~alone, 0] > 0, (worlds + episodes)[~alone] % 2 == 0)
    counts = np.bincount(seats.max(axis=1)[~alone], minlength=4)[1:]
    assert (abs(counts / counts.sum() - 1 / 3) < 4 * (2 / 9 / counts.sum()) ** 0.5).all()


def test_versions_are_spread_over_the_run() -> None:
    one = build("turns", against="algo.opponents={keep: 4, every: 10, newest: 0.5}")
    (first,) = one.weights()
    seen = {}
    for number in range(1, 171):
        one.frozen.observe([replace(first, version=number)])
        seen[number] = one.versions
    assert seen[9] == [0] and seen[10] == seen[19] == [0, 10] and seen[30] == seen[39] == [0, 10, 20, 30]
    assert seen[40] == seen[59] == [0, 20, 30, 40] and seen[60] == seen[79] == [0, 20, 40, 60]
    assert seen[80] == [0, 40, 60, 80] and seen[120] == [0, 40, 80, 120] and seen[160] == [0, 80, 120, 160]


@pytest.mark.parametrize("variant", ["turns", "lstm"])
def test_versions_are_kept_in_turn_and_act_as_they_did(variant: str) -> None:
    one = build(variant)
    policies = {0: one.policy()}
    plan = one.plan()
    for _ in range(8):
        metrics = next(plan)
        policies[int(metrics["iteration"])] = one.policy()
        # Of every second, and once three places are full of every fourth.
        assert one.versions == {1: [0], 2: [0, 2], 4: [0, 2, 4], 8: [0, 4, 8]}.get(one.iteration, one.versions)
    plan.close()
    obs = one.learner.architecture.inputs.layout.zeros(6)
    one.learner.architecture.inputs.layout.fields(obs)["action_mask"][:] = 1
    one.learner.architecture.inputs.layout.fields(obs)["moved"][:] = np.arange(6)
    for number in one.versions:
        again, then = ActorPolicy(policies[0].architecture, one.frozen.version(number)), policies[number]
        np.testing.assert_array_equal(again.outputs(obs)[0], then.outputs(obs)[0])
    actor, head = VersionsActor(policies[0].architecture, 3), policies[0].architecture.head
    actor.load(stack([one.frozen.version(number) for number in one.versions]))
    noise = head.draw(np.random.default_rng(0), (6,))
    state = np.zeros((6, policies[0].architecture.state_width), np.float32)
    actions, after = actor.choose(obs, state, noise, np.array([2, -1, 0, 1, 2, -1]))
    for place, rows in enumerate(([2], [3], [0, 4])):
        out, memory = policies[one.versions[place]].outputs(obs)
        chosen = head.sample(out, np.zeros(0, np.float32), noise)
        np.testing.assert_array_equal(actions[rows], chosen[rows])
        np.testing.assert_array_equal(after[rows], memory[rows])


@pytest.mark.parametrize(
    "words, said",
    [
        (["algo.opponents={keep: 3, every: 2}"], "opponents: newest is missing; such as opponents={keep: 10"),
        (["algo.opponents={keep: 0, every: 2, newest: 1}"], "opponents.keep=0 must be at least 1"),
        (["algo.opponents={keep: 1, every: 2, newest: 1.5}"], "opponents.newest=1.5 must lie in [0, 1]"),
        (["algo.opponents={keep: 1.5, every: 2, newest: 1}"], "opponents.keep=1.5 has the wrong type"),
        (
            ["algo.opponents={kep: 1, every: 2, newest: 1}"],
            "opponents.kep is not a key of opponents; did you mean 'keep'",
        ),
        (
            [AGAINST, "algo.policies={a: first, b: second}"],
            "opponents: 2 policies learn in this world, each of some of",
        ),
        ([AGAINST, "env.id=CartPole-v1"], "env.id=CartPole-v1 has one agent, which has nobody to play against"),
    ],
)
def test_bad_settings_are_refused_in_one_line(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        algorithm(*SMALL, *TURNS, *words)
    assert said in str(error.value) and "\n" not in str(error.value)
