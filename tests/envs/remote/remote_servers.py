"""Servers of environments and their clients for several test files: recipes, a counting environment, a raw client."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import ROOT, env_spec
from vector_cases import N

from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Multiprocess, Remote, Serial
from paddock.envs.vector.remote import make_endpoint

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.client import endpoint  # noqa: E402
from paddock.envs.remote.client.connection import OPEN_S  # noqa: E402
from paddock.envs.remote.frames import Kind, encode_frame  # noqa: E402
from paddock.envs.remote.server.service import EnvironmentServer  # noqa: E402
from paddock.envs.remote.server.settings import ServerSettings  # noqa: E402

CARTPOLE = env_spec("CartPole-v1")
WORKERS = Multiprocess(num_envs=16, workers=2, batch_size=None, restart=False, timeout_s=60.0)


def settings(**changes: Any) -> ServerSettings:
    given: dict[str, Any] = {"address": "127.0.0.1:0", "token_file": None, "tls": {}, "insecure": False}
    given |= {
        "address_file": None,
        "max_sessions": 8,
        "lease_s": 60.0,
        "drain_s": 5.0,
        "infos": "all",
    }
    return ServerSettings(**(given | changes))


def remote(*addresses: str, **changes: Any) -> Remote:
    given: dict[str, Any] = {"num_envs": N, "address": list(addresses), "token_file": None, "tls": {}, "wait_s": 20.0}
    return Remote(**(given | {"journal_mb": 256.0, "same_versions": "run"} | changes))


def set_lease(server: EnvironmentServer, lease_s: float) -> None:
    """Have sessions end after another time of silence from now on; one that is short might end them too soon."""
    server.sessions._settings = replace(server.sessions._settings, lease_s=lease_s)


@dataclass
class Served:
    """The recipe of the contract's tests: a server in this process, and environments at it."""

    backend: Any = field(default_factory=lambda: Serial(num_envs=2 * N))
    num_envs: int = N

    def make(self, spec: EnvSpec, *arguments: Any, **named: Any) -> Any:
        server = EnvironmentServer(spec, self.backend, settings())
        venv = remote(server.address).make(spec, *arguments, **named)
        close = venv.close_extras

        def close_both(**kwargs: Any) -> None:
            close(**kwargs)
            server.close()

        venv.close_extras = close_both  # type: ignore[method-assign]
        return venv


@pytest.fixture(name="serve")
def serve_fixture() -> Iterator[Callable[..., EnvironmentServer]]:
    """Start servers in this process; all are closed after the test."""
    with ExitStack() as stack:

        def begin(spec: EnvSpec = CARTPOLE, vec: Any = None, **changes: Any) -> EnvironmentServer:
            server = EnvironmentServer(spec, vec or Serial(num_envs=2 * N), settings(**changes))
            return stack.enter_context(closing(server))

        yield begin


COUNTED: list[int] = []  # a step of any environment, in this process


class Counting(gymnasium.Env[Any, Any]):
    """Counts its steps, and ends at random."""

    observation_space = gymnasium.spaces.Box(-1e9, 1e9, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=3)
        return self.state.copy(), {"begun": True}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        COUNTED.append(1)
        self.state = 0.9 * self.state + action + self.np_random.normal(size=3)
        over = self.np_random.random()
        return self.state.copy(), float(self.state[0]), over < 0.1, over > 0.95, {"drawn": over}


class ClearLastAction(Counting):
    """Remembers what no reset takes back."""

    lives = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        ClearLastAction.lives += 1
        observation, reward, *_, info = super().step(action)
        return observation + ClearLastAction.lives, reward, False, False, info


class Secretive(Counting):
    """Says what has no form in bytes."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return *super().step(action)[:4], {"fine": 1, "myself": self}


for made in (Counting, ClearLastAction, Secretive):
    gymnasium.register(f"{made.__name__}-v0", f"{__name__}:{made.__name__}", disable_env_checker=True)
COUNTING = env_spec("Counting-v0")
STEPS = 9
Hook = Callable[[int, int], None]


def play(venv: Any, hook: Hook = lambda t, k: None, steps: int = STEPS) -> str:
    """Play in two groups; all that comes of it, as a digest. The hook is called between any two messages."""
    digest, halves = sha256(), [slice(0, 3), slice(3, 6)]
    observation, infos = venv.begin(5)
    digest.update(observation.tobytes() + repr(infos).encode())
    venv.action_space.seed(0)
    for t in range(steps):
        actions = venv.action_space.sample()
        for k, rows in enumerate(halves):
            hook(t, k)
            venv.send(actions[rows], rows)
        for k, rows in enumerate(halves):
            hook(t, 2 + k)
            observation, reward, terminated, truncated, infos = venv.recv(rows)
            for array in (observation, reward, terminated, truncated):
                digest.update(array.tobytes())
            digest.update(repr({key: infos[key] for key in sorted(infos)}).encode())
    return digest.hexdigest()


@pytest.fixture(name="undisturbed", scope="module")
def undisturbed_fixture() -> str:
    with closing(Serial(num_envs=N).make(COUNTING)) as venv:
        return play(venv)


class Raw:
    """A client that says whatever it is told to."""

    def __init__(self, server: EnvironmentServer, num_envs: int = 2, environment: str = "Counting-v0") -> None:
        self.endpoint = make_endpoint(server.address, None, {}, 1.0)
        request = {"environment": environment, "num_envs": num_envs}
        opened = self.endpoint.call(server.address, "Open", request | {"autoreset": "SAME_STEP"}, OPEN_S)
        self.session, self.secret = opened["session"], opened["secret"]
        self.address = server.address

    def attach(self, secret: bytes | None = None, received: int = 0) -> endpoint.Channel:
        channel = endpoint.Channel(self.endpoint, self.address, 60.0)
        channel.send(encode_frame(Kind.ATTACH, [self.session, secret or self.secret, received]))
        return channel


def begin(seq: int, key: int = 1) -> bytes:
    return encode_frame(Kind.BEGIN, [seq, 0, key, np.zeros(2, np.int64), np.arange(2)])


def turn(seq: int, action: int = 1) -> bytes:
    return encode_frame(Kind.STEP, [seq, 0, [0, 2]], [np.full(2, action, np.int64)])


def start_process(address: str = "127.0.0.1:0", vec: str = "serial") -> tuple["subprocess.Popen[str]", str]:
    """Serve CartPole in a process of its own; returns it and its address."""
    arguments = ["env=cartpole", f"vec={vec}", "vec.num_envs=8", f"serve.address={address}"]
    command = [sys.executable, "-m", "paddock.serve", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    return process, process.stdout.readline().split(" at ")[1].partition(",")[0]
