"""The native walker against Box2D's, bit for bit: what it sees, what it is paid, and when it falls."""

from typing import Any

import numpy as np
import pytest
from compiled import native  # noqa: F401, a fixture
from conftest import env_spec
from gymnasium.envs.box2d.bipedal_walker import BipedalWalkerHeuristics
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Native

EPISODES, STEPS = 8, 160
OBSTACLES = {"pit_gap": [0.2, 0.8], "stump_height": [0.1, 0.6], "stair_height": [0.1, 0.4], "stair_steps": [1, 3]}
COURSES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("BipedalWalker-v3", {}),
    "hardcore": ("BipedalWalkerHardcore-v3", {}),
    "rough": ("Terrain-v0", {"roughness": 5.0}),
    "obstacles": ("Terrain-v0", {"roughness": 1.0, **OBSTACLES}),
    "one ground": ("Terrain-v0", {"roughness": 2.0, **OBSTACLES, "ground": 7}),
    "flat": ("Terrain-v0", {"roughness": 0.0, "length": 60}),
}


def spec_of(name: str) -> EnvSpec:
    env_id, kwargs = COURSES[name]
    return env_spec(f"paddock.envs.bipedal:paddock/{env_id}", kwargs=kwargs)


class Walk:
    """How walkers are moved: by Gymnasium's own controller, with noise or, calm, without; by chance; or not at all."""

    def __init__(self, style: str) -> None:
        self._style = style
        self._noise = np.random.default_rng(3)
        self._minds: dict[int, BipedalWalkerHeuristics] = {}

    def act(self, i: int, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._style == "still":
            return np.zeros(4, np.float32)
        if self._style == "random":
            return self._noise.uniform(-1, 1, 4).astype(np.float32)
        mind = self._minds.setdefault(i, BipedalWalkerHeuristics())
        action = mind.step_heuristic(observation) + (self._style != "calm") * self._noise.normal(0, 0.15, 4)
        return np.clip(action, -1, 1).astype(np.float32)


@pytest.mark.parametrize(
    ("course", "style"),
    [
        *(("plain", "heuristic"), ("hardcore", "heuristic"), ("hardcore", "still"), ("rough", "random")),
        *(("obstacles", "heuristic"), ("obstacles", "random"), ("one ground", "heuristic"), ("flat", "random")),
    ],
)
def test_a_walker_steps_as_box2d_s_does_to_the_bit(course: str, style: str) -> None:
    spec, walk = spec_of(course), Walk(style)
    venv = Native(num_envs=EPISODES, threads=1).make(spec, autoreset=AutoresetMode.DISABLED)
    envs = [spec.make() for _ in range(EPISODES)]
    seeds = list(range(500, 500 + EPISODES))
    ours, _ = venv.reset(seed=seeds)
    seen = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)])
    np.testing.assert_array_equal(ours, seen)
    going, touched, falls = np.arange(EPISODES), 0, 0
    for _ in range(STEPS):
        actions = np.stack([walk.act(i, seen[i]) for i in going.tolist()])
        venv.send(actions, going)
        observation, reward, terminated, truncated, _ = venv.recv(going)
        theirs = [envs[i].step(action) for i, action in zip(going, actions, strict=True)]
        seen[going] = [one[0] for one in theirs]
        np.testing.assert_array_equal(observation, seen[going])
        np.testing.assert_array_equal(reward, [float(one[1]) for one in theirs])
        np.testing.assert_array_equal(terminated, [one[2] for one in theirs])
        assert not truncated.any()
        touched += int(observation[:, [8, 13]].sum())
        falls += int((reward == -100).sum())
        going = going[~terminated]
        if len(going) == 0:
            break
    venv.close()
    assert touched > 50, "the walkers hardly met the ground"
    assert style == "still" or falls > 0, "no walker fell"


def test_a_course_ends_where_box2d_s_does() -> None:
    spec, walk = spec_of("flat"), Walk("calm")
    venv = Native(num_envs=1, threads=1).make(spec, autoreset=AutoresetMode.DISABLED)
    env = spec.make()
    arrived = 0
    for seed in range(6):
        walk = Walk("calm")
        observation, _ = venv.reset(seed=[seed])
        env.reset(seed=seed)
        ended = False
        while not ended:
            action = walk.act(0, observation[0])
            observation, reward, terminated, truncated, _ = venv.step(action[None])
            theirs = env.step(action)
            ended = bool(terminated[0] or truncated[0])
            assert (reward[0], terminated[0], truncated[0]) == (float(theirs[1]), theirs[2], theirs[3])
        arrived += reward[0] > -100 and bool(terminated[0])
    venv.close()
    assert arrived > 0
