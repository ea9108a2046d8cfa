"""The classic control tasks in C against Gymnasium's."""

import ctypes
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
from compiled import native  # noqa: F401, a fixture
from gymnasium import Space
from numpy.typing import NDArray

from paddock.envs.native import library
from paddock.envs.native.settings import native_task
from paddock.envs.native.vector import point_to
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import keyed_seed
from paddock.envs.vector.serial import SerialVectorEnv
from paddock.envs.vector.storage import Layouts
from paddock.envs.vector.table import Arrays

HEAD, GENERATOR = 64, 40  # bytes in front of all that is saved, and in front of an environment's state
TASKS: list[tuple[str, Mapping[str, Any]]] = [
    ("CartPole-v1", {}),
    ("CartPole-v1", {"sutton_barto_reward": True}),
    ("Pendulum-v1", {}),
    ("Pendulum-v1", {"g": 9.81}),
    ("Acrobot-v1", {}),
    ("MountainCar-v0", {}),
    ("MountainCar-v0", {"goal_velocity": 0.03}),
    ("MountainCarContinuous-v0", {}),
    ("MountainCarContinuous-v0", {"goal_velocity": 0.03}),
]
IDS = sorted({name for name, _ in TASKS})
RANGES: dict[str, tuple[list[float], list[float]]] = {  # of the numbers of a state
    "cartpole": ([-3, -4, -0.3, -4], [3, 4, 0.3, 4]),
    "pendulum": ([-60, -8], [60, 8]),
    "acrobot": ([-np.pi, -np.pi, -4 * np.pi, -9 * np.pi], [np.pi, np.pi, 4 * np.pi, 9 * np.pi]),
    "mountain_car": ([-1.2, -0.07], [0.6, 0.07]),
    "mountain_car_continuous": ([-1.2, -0.07], [0.6, 0.07]),
}
CLOSE = {"acrobot": 1e-10}  # at such speeds Runge and Kutta's stages enlarge the last bits; others: 2e-14
SINGLE = {"mountain_car_continuous"}  # Gymnasium rounds these states to float32


@dataclass
class Vector:
    """A vector of the library, its arrays, and what has to outlive it."""

    task: Any
    arrays: Arrays
    at: int

    def __post_init__(self) -> None:
        self.c, self.rows = library.load(), point_to(self.arrays)
        self.rows_at = ctypes.addressof(self.rows)

    def start(self, seeds: Any, chosen: NDArray[np.uint8] | None = None) -> None:
        numbers = np.array(seeds, np.int64)
        assert self.c.vector_start(self.at, address(chosen), numbers.ctypes.data, self.rows_at) == 0

    def begin(self, key: int, numbers: Any) -> None:
        first = np.array(numbers, np.int64)
        assert self.c.vector_begin(self.at, key, first.ctypes.data, self.rows_at) == 0

    def step(self, actions: Any, chosen: NDArray[np.uint8] | None = None) -> int:
        self.arrays.action[...] = actions
        return self.c.vector_step(self.at, address(chosen), self.rows_at)

    def save(self) -> NDArray[np.uint8]:
        saved = np.zeros(self.c.vector_saved_bytes(self.at), np.uint8)
        self.c.vector_save(self.at, saved.ctypes.data)
        return saved

    def load(self, saved: NDArray[np.uint8]) -> int:
        return self.c.vector_load(self.at, saved.ctypes.data)

    def states(self, saved: NDArray[np.uint8]) -> NDArray[np.float64]:
        """[N, numbers of a state and its mark], in what was saved: to read and to write."""
        each = saved[HEAD:].reshape(len(self.arrays.reward), -1)
        return each[:, GENERATOR:].view(np.float64)


def recipe(name: str, kwargs: Mapping[str, Any] | None = None) -> EnvSpec:
    return EnvSpec(name, dict(kwargs or {}), (), None, False)


