"""Action masks come from infos to where policies look for them, or the environment is at fault, by name."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from paddock.envs.masks import ActionMask
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.legal import sample_legal
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import EnvError, Serial

MIXED = spaces.Dict(
    {
        "move": spaces.Discrete(3),
        "aim": spaces.Box(-1, 1, (2,)),
        "keys": spaces.Tuple([spaces.MultiBinary(2), spaces.Text(3)]),
    }
)


class Told(gymnasium.Env[Any, Any]):
    """Tells the masks that it was given, one a step."""

    def __init__(self, action: gymnasium.Space, infos: list[Any], observation: gymnasium.Space | None = None) -> None:
        self.action_space, self.infos = action, infos
        self.observation_space = observation or spaces.Box(0, 9, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return self._see(), self.infos[0]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at += 1
        return self._see(), 0.0, self.at == len(self.infos) - 1, False, self.infos[self.at]

    def _see(self) -> Any:
        one = np.array([self.at], np.float32)
        return {"clock": one} if isinstance(self.observation_space, spaces.Dict) else one


class Three(Told):
    """Three choices and two steps."""

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(3), [{"legal": [0, 1, 1]}, {"legal": [1, 0, 0]}, {}])


gymnasium.register("Three-v0", f"{__name__}:Three")


def masks_of(env: ActionMask) -> list[Any]:
    """The masks of an episode, each in its space."""
    obs, _ = env.reset(seed=0)
    met, over = [obs], False
    while not over:
        obs, _, over, _, _ = env.step(None)
        met.append(obs)
    assert all(env.observation_space.contains(obs) for obs in met)
    return [obs["action_mask"] for obs in met]


def test_a_mask_becomes_a_leaf_of_the_observation_by_one_line_of_yaml() -> None:
    wrapper = {"_target_": "paddock.envs.masks.ActionMask", "key": "legal"}
    spec = EnvSpec(id="Three-v0", kwargs={}, wrappers=(wrapper,), max_episode_steps=None, fresh=False)
    venv = Serial(num_envs=2).make(spec)
    try:
        obs, _ = venv.reset(seed=0)
        assert list(obs) == ["action_mask", "observation"]
        np.testing.assert_array_equal(obs["action_mask"], [[0, 1, 1]] * 2)
        obs, *_ = venv.step(np.array([1, 2]))
        np.testing.assert_array_equal(obs["action_mask"], [[1, 0, 0]] * 2)
        *_, infos = venv.step(np.array([0, 0]))
        np.testing.assert_array_equal(infos["final_obs"][0]["action_mask"], [1, 1, 1])  # nothing is chosen there
    finally:
        venv.close()


def test_masks_of_several_actions_have_the_paths_of_their_choices() -> None:
    told = {"action_mask": {"move": [0, 1, 1], "keys": ([1, 0, 0, 1], None)}}
    env = ActionMask(Told(MIXED, [told, {"action_mask": {"keys": {0: [0, 1, 1, 1]}}}, {"action_mask": {}}]))
    first, second, last = masks_of(env)
    assert (first["move"].tolist(), first["keys"][0].tolist()) == ([0, 1, 1], [1, 0, 0, 1])
    assert (second["move"].tolist(), second["keys"][0].tolist()) == ([1, 1, 1], [0, 1, 1, 1])
    assert last["move"].all() and last["keys"][0].all()
    paths = {leaf.path for leaf in Layout.of(env.observation_space, {}, ()).leaves}
    assert paths == {("observation",), ("action_mask", "move"), ("action_mask", "keys", 0)}


@pytest.mark.parametrize(
    ("action", "info", "named"),
    [
        (spaces.Discrete(3), {"action_masks": [1, 1, 1]}, "has no 'action_mask'; did you mean 'action_masks'.*: key"),
        (spaces.Discrete(3), {"action_mask": [1, 2, 1]}, r"is \[1, 2, 1\]; allowed: 3 numbers, 1 for a legal choice"),
        (MIXED, {"action_mask": {"mov": [1, 1, 1]}}, "must be a mapping with masks of keys, move"),
        (MIXED, {"action_mask": {"keys": ([1],)}}, r"info\.action_mask\.keys\.0 is \[1\]"),
    ],
)
def test_a_mask_that_does_not_fit_is_named(action: gymnasium.Space, info: dict[str, Any], named: str) -> None:
    with pytest.raises(EnvError, match=named) as caught:
        ActionMask(Told(action, [info, info])).reset()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("action", "mask", "legal"),
    [
        (spaces.Discrete(3, start=4), [0, 1, 1], {5, 6}),
        (spaces.MultiDiscrete([2, 3]), [0, 1, 1, 0, 1], {(1, 0), (1, 2)}),
        (spaces.MultiDiscrete([2, 3]), (np.array([0, 1], np.int8), np.array([1, 0, 1], np.int8)), {(1, 0), (1, 2)}),
        (
            spaces.MultiDiscrete(np.array([[2, 2], [3, 1]])),
            [0, 1, 1, 0, 0, 1, 1, 1],
            {((1, 0), (1, 0)), ((1, 0), (2, 0))},
        ),
        (spaces.MultiBinary(3), [1, 0, 0, 1, 1, 1], {(0, 1, 0), (0, 1, 1)}),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), {1: [1, 0]}, {(0, 0), (1, 0)}),
    ],
)
def test_an_action_is_drawn_of_those_that_a_mask_allows(action: gymnasium.Space, mask: Any, legal: set[Any]) -> None:
    action.seed(0)

    def hashable(value: Any) -> Any:
        value = value if isinstance(value, tuple) else np.asarray(value).tolist()
        return tuple(map(hashable, value)) if isinstance(value, tuple | list) else value

    assert {hashable(sample_legal(action, mask)) for _ in range(100)} == legal
