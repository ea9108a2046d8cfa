"""Opponents in training: earlier versions of the policy, by the laws they obey."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from learned import advance, algorithm, leaves, parameters
from test_agents import MORTALS, SMALL, TURNS  # type: ignore[import-not-found]  # pytest puts this folder on the path

from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.multiagent.selfplay.matches import MatchPlayers, play_match
from paddock.algos.multiagent.selfplay.matchups import SampledMatchups, SelfPlaySettings
from paddock.algos.multiagent.versions import VersionsActor, stack
from paddock.algos.networks.actor import ActorPolicy
from paddock.envs.errors import ConfigError

AGAINST = "algo.opponents={keep: 3, every: 2, newest: 0.4}"
LEAGUE = (
    "algo.opponents={keep: 2, every: 2, "
    "league: {main: {main: 0.3, main@: 0.2, exploiter@: 0.1}, exploiter: {main: 0.4}}}"
)
VARIANTS = {
    "turns": TURNS,
    "mortals": [*MORTALS, "algo.groups=2"],
    "prefetch": [*TURNS, "algo.rollouts=prefetch"],
    "actors": [*TURNS, "algo.rollouts=actors", "vec.num_envs=2", "algo.staleness=0"],
    "lstm": [*TURNS, "algo.lstm=true"],
    "a2c": [*TURNS, "algo=a2c"],
    "league": [*TURNS, "algo.rollouts=prefetch"],
}


def build(variant: str, *more: str, against: str | None = None) -> Any:
    words = [*SMALL, *VARIANTS[variant], against or {"league": LEAGUE}.get(variant, AGAINST), *more]
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
    learned, expected = ([_trained(row) for row in advance(one, 4)] for one in (with_them, without))
    assert learned == expected
    np.testing.assert_array_equal(parameters(with_them), parameters(without))


def _trained(row: dict[str, float]) -> dict[str, float]:
    """What a row tells of training; evaluations are against others."""
    return {key: value for key, value in row.items() if not key.startswith("eval/")}


def test_nobody_learns_from_what_opponents_do() -> None:
    one = build("turns", "algo.normalize_rewards=false", "algo.num_steps=40")
    with_rollouts = one.actors.rollouts()
    met = 0
    for iteration in range(3):
        (rollout,) = next(with_rollouts)
        draw, seats = one.actors._config.policy_group.mapping, 2
        episodes = rollout.start.episode.copy()
        for t in range(40):
            who = draw(np.arange(4), episodes).ravel()
            assert not rollout.acts[t, who > 0].any() and not rollout.learned_mask()[t, who > 0].any()
            assert not rollout.reward[t, who > 0].any() and not rollout.terminated[t, who > 0].any()
            met += int((who > 0).sum())
            over = (rollout.terminated[t] | rollout.truncated[t]).reshape(4, seats).any(axis=1)
            episodes += over
            # The learner's side is told of the end of every episode, as one of two always is the learner's.
            assert (rollout.reward[t].reshape(4, seats)[over] != 0).any(axis=1).all()
        (newest,) = one.weights()
        acting = one.opponent_pool.acting_weights([replace(newest, version=iteration + 1)])
        one.actors.publish(iteration + 1, lambda acting=acting: acting)
    with_rollouts.close()
    assert met > 40


def test_who_plays_depends_on_world_and_episode_alone_and_sides_alternate() -> None:
    draw = SampledMatchups(7, ((0, (0,), 0.25), (0, (1, 2, 3), 0.75)), ((0, 2), (1, 3)))
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


class Deaf:
    """A learner that learns nothing."""

    def __init__(self, team: Any) -> None:
        self.first, self.training_context = team.first, team.training_context

    def learn(self, *batch: Any) -> dict[str, float]:
        return {}


def test_policies_of_a_league_never_move_each_others_parameters() -> None:
    def learned(*deaf: int) -> list[np.ndarray]:
        one = build("league", "algo.rollouts=inline")
        for k in deaf:
            one.learning[k].team = Deaf(one.learning[k].team)
        advance(one, 1)
        return [each.learner.parameters() for each in one.learning]

    (main, exploiter), (main_alone, drawn), (first, exploiter_alone) = learned(), learned(1), learned(0)
    np.testing.assert_array_equal(main, main_alone)
    np.testing.assert_array_equal(exploiter, exploiter_alone)
    assert (main != first).any() and (exploiter != drawn).any() and (first != drawn).any()


def test_who_learns_one_policy_for_all_begins_with_the_first_of_a_league() -> None:
    source = build("league", "algo.rollouts=inline")
    advance(source, 2)
    initial = type(source.initial_policy()).restore(source.initial_policy().state_dict())
    policy = source.learner.architecture.policy_layout.num_parameters
    main, exploiter = (weights.parameters[:policy].tobytes() for weights in source.weights())
    assert main != exploiter
    alone, league = algorithm(*SMALL, *TURNS), build("league")
    alone.start_from(initial)
    league.start_from(initial)
    begun = [weights.parameters[:policy].tobytes() for one in (alone, league) for weights in one.weights()]
    assert begun == [main, main, exploiter]
    other = build("league", against=LEAGUE.replace("exploiter", "hunter"))
    with pytest.raises(ConfigError, match=r"this run needs hunter; .* league of algo"):
        other.start_from(initial)


def test_league_opponents_are_met_by_their_shares() -> None:
    settings = SelfPlaySettings.of(
        {"keep": 2, "every": 1, "league": {"a": {"a": 0.1, "a@": 0.2, "b@": 0.3}, "b": {"a": 0.25, "a@": 0.15}}}
    )
    # Policies: a and b as they learn, then a as it is now and two versions, then two versions of b.
    expected = (0, (0,), 0.1), (0, (3, 4), 0.2), (0, (5, 6), 0.3), (1, (2,), 0.25), (1, (3, 4), 0.15)
    assert settings.numbered == expected
    worlds, episodes = (grid.ravel() for grid in np.meshgrid(np.arange(10), np.arange(800)))
    seats = SampledMatchups(3, settings.numbered, ((0,), (1,)))(worlds, episodes)
    met = np.sort(seats, axis=1)
    for learner, others, share in expected:
        for other in others:
            found = ((met == sorted((learner, other))).all(axis=1)).mean()
            each = share / len(others)
            assert abs(found - each) < 4 * (each * (1 - each) / len(met)) ** 0.5
    one = build("league", "algo.rollouts=inline")
    advance(one, 3)
    newest, older = one.weights(), one.opponent_pool.version(2)
    *learning, main, exploiter = one.opponent_pool.acting_weights(newest)
    assert learning == newest and one.versions == [0, 2]
    wanted = newest[0], one.opponent_pool.version(0)[0], older[0]
    np.testing.assert_array_equal(main.parameters, [weights.parameters for weights in wanted])
    np.testing.assert_array_equal(exploiter.parameters[1], older[1].parameters)


def test_evaluations_play_each_policy_against_its_first_version() -> None:
    one = build("league", "algo.rollouts=inline", "algo.eval_episodes=6")
    plan, specs = one.plan(), one.policy_group.specs
    for _ in range(2):
        next(plan)
    now = one.weights()
    for _ in range(2):
        row = next(plan)
    plan.close()
    seeds = [episode_seed(one.seed, Stream.EVALUATION, 2, k) for k in range(6)]
    for k, name in enumerate(one.policy_group.names):
        two = tuple(ActorPolicy(specs[k].architecture, of[k]) for of in (now, one.opponent_pool.version(0)))
        games = play_match(MatchPlayers(one.env, two, (False, True), 1000), 0, 1, seeds).returns[:, 0]
        mine = [games[6 * (k % 2) + k] for k in range(6)]  # the second six are on exchanged sides
        assert row[f"eval/{name}/return_mean"] == np.mean(mine)
        assert row[f"eval/{name}/return_std"] == pytest.approx(np.std(mine))
    assert one.policy_iteration("best") == 2 and one.evaluation.best_return == row["eval/return_mean"]
    one.evaluation.start(*one.weights())
    mean = one.evaluation.finish()["eval/return_mean"]
    one.evaluation.best, one.evaluation.best_return = now, mean
    one.evaluation.start(*one.weights())
    one.evaluation.finish()
    assert one.policy_iteration("best") == 4  # of equals the newest
    assert row["eval/return_mean"] == row["eval/main/return_mean"] and row["eval/lives"] == row["eval/episodes"] == 6


def test_versions_are_spread_over_the_run() -> None:
    one = build("turns", against="algo.opponents={keep: 4, every: 10, newest: 0.5}")
    (first,) = one.weights()
    seen = {}
    for number in range(1, 171):
        one.opponent_pool.update([replace(first, version=number)])
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
        again, then = ActorPolicy(policies[0].architecture, *one.opponent_pool.version(number)), policies[number]
        np.testing.assert_array_equal(again.outputs(obs)[0], then.outputs(obs)[0])
    actor, head = VersionsActor(policies[0].architecture, 3), policies[0].architecture.head
    actor.load(stack([one.opponent_pool.version(number)[0] for number in one.versions]))
    noise = head.sample_noise(np.random.default_rng(0), (6,))
    state = np.zeros((6, policies[0].architecture.state_width), np.float32)
    actions, after = actor.choose(obs, state, noise, np.array([2, -1, 0, 1, 2, -1]))
    assert not actions[[1, 5]].any() and not actor.choose(obs, state, noise, np.full(6, -1))[0].any()
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
        (["algo.opponents={keep: 1, every: 2, newest: 1.5}"], "opponents.newest=1.5 must be in [0, 1]"),
        (["algo.opponents={keep: 1.5, every: 2, newest: 1}"], "opponents.keep=1.5 must be an integer"),
        (["algo.opponents={keep: 1000000000000, every: 2, newest: 1}"], " GB of weights, but this machine has "),
        (
            ["algo.opponents={kep: 1, every: 2, newest: 1}"],
            "opponents.kep is not a key of opponents; did you mean 'keep'",
        ),
        (
            [AGAINST, "algo.policies={a: first, b: second}"],
            "opponents needs one policy for all agents, but there are 2",
        ),
        (
            [LEAGUE, "algo.policies={a: first, b: second}"],
            "opponents needs one policy for all agents, but there are 2",
        ),
        ([AGAINST, "env.id=CartPole-v1"], "env.id=CartPole-v1 has one agent; opponents and matches need"),
    ],
)
def test_bad_settings_are_refused_in_one_line(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        algorithm(*SMALL, *TURNS, *words)
    assert said in str(error.value) and "\n" not in str(error.value)
