"""Wrappers that show less, or more, of what is going on."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import paddock.envs.sanity  # noqa: F401, registers it
from paddock.envs.errors import ConfigError
from paddock.envs.partial import LastStep, Numbers


def test_numbers_are_shown_in_their_order() -> None:
    whole, part = gymnasium.make("CartPole-v1"), Numbers(gymnasium.make("CartPole-v1"), [2, 0])
    seen, _ = whole.reset(seed=3)
    shown, _ = part.reset(seed=3)
    assert part.observation_space == spaces.Box(*(whole.observation_space.__dict__[k][[2, 0]] for k in ("low", "high")))
    for action in (0, 1, 1):
        assert np.array_equal(shown, seen[[2, 0]]) and shown in part.observation_space
        seen, *told = whole.step(action)
        shown, *same = part.step(action)
        assert told == same


def test_the_last_choice_and_its_reward_stand_behind_the_numbers() -> None:
    env = LastStep(gymnasium.make("paddock/Recall-v0", delay=0))
    obs, _ = env.reset(seed=0)
    assert obs.shape == env.observation_space.shape == (5,) and not obs[2:].any()
    cue = obs[0] > 0
    obs, *_ = env.step(np.int64(0))
    assert obs.tolist() == [0, 1, 1, 0, 0]
    obs, *_ = env.step(np.int64(cue))
    assert obs.tolist() == [0, 0, 1 - cue, cue, 1] and obs.dtype == np.float32
    assert not env.reset(seed=0)[0][2:].any()


@pytest.mark.parametrize("indices", [[], [4], [-1], [0.0], [True]])
def test_indices_that_are_none_end_in_one_line(indices: Any) -> None:
    with pytest.raises(ConfigError, match="must be numbers from 0 to 3, at least one"):
        Numbers(gymnasium.make("CartPole-v1"), indices)
