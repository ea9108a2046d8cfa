"""Rollouts of several policies in one world: each sees its own rows, and any process can go on with them."""

from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from learned import assert_same

from paddock.algos.learning.rollouts.actors import play_inline
from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.learning.rollouts.pool_actors import play_on_pool
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.multiagent.collector import JointCollector as Collector
from paddock.algos.multiagent.divide import make_policy_group
from paddock.algos.multiagent.policies import PolicyGroup
from paddock.algos.networks.actor_critic import ActorCritic
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.heads import make_head
from paddock.algos.pool.serial import SerialPool
from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Multiprocess, Serial

SKIRMISH: dict[str, Any] = {"id": "toy_worlds:Skirmish", "kwargs": {"kinds": 2}}  # roles other (0, 3) and one (1, 2)
ALIKE: dict[str, Any] = {"id": "toy_worlds:Skirmish"}
SPLIT = {"first": "one_0", "rest": ["one_1", "one_2", "one_3"]}
NOTHING = np.zeros(0, np.float32)


def env_spec(id: str, **kwargs: Any) -> EnvSpec:
    return EnvSpec(id=id, **{"kwargs": {}, **kwargs}, wrappers=(), max_episode_steps=None, fresh=False)


def config(env: EnvSpec, policies: Any = None, *, lstm: bool = False, groups: int = 1, vec: Any = None) -> Any:
    sizes: dict[str, Any] = {"hidden_sizes": (6,), "activation": "tanh", "shared": False, "initial_log_std": 0.0}

    def network(observations: Any, actions: Any) -> Architecture:
        return Architecture.for_spaces(observations, make_head(actions), encoder="auto", lstm=lstm, **sizes)

    group = make_policy_group(env, policies, network)
    vec = vec or Serial(num_envs=4)
    return RolloutConfig(env, vec, group.specs[0].architecture, 3, 9, groups, "auto", policies=group)


def weights(of: RolloutConfig, version: int) -> list[Weights]:
    found = []
    for k, spec in enumerate(of.policy_group.specs):
        network = ActorCritic(spec.architecture, seed=10 * version + k)
        flat = np.concatenate([one.detach().numpy().ravel() for one in network.parameters()])
        found.append(Weights(version, flat, NOTHING, NOTHING, 0.0))
    return found


def followed(of: RolloutConfig, count: int) -> Any:
    points = [ResumePoint.first(of.vec.num_envs, of.policy_group)]
    source = play_inline(of, lambda k: weights(of, k), points[0], 0)
    rollouts = []
    for _ in range(count):
        played, end = next(source)
        rollouts.append(played)
        points.append(end)
    source.close()
    return rollouts, points


CASES = {
    "roles": lambda: config(env_spec(**SKIRMISH)),
    "lstm": lambda: config(env_spec(**SKIRMISH), lstm=True, groups=2),
    "split": lambda: config(env_spec(**ALIKE), SPLIT),
}


@pytest.mark.parametrize("case", CASES)
def test_any_process_can_go_on_with_several_policies(case: str) -> None:
    of = CASES[case]()
    undisturbed, points = followed(of, 4)
    assert any((point.length > 0).any() for point in points)
    for k in (1, 3):
        again = ResumePoint.restore(points[k].state_dict(of.policy_group), of.policy_group, 1)
        elsewhere = Collector(of)
        played, end = elsewhere.collect(weights(of, k), again, k)
        elsewhere.close()
        for one, expected in zip(played, undisturbed[k], strict=True):
            assert_same(one, expected)
        assert points[k].advance([end]).same_as(points[k + 1])


def test_each_policy_sees_and_does_what_its_role_does() -> None:
    of = config(env_spec(**SKIRMISH))
    ((other, one), *_), _ = followed(of, 1)
    assert other.obs.dtype.kind == "V" and other.obs.shape == (9, 8) and other.action.shape == (9, 8, 2)
    assert one.obs.shape == (9, 8, 3) and one.action.shape == (9, 8, 1)
    # An agent of `one` sees the step of its episode, and its seat.
    lives = one.acts[:-1]
    np.testing.assert_array_equal(np.where(lives, one.obs[..., 1], 0), np.where(lives, np.tile([1, 2], 4), 0))
    assert other.acts[:-1].any() and not lives.all() and not one.obs[~lives].any()
    assert one.start.rows_per_env == other.start.rows_per_env == 2
    for rollout in (other, one):
        assert len(rollout.returns) == (rollout.terminated | rollout.truncated).sum()
        assert len(rollout.final_at) == len(rollout.final_obs) == rollout.truncated.sum()


