"""Rollouts: they depend on where they start, the weights and their number, and on nothing else."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from algos.actor import Architecture, Weights
from algos.actors import Actors, play_here, play_on_pool
from algos.evaluate import Moments
from algos.network import ActorCritic
from algos.normalize import Normalization
from algos.rollout import Collector, Rollout, Stage, Standing, join
from algos.serial import SerialPool
from envs.errors import ConfigError
from envs.spec import EnvSpec
from envs.vector import Serial


def stage(id: str = "CartPole-v1", num_envs: int = 4, *, lstm: bool = False, **changes: Any) -> Stage:
    limit = changes.pop("max_episode_steps", None)
    env = EnvSpec(id=id, kwargs={}, wrappers=(), max_episode_steps=limit, fresh=False)
    architecture = Architecture.for_spaces(
        *env.spaces, encoder="auto", hidden=(8,), activation="tanh", shared=False, lstm=lstm, initial_log_std=0.0
    )
    given = {"steps": 16, "groups": 1} | changes
    return Stage(env, Serial(num_envs=num_envs), architecture, seed=3, **given)


def weights(of: Stage, version: int = 0) -> Weights:
    network = ActorCritic(of.architecture, seed=version)
    nothing = np.zeros(0, np.float32)
    flat = torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy().copy()
    return Weights(version, flat, nothing, nothing, 0.0)


def assert_same(one: Rollout, other: Rollout) -> None:
    for field in fields(Rollout):
        got, expected = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("start", "end"):
            assert got.same_as(expected)
        elif not field.name.endswith("_s"):
            np.testing.assert_array_equal(got, expected, err_msg=field.name)


def played(of: Stage, count: int) -> list[Rollout]:
    source = play_here(of, lambda k: weights(of, k), Standing.first(of.vec.num_envs, of.architecture), 0)
    rollouts = [next(source) for _ in range(count)]
    source.close()
    return rollouts


@pytest.mark.parametrize(
    "of",
    [
        stage(),
        stage("Pendulum-v1", max_episode_steps=37),
        stage("envs.recall:paddock/Recall-v0", lstm=True),
        stage("envs.bipedal:paddock/BipedalWalker-v3", num_envs=2, max_episode_steps=40),
        stage(groups=2),
    ],
    ids=["cartpole", "pendulum", "recall", "bipedal", "groups"],
)
def test_any_process_can_go_on_where_another_left(of: Stage) -> None:
    undisturbed = played(of, 6)
    assert sum(len(rollout.returns) for rollout in undisturbed) > 0
    for k in (1, 3, 5):
        elsewhere = Collector(of)
        assert_same(elsewhere.collect(weights(of, k), undisturbed[k].start, k), undisturbed[k])
        elsewhere.close()


def test_a_rollout_is_what_the_environment_says() -> None:
    of = stage(num_envs=2, steps=60, max_episode_steps=9)
    rollout = played(of, 1)[0]
    for n in range(2):
        env: Any = of.env.make()
        starts, t = rollout.starts, 0
        while t < 60:
            assert starts[t, n]
            env.reset()
            env.unwrapped.state = rollout.obs[t, n]  # CartPole's state is its observation
            while t < 60:
                obs, reward, terminated, truncated, _ = env.step(int(rollout.action[t, n, 0]))
                assert (reward, terminated) == (rollout.reward[t, n], rollout.terminated[t, n])
                assert rollout.truncated[t, n] == (truncated and not terminated)
                t += 1
                if terminated or truncated:
                    break
                following = rollout.obs[t, n] if t < 60 else rollout.last_obs[n]
                np.testing.assert_allclose(obs, following, rtol=1e-5, atol=1e-6)
    assert rollout.truncated.any() and rollout.terminated.sum() + rollout.truncated.sum() == len(rollout.returns)
    assert rollout.lengths.max() == 9 and (rollout.returns == rollout.lengths).all()


def test_the_final_observation_of_a_truncated_episode_is_kept() -> None:
    of = stage(num_envs=3, steps=40, max_episode_steps=7)
    rollout = played(of, 1)[0]
    assert len(rollout.final_at) == rollout.truncated.sum() > 3
    for (t, n), final in zip(rollout.final_at, rollout.final_obs, strict=True):
        assert rollout.truncated[t, n]
        env: Any = of.env.make()
        env.reset()
        env.unwrapped.state = rollout.obs[t, n]
        np.testing.assert_allclose(env.step(int(rollout.action[t, n, 0]))[0], final, rtol=1e-5, atol=1e-6)


def test_groups_change_the_order_of_work_and_no_episode() -> None:
    one, two = played(stage(), 3), played(stage(groups=2), 3)
    for rollout, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(rollout.action, other.action)
        np.testing.assert_array_equal(rollout.obs, other.obs)


def test_actors_side_by_side_are_one_rollout() -> None:
    of = stage()
    start = Standing.first(8, of.architecture)
    source = play_on_pool(of, SerialPool(), 2, lambda k: weights(of, k), start, 0)
    whole = [next(source) for _ in range(3)]
    assert whole[0].reward.shape == (16, 8)
    parts = [Collector(of, index) for index in range(2)]
    for k, rollout in enumerate(whole):
        shares = [
            part.collect(weights(of, k), place, k) for part, place in zip(parts, rollout.start.split(2), strict=True)
        ]
        assert_same(join(shares), rollout)
        assert not np.array_equal(shares[0].obs, shares[1].obs)


def test_rollout_k_is_played_by_the_weights_after_k_minus_staleness_updates() -> None:
    of = stage()
    for mode in ("prefetch", "actors"):
        actors = Actors(of, SerialPool(), mode, 1, 2, weights(of))
        versions = []
        rollouts = actors.rollouts()
        for k in range(6):
            versions.append(next(rollouts).version)
            actors.publish(weights(of, k + 1))
        rollouts.close()
        assert versions == [0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize(("mode", "staleness"), [("inline", 1), ("prefetch", 1), ("prefetch", 3), ("actors", 0)])
def test_actors_go_on_from_their_state(mode: Any, staleness: int) -> None:
    of = stage()

    def run(actors: Actors, count: int) -> list[Rollout]:
        rollouts, source = [], actors.rollouts()
        for _ in range(count):
            rollouts.append(next(source))
            actors.publish(weights(of, actors.newest.version + 1))
        source.close()
        return rollouts

    whole = run(Actors(of, SerialPool(), mode, 2, staleness, weights(of)), 7)
    first = Actors(of, SerialPool(), mode, 2, staleness, weights(of))
    run(first, 4)
    second = Actors(of, SerialPool(), mode, 2, staleness, weights(of))
    second.load_state_dict(first.state_dict(), first.newest)
    for rollout, expected in zip(run(second, 3), whole[4:], strict=True):
        assert_same(rollout, expected)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_actors": 0}, "num_actors=0"),
        ({"staleness": 9}, "between 0 and 8"),
        ({"mode": "prefetch", "staleness": 0}, "nothing to prefetch"),
        ({"stage": stage(groups=3)}, "groups=3 does not divide vec.num_envs=4"),
    ],
)
def test_settings_that_do_not_go_together_are_one_line(change: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {"stage": stage(), "mode": "actors", "num_actors": 1, "staleness": 1} | change
    of = given["stage"]
    with pytest.raises(ConfigError, match=named):
        Actors(of, SerialPool(), given["mode"], given["num_actors"], given["staleness"], weights(of))


# Normalization


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return() -> None:
    of = stage(num_envs=2, steps=3)
    blank = played(of, 1)[0]
    reward = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    never = np.zeros((3, 2), bool)
    ended = never.copy()
    ended[1, 0] = True
    rollout = replace(blank, reward=reward, terminated=ended, truncated=never)
    normalization = Normalization(2, (4,), 0.5, obs=False, rewards=True)
    scaled = normalization.rewards(rollout, 10.0)
    # Column 0: 1, 3.5 and, after the episode's end, 5; column 1: 2, 5, 8.5.
    expected = np.std([1, 3.5, 5, 2, 5, 8.5])
    assert normalization.reward_scale == pytest.approx(expected)
    np.testing.assert_allclose(scaled, reward / expected, rtol=1e-6)
    assert normalization.rewards(rollout, 1.0).max() == 1.0


def test_observations_are_counted_once_a_rollout() -> None:
    rollouts = played(stage(), 3)
    normalization = Normalization(4, (4,), 0.99, obs=True, rewards=False)
    assert (normalization.mean == 0).all() and (normalization.std == 1).all()
    for rollout in rollouts:
        normalization.observe(rollout)
    seen = np.concatenate([rollout.obs.reshape(-1, 4) for rollout in rollouts]).astype(float)
    np.testing.assert_allclose(normalization.mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(normalization.std, seen.std(axis=0), rtol=1e-5)
    again = Normalization(4, (4,), 0.99, obs=True, rewards=False)
    again.load_state_dict(normalization.state_dict())
    np.testing.assert_array_equal(again.mean, normalization.mean)
    assert isinstance(Moments(**normalization.state_dict()["seen"]), Moments)