def address(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


@pytest.fixture
def make() -> Iterator[Any]:
    """Makes vectors, and closes them after the test."""
    made: list[Vector] = []

    def one(
        env: str,
        num_envs: int,
        kwargs: Mapping[str, Any] | None = None,
        same_step: bool = True,
        threads: int = 1,
        **others: Any,
    ) -> Vector:
        task = native_task(recipe(env, kwargs))
        arrays = Arrays.allocate(Layouts.of(task.source, *task.source.spaces), num_envs, np.zeros)
        where = library.load().find_task(others.get("lanes", library.widest()).encode(), task.name.encode())
        limit = others.get("limit", task.time_limit or 0)
        at = library.load().vector_open(where, num_envs, ctypes.addressof(task.settings), limit, same_step, threads)
        assert at
        made.append(Vector(task, arrays, at))
        return made[-1]

    yield one
    for vector in made:
        vector.c.vector_close(vector.at)


def sample(space: Space, num_envs: int, draw: np.random.Generator) -> NDArray[Any]:
    """Actions, some of them beyond the bounds of a box."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return draw.integers(space.n, size=num_envs)
    return draw.uniform(-3, 3, (num_envs, *(space.shape or ()))).astype(np.float32)


@pytest.mark.parametrize(("name", "kwargs"), TASKS)
@pytest.mark.parametrize("first", [False, True])
def test_a_step_is_gymnasium_s_from_any_state(make: Any, name: str, kwargs: dict[str, Any], first: bool) -> None:
    draw = np.random.default_rng(1)
    num_envs = 250
    vector = make(name, num_envs, kwargs, same_step=False)
    vector.start(range(num_envs))
    low, high = RANGES[vector.task.name]
    states = draw.uniform(low, high, (num_envs, len(low)))
    if vector.task.name in SINGLE and not first:
        states = states.astype(np.float32).astype(np.float64)
    saved = vector.save()
    vector.states(saved)[:, :-1] = states
    vector.states(saved)[:, -1] = vector.task.name in SINGLE and first
    assert vector.load(saved) == 0
    actions = sample(vector.task.action_space, num_envs, draw)
    assert vector.step(actions) == -1
    after = vector.states(vector.save())[:, :-1]
    close = CLOSE.get(vector.task.name, 2e-14)
    env: Any = gymnasium.make(name, **kwargs).unwrapped
    for i, (state, action) in enumerate(zip(states, actions, strict=True)):
        env.reset(seed=0)
        env.state = state.astype(np.float32) if vector.task.name in SINGLE and not first else state
        observation, reward, terminated, _, _ = env.step(action)
        np.testing.assert_allclose(after[i], env.state, rtol=close, atol=close, err_msg=f"{state} {action}")
        np.testing.assert_allclose(vector.arrays.observation[i], observation, rtol=1.2e-7, atol=1e-14)
        np.testing.assert_allclose(vector.arrays.reward[i], reward, rtol=1e-9, atol=1e-9)
        assert vector.arrays.terminated[i] == terminated and not vector.arrays.truncated[i]


@pytest.mark.parametrize("name", IDS)
def test_an_episode_starts_where_gymnasium_s_does_to_the_bit(make: Any, name: str) -> None:
    seeds = [0, 1, 7, 2**31, 2**40 + 3, 2**63 - 1, 11]
    vector = make(name, len(seeds))
    vector.start(seeds)
    states = vector.states(vector.save())[:, :-1].copy()
    first = vector.arrays.observation.copy()
    vector.start([-1] * len(seeds))  # the generators go on
    env: Any = gymnasium.make(name).unwrapped
    for i, seed in enumerate(seeds):
        observation, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(states[i], env.state)
        np.testing.assert_allclose(first[i], observation, rtol=1.2e-7, atol=0)
        observation, _ = env.reset()
        np.testing.assert_allclose(vector.arrays.observation[i], observation, rtol=1.2e-7, atol=0)


def test_a_forked_process_steps_on_with_threads_of_its_own(make: Any) -> None:
    num_envs, actions = 100, np.zeros((100, 1), np.float32)
    forked, plain = make("Pendulum-v1", num_envs, threads=3), make("Pendulum-v1", num_envs)
    for vector in (forked, plain):
        vector.start(range(num_envs))
        vector.step(actions)
    child = os.fork()
    if not child:
        ok = False
        try:
            forked.step(actions)
            plain.step(actions)
            ok = forked.save().tobytes() == plain.save().tobytes()
            forked.c.vector_close(forked.at)
        finally:
            os._exit(not ok)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for vector in (forked, plain):
        vector.step(actions)
    assert forked.save().tobytes() == plain.save().tobytes()


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("name", ["CartPole-v1", "MountainCarContinuous-v0"])
def test_statistics_and_restarts_equal_the_serial_vector_s(make: Any, name: str, keyed: bool) -> None:
    num_envs, draw, seed = 6, np.random.default_rng(6), 21
    serial = SerialVectorEnv(recipe(name), num_envs)
    vector = make(name, num_envs)
    if keyed:
        observation, _ = serial.begin(seed, range(num_envs))
        vector.begin(seed, range(num_envs))
    else:
        observation, _ = serial.reset(seed=seed)
        vector.start(range(seed, seed + num_envs))
    np.testing.assert_allclose(vector.arrays.observation, observation, rtol=1.2e-7)
    for _ in range(1100 if name == "MountainCarContinuous-v0" else 400):
        actions = sample(serial.single_action_space, num_envs, draw)
        assert vector.step(actions) == -1
        observation, reward, terminated, truncated, infos = serial.step(actions)
        arrays = vector.arrays
        np.testing.assert_allclose(arrays.observation, observation, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(arrays.reward, reward, rtol=1e-12)
        np.testing.assert_array_equal(arrays.terminated, terminated)
        np.testing.assert_array_equal(arrays.truncated, truncated)
        for i in np.flatnonzero(terminated | truncated):
            np.testing.assert_allclose(arrays.final[i], infos["final_obs"][i], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(arrays.final_return[i], infos["final_info"]["episode"]["r"][i], rtol=1e-12)
            assert arrays.final_length[i] == infos["final_info"]["episode"]["l"][i]
    theirs = serial._table.arrays
    np.testing.assert_array_equal(vector.arrays.episode, theirs.episode)
    np.testing.assert_array_equal(vector.arrays.running_length, theirs.running_length)
    np.testing.assert_allclose(vector.arrays.running_return, theirs.running_return, rtol=1e-12)
    serial.close()


def test_a_keyed_episode_is_the_one_of_its_seed(make: Any) -> None:
    vector = make("CartPole-v1", 6)
    vector.begin(-3, [4, 0, 9, 2**40, 5, 1])
    first = vector.arrays.observation.copy()
    vector.start([keyed_seed(-3 % 2**64, i, number) for i, number in enumerate([4, 0, 9, 2**40, 5, 1])])
    np.testing.assert_array_equal(vector.arrays.observation, first)
