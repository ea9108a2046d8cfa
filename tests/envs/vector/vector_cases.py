"""Vector environments for several test files: recipes, spaces of every kind, and environments that fail."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest
from conftest import env_spec

from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Multiprocess, Native, Serial

N = 6


def multiprocess(**changes: Any) -> Multiprocess:
    given: dict[str, Any] = {"num_envs": N, "workers": 3, "batch_size": None, "restart": False, "timeout_s": 60.0}
    return Multiprocess(**(given | changes))


SERIAL = Serial(num_envs=N)
BACKENDS = {"serial": SERIAL, "multiprocess": multiprocess(), "pool": multiprocess(batch_size=4)}
NATIVE = Native(num_envs=N, threads=1)  # with numbers of its own: tests/native/test_native_vector.py has what it gives
TASKS = {
    "box": env_spec("CartPole-v1"),
    "continuous": env_spec("Pendulum-v1", max_episode_steps=12),
    "discrete": env_spec("toy_envs:Cell-v0", max_episode_steps=9),
    "tuple": env_spec("Blackjack-v1"),
    "parts": env_spec("toy_envs:Parts-v0"),
}


def samples(observation: str, action: str = "start", **changes: Any) -> EnvSpec:
    return env_spec("toy_envs:Samples-v0", kwargs={"observation": observation, "action": action}, **changes)


STRUCTURED = {  # with each kind of space that rows can hold
    "padded": samples("padded", "mixed"),
    "text": samples("text", "number"),
    "pile": samples("pile", "text", bounds={"pile": 40}),
    "stacked": samples("stacked", "bits", bounds={"element": 40}),
    "rooms": samples("rooms", "start", bounds={"0": 40}),
    "bits": samples("bits", "padded"),
}
BOUNDS = {"pile.pile": 40, "stacked": 40, "rooms.0": 40}
EVERYTHING = samples("everything", "mixed", bounds=BOUNDS)


@pytest.fixture(name="make")
def make_fixture() -> Iterator[Callable[..., Any]]:
    """Make vectors; all are closed after the test."""
    made: list[Any] = []

    def begin(vec: Any, env: EnvSpec, *arguments: Any, **named: Any) -> Any:
        made.append(vec.make(env, *arguments, **named))
        return made[-1]

    yield begin
    for vec in made:
        vec.close()


@pytest.fixture(name="backend", params=BACKENDS)
def backend_fixture(request: pytest.FixtureRequest) -> Any:
    return BACKENDS[request.param]


@pytest.fixture(name="any_backend", params=[*BACKENDS, "native"])
def any_backend_fixture(request: pytest.FixtureRequest) -> Any:
    return (BACKENDS | {"native": NATIVE})[request.param]


def assert_same(got: Any, expected: Any) -> None:
    """Equal values, types and structure."""
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, tuple | list):
        assert type(got) is type(expected) and len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype
        if expected.dtype == object:
            assert_same(got.tolist(), expected.tolist())
        else:
            np.testing.assert_array_equal(got, expected)
    else:
        assert got == expected


def actions_for(vec: Any, steps: int) -> list[Any]:
    vec.action_space.seed(0)
    return [vec.action_space.sample() for _ in range(steps)]


def workers_of(vec: Any) -> list[psutil.Process]:
    return [psutil.Process(process.child.popen.pid) for process in vec._coordinator._processes]


def play_in_rows(vec: Any, spec: EnvSpec, steps: int) -> Iterator[tuple[bytes, ...]]:
    """Step a vector whose observations are rows, by actions that are rows; all it gives, as bytes."""
    yield vec.reset(seed=5)[0].tobytes(), b"", b""
    for action in actions_for(vec, steps):
        rows = spec.actions.zeros(N)
        spec.actions.pack(action, rows)
        obs, reward, terminated, truncated, infos = vec.step(rows)
        assert obs.dtype == spec.observations.row and len(obs) == N
        ended = terminated | truncated
        assert ("final_obs" in infos) == ended.any()
        assert not ended.any() or infos["_final_obs"].tolist() == ended.tolist()
        finals = [one.tobytes() for one in infos["final_obs"][ended]] if ended.any() else []
        yield obs.tobytes(), reward.tobytes(), b"".join(finals)


def faulty(fault: str, on: int | None = 104, at: int = 2) -> EnvSpec:
    return env_spec("toy_envs:Faulty-v0", kwargs={"fault": fault, "on": on, "at": at})


FAULTS = {
    "raise": r"environment 4 \(toy_envs:Faulty-v0\) raised in step: RuntimeError: the gearbox jammed",
    "leave": r"environment 4 \(toy_envs:Faulty-v0\) raised in step: SystemExit: there is nothing to do here",
    "shape": r"environment 4 .* returned an observation with shape \(3,\), expected \(2,\)",
    "exit": "environment 4 .* exited with status 3",
    "segfault": "environment 4 .* killed by SIGSEGV",
    "kill": "environment 4 .* killed by SIGKILL",
    "hang": r"environment 4 .* did not respond for 1 s \(vec.timeout_s\)",
}
TRACES = {
    "raise": 'raise RuntimeError("the gearbox jammed")',
    "segfault": "Segmentation fault",
    "hang": "toy_envs.py",
}