def test_policies_of_one_role_each_see_the_seats_that_they_are_given() -> None:
    env = env_spec(**ALIKE)
    whole, split = config(env), config(env, SPLIT)
    start = ResumePoint.first(4, whole.policy_group)
    quiet = [replace(one, parameters=np.zeros_like(one.parameters)) for one in weights(split, 0)]
    every: Any
    first: Any
    (every,), _ = Collector(whole).collect(quiet[:1], start, 0)
    rest: Any
    (first, rest), _ = Collector(split).collect(quiet, start, 0)
    assert every.obs[0].tobytes() == np.insert(rest.obs[0], [0, 3, 6, 9], first.obs[0], axis=0).tobytes()
    assert first.acts.shape == (10, 4) and rest.acts.shape == (10, 12)


def test_workers_groups_and_actors_change_no_number_of_several_policies() -> None:
    env = env_spec(**SKIRMISH)
    here, _ = followed(config(env), 3)
    workers = Multiprocess(num_envs=4, batch_size=None, workers=2, restart=False, timeout_s=60.0)
    for of in (config(env, groups=2), config(env, vec=workers)):
        there, _ = followed(of, 3)
        for one, other in zip(chain(*here), chain(*there), strict=True):
            assert_same(one, other)
    of = config(env, vec=Serial(num_envs=2))
    source = play_on_pool(of, SerialPool(), 2, lambda k: weights(of, k), ResumePoint.first(4, of.policy_group), 0)
    (other, one), _ = next(source)
    source.close()
    assert other.reward.shape == one.reward.shape == (9, 8) and one.start.rows_per_env == 2


@dataclass(frozen=True)
class ByTurns:
    """Both policies are for all seats; who has which half changes from episode to episode."""

    def __call__(self, world: Any, episode: Any) -> Any:
        return (np.arange(4) // 2 + world[:, None] + episode[:, None]) % 2


def cast(lstm: bool = False) -> RolloutConfig:
    alone = config(env_spec(**ALIKE), lstm=lstm)
    (spec,) = alone.policy_group.specs
    each = tuple(replace(spec, name=name) for name in ("learner", "frozen"))
    return replace(alone, policies=PolicyGroup.of(each, alone.env, ByTurns()))


@pytest.mark.parametrize("lstm", [False, True])
def test_who_plays_a_seat_may_change_whenever_its_world_restarts(lstm: bool) -> None:
    of = cast(lstm)
    undisturbed, points = followed(of, 5)
    episode, swapped = np.zeros(4, np.int64), 0
    for (one, other), point in zip(undisturbed, points, strict=False):
        assert not (one.acts & other.acts).any()
        expected = of.policy_group.policy_ids(np.arange(4), point.episode)
        assert not (one.acts[0] & (expected == 1)).any() and not (other.acts[0] & (expected == 0)).any()
        # What came to the other's rows is nobody else's: neither rewards nor ends.
        assert not (one.reward != 0)[other.acts[:-1]].any() and not (one.terminated & other.terminated).any()
        swapped += int((one.acts[1:] & other.acts[:-1]).sum())
        episode = point.episode
    assert episode.max() > 1 and swapped
    for k in (2, 4):
        for light in (False, True):
            state = points[k].state_dict(of.policy_group)
            again = ResumePoint.restore(state | ({"saved": None} if light else {}), of.policy_group, 1)
            elsewhere = Collector(of)
            played, _ = elsewhere.collect(weights(of, k), again, k)
            elsewhere.close()
            for got, want in zip(played, undisturbed[k], strict=True):
                assert_same(got, want)


def test_agents_of_like_names_are_named_together() -> None:
    group = config(env_spec(**ALIKE), {"first": "one_0", "rest": ["*_1", "one_2", "one_3"]}).policy_group
    assert [(spec.name, spec.seats) for spec in group.specs] == [("first", (0,)), ("rest", (1, 2, 3))]


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ({"all": ["other", "one"]}, "policy all controls roles one and other, which have different spaces; use one"),
        ({"a": "other"}, "no policy controls one_1, one_2; add them to a policy"),
        ({"a": "other", "b": "oen"}, "has no role or agent 'oen'; did you mean 'one'?"),
        ({"a": "other", "b": ["one", "one_1"]}, "one_1 has two policies, b and b; remove one"),
        ({"a": "other", "b": "two_*"}, "has no role or agent 'two_*'"),
        ({"a": "other", "b": ["one_1", "one_*"]}, "one_1 has two policies, b and b; remove one"),
        ({"a b": "other"}, "'a b' is not a valid policy name"),
        ({}, "is empty; use null for one policy per role"),
        (
            {"a": 3},
            "a must be a role, an agent, or a list of them; available roles: other (other_0, other_3), one (one_1, one_2)",
        ),
    ],
)
def test_a_mapping_that_does_not_divide_the_agents_is_refused_in_one_line(policies: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(env_spec(**SKIRMISH), policies)
    assert said in str(error.value) and "\n" not in str(error.value)
