"""Policies that share worlds, each in its own seats."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from test_agents import Truthful, config  # type: ignore[import-not-found]  # pytest puts this folder on the path

from paddock.algos.learning.policy_episodes import EvaluationSpec, evaluate_policy
from paddock.algos.multiagent.joint_policy import JointPolicy
from paddock.envs.errors import ConfigError
from paddock.envs.multiagent.roles import narrow
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Serial

MORTALS = config("agents:Mortals").env
SKIRMISH = EnvSpec("toy_worlds:Skirmish", {"kinds": 2}, (), None, fresh=False)


class Lying:
    """Does the opposite of what it is told, and remembers nothing."""

    def act(self, obs: Any, state: Any = None) -> Any:
        return 1 - obs[:, 0].astype(np.int64), {}, None


class Pair:
    """Plays the second role of a skirmish, whose actions are two numbers: what it saw, and how often it did."""

    def act(self, obs: Any, state: Any = None) -> Any:
        count = np.zeros((len(obs), 2), np.float32) if state is None else state
        seen = obs.view(np.uint8).reshape(len(obs), -1)[:, 0]
        return np.stack([seen / 9, count[:, 0] / 10], axis=1).astype(np.float32), {}, count + 1


class Third:
    """Plays the first role: the step that it sees."""

    def act(self, obs: Any, state: Any = None) -> Any:
        return obs[:, 0].astype(np.int64) % 5, {}, None


def test_each_seat_is_played_by_its_own_member_with_its_own_memory() -> None:
    seated = JointPolicy(MORTALS, [Truthful(), Lying()], [0, 1, 1, 0])
    obs = np.array([[1, 0], [1, 0], [0, 0], [0, 0]] * 2, np.float32)  # two worlds
    state = None
    for turn in range(3):
        actions, _, state = seated.act(obs, state)
        third = turn == 2  # of a life, in which whoever tells the truth errs
        assert actions.tolist() == [1 - third, 0, 1, 0 + third] * 2
        assert state[:, 0].tolist() == [turn + 1, 0, 0, turn + 1] * 2


@pytest.mark.parametrize("seats", [[0, 0, 0, 0], [0, 1, 0, 1], [1, 0, 1, 1]])
def test_row_by_row_or_all_at_once_members_play_the_same_episodes(seats: list[int]) -> None:
    policy = JointPolicy(MORTALS, [Truthful(), Lying()], seats)
    alone, together = (
        evaluate_policy(EvaluationSpec(MORTALS, policy, 100, stochastic=False, batched=batched), [3, 4, 5])
        for batched in (False, True)
    )
    for name in ("lives", "rows"):
        for one, other in zip(getattr(alone, name), getattr(together, name), strict=True):
            np.testing.assert_array_equal(one, other)
    paid = np.concatenate(alone.lives)[np.isin(np.concatenate(alone.rows), np.flatnonzero(seats))]
    assert (paid == 0).all()  # whoever lies
    # b dies first, lives again, and dies; a dies at the second step; c and d live to the end.
    assert [sorted(whose) for whose in alone.rows] == [[0, 1, 1, 2, 3]] * 3


def test_members_of_several_roles_see_and_give_rows_of_their_own() -> None:
    pairs, ones = SKIRMISH.roles
    seated = JointPolicy(SKIRMISH, [Pair(), Third()], [int(seat in ones.seats) for seat in range(4)])
    with closing(Serial(num_envs=2).make(SKIRMISH, packed=True)) as venv:
        obs, _ = venv.begin(5)
        state = None
        for turn in range(9):
            actions, _, state = seated.act(obs, state)
            own = {role.name: np.isin(np.arange(8) % 4, role.seats) for role in (pairs, ones)}
            assert pairs.actions and ones.actions and ones.observations
            told = narrow(actions[own["other"]], pairs.actions)
            assert (told[:, 1] == np.float32(turn / 10)).all() and (state[own["other"]] == turn + 1).all()
            steps = narrow(obs[own["one"]], ones.observations)[:, 0]
            assert (narrow(actions[own["one"]], ones.actions).view(np.int64) == steps % 5).all()
            obs, *_ = venv.step(actions)  # which reads them as each role's space says


def test_a_seat_without_a_player_or_a_player_of_two_roles_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"seats=\[0, 1\] must be indices below 2, one for each of 4 seats"):
        JointPolicy(MORTALS, [Truthful(), Lying()], [0, 1])
    with pytest.raises(ConfigError, match=r"seats=\[0, 0, 0, 2\] must be indices below 1"):
        JointPolicy(MORTALS, [Truthful()], [0, 0, 0, 2])
    with pytest.raises(ConfigError, match=r"one policy cannot play \w+ and \w+, which have different spaces"):
        JointPolicy(SKIRMISH, [Third()], [0] * SKIRMISH.seats)
