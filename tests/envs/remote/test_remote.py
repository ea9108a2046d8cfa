"""Environments at a server: the same numbers as here, each step once, whatever is cut, killed, forged or refused."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
import test_vector as contract
from conftest import call_main, env_spec, wait_until
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from envs.errors import ConfigError
from envs.spec import EnvSpec
from envs.vector import EnvError, Multiprocess, Remote, Serial, VectorMisuse
from envs.vector.remote import make_place

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from envs.remote import guard, place  # noqa: E402
from envs.remote.frames import FIXED, START, SUMS, Frame, Kind, join, split  # noqa: E402
from envs.remote.server import HEALTH, SERVING, EnvironmentServer, ServerSettings  # noqa: E402
from envs.remote.session import Session  # noqa: E402
from envs.remote.spaces import build_space, describe_space  # noqa: E402
from envs.remote.values import Garbled, Unsayable, decode, encode  # noqa: E402
from envs.remote.vector import RemoteVectorEnv  # noqa: E402
from paddock import serve as serving  # noqa: E402
from paddock.health import server as health  # noqa: E402

N = contract.N
make = contract.make
CARTPOLE = env_spec("CartPole-v1")
WORKERS = Multiprocess(num_envs=16, workers=2, batch_size=None, restart=False, timeout_s=60.0)


def settings(**changes: Any) -> ServerSettings:
    given: dict[str, Any] = {"address": "127.0.0.1:0", "token_file": None, "tls": {}, "insecure": False}
    given |= {
        "address_file": None,
        "max_sessions": 8,
        "max_envs_per_session": None,
        "lease_s": 60.0,
        "drain_s": 5.0,
        "infos": "all",
    }
    return ServerSettings(**(given | changes))


def remote(*addresses: str, **changes: Any) -> Remote:
    given: dict[str, Any] = {"num_envs": N, "address": list(addresses), "token_file": None, "tls": {}, "wait_s": 20.0}
    return Remote(**(given | {"lost": "replay", "journal_mb": 256.0} | changes))


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


@pytest.fixture
def serve() -> Iterator[Callable[..., EnvironmentServer]]:
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
        return self.state.copy(), float(self.state[0]), over < 0.1, over > 0.95, {"over": over}


class Forgetful(Counting):
    """Remembers what no reset takes back."""

    lives = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Forgetful.lives += 1
        observation, reward, *_, info = super().step(action)
        return observation + Forgetful.lives, reward, False, False, info


class Secretive(Counting):
    """Says what has no form in bytes."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return *super().step(action)[:4], {"fine": 1, "myself": self}


for made in (Counting, Forgetful, Secretive):
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


@pytest.fixture(scope="module")
def undisturbed() -> str:
    with closing(Serial(num_envs=N).make(COUNTING)) as venv:
        return play(venv)


# The contract


@pytest.mark.parametrize("task", contract.TASKS)
def test_a_server_gives_what_gymnasiums_gives(make: Any, task: str) -> None:
    contract.test_every_backend_gives_what_gymnasiums_gives(make, Served(), contract.TASKS[task])


def test_a_server_with_workers_gives_what_gymnasiums_gives(make: Any) -> None:
    contract.test_every_backend_gives_what_gymnasiums_gives(make, Served(WORKERS), contract.TASKS["parts"])


@pytest.mark.parametrize("task", ["padded", "oneof", "graph", "choice"])
def test_a_server_gives_every_kind_of_space(make: Any, task: str) -> None:
    contract.test_every_backend_gives_what_gymnasiums_gives(make, Served(), contract.STRUCTURED[task])


def test_rows_from_a_server_have_the_same_bytes(make: Any) -> None:
    here, there = (make(vec, contract.EVERYTHING, packed=True) for vec in (contract.SERIAL, Served()))
    told = list(contract.play_in_rows(here, contract.EVERYTHING, 8))
    assert list(contract.play_in_rows(there, contract.EVERYTHING, 8)) == told


@pytest.mark.parametrize(
    "law",
    [
        contract.test_left_out_parts_are_nowhere,
        contract.test_a_key_enters_any_episode,
        contract.test_chosen_environments_are_stepped_and_restarted,
        contract.test_two_sends_to_one_worker_are_both_answered,
        contract.test_a_reset_drops_what_was_sent,
        contract.test_batches_are_the_callers_own_unless_views_are_asked_for,
    ],
    ids=lambda law: law.__name__,
)
def test_a_server_keeps_the_laws_of_vectors(make: Any, law: Any) -> None:
    law(make, Served())


MISUSES = contract.test_misuse_is_one_clear_line.pytestmark[1].args[1]


@pytest.mark.parametrize(("misuse", "named"), MISUSES)
def test_misuse_is_one_clear_line(make: Any, misuse: Any, named: str) -> None:
    contract.test_misuse_is_one_clear_line(make, Served(), misuse, named)


def test_a_remote_environment_is_one_of_gymnasiums(serve: Any) -> None:
    address = serve(COUNTING).address
    with closing(gymnasium.make("envs.remote.single:Remote-v0", address=address, disable_env_checker=True)) as env:
        check_env(env.unwrapped, skip_render_check=True)
        own = COUNTING.make()
        assert env.reset(seed=3)[0].tolist() == own.reset(seed=3)[0].tolist()
        for action in (1, 4, 2):
            (got, *rest), (expected, *others) = env.step(action), own.step(action)
            assert got.tolist() == expected.tolist() and rest == others


def test_every_kind_of_space_comes_back_as_it_was() -> None:
    spaces = [one for spec in [*contract.STRUCTURED.values(), contract.EVERYTHING] for one in spec.spaces]
    spaces += [gymnasium.spaces.Box(np.array([-0.0, -np.inf]), np.array([0.0, np.inf]), dtype=np.float64)]
    for space in spaces:
        again = build_space(decode(encode(describe_space(space))))
        assert again == space and repr(again) == repr(space)
    box: Any = build_space(decode(encode(describe_space(spaces[-1]))))
    assert np.signbit(box.low[0])
    with pytest.raises(ConfigError, match="Own is a space of somebody's own"):
        describe_space(type("Own", (gymnasium.spaces.Box,), {})(0, 1))


def test_every_value_comes_back_as_it_was() -> None:
    odd = np.array([0x7FF8000000000123, 0xFFF0000000000001], np.uint64).view(np.float64)  # NaNs with bits of their own
    values: dict[Any, Any] = {
        "é": (1, [2**70, -(2**64), None]),
        "numbers": [odd, np.float32(-0.0), np.zeros((0, 3)), np.array(2), np.array("ü"), np.datetime64(3, "s")],
        "objects": np.array([None, (1, [2]), {"a": b"b"}, np.zeros(2, np.int8)], object),
        3: True,
    }
    again = decode(encode(values))
    contract.assert_same(again["objects"], values["objects"])
    assert again["é"] == values["é"] and list(again) == list(values)
    for one, other in zip(again["numbers"], values["numbers"], strict=True):
        assert type(one) is type(other) and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    with pytest.raises(Unsayable, match=r"builtins\.object has no form in bytes"):
        encode({"deep": [(object(),)]})


# Two servers


def test_an_environments_number_decides_its_seeds_and_not_its_row(make: Any) -> None:
    whole = make(Serial(num_envs=N), COUNTING)
    parts = [make(Serial(num_envs=2), COUNTING), make(contract.multiprocess(num_envs=4, workers=1), CARTPOLE)]
    expected = whole.begin(3)[0]
    parts[0].renumber([4, 1])
    np.testing.assert_array_equal(parts[0].begin(3)[0], expected[[4, 1]])
    for _ in range(20):
        whole_step, part_step = whole.step(np.ones(N, np.int64)), parts[0].step(np.ones(2, np.int64))
        np.testing.assert_array_equal(part_step[0], whole_step[0][[4, 1]])
    whole = make(Serial(num_envs=8), CARTPOLE)
    parts[1].renumber([7, 0, 1, 5])
    np.testing.assert_array_equal(parts[1].begin(3)[0], whole.begin(3)[0][[7, 0, 1, 5]])
    with pytest.raises(VectorMisuse, match="keys seeds by rows alone"):
        make(contract.GYMNASIUM, CARTPOLE).renumber([1, 2, 3, 4, 5, 6])


def test_two_servers_equal_one(serve: Any, undisturbed: str) -> None:
    addresses = [serve(COUNTING).address, serve(COUNTING, WORKERS_OF_COUNTING).address]
    with closing(remote(*addresses).make(COUNTING)) as venv:
        assert play(venv) == undisturbed


WORKERS_OF_COUNTING = Serial(num_envs=4)


# (a), (b) What is cut


class Proxy:
    """Passes bytes on to a server, and cuts a connection once so many have gone one way."""

    def __init__(self, address: str, cut_up: int | None = None, cut_down: int | None = None) -> None:
        self._to = ("127.0.0.1", int(address.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.passed = [0, 0]
        self._cut = [cut_up, cut_down]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to)
            except OSError:
                return
            for way, (one, other) in enumerate([(client, server), (server, client)]):
                threading.Thread(target=self._pass, args=(way, one, other), daemon=True).start()

    def _pass(self, way: int, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                limit = self._cut[way]
                if limit is not None and self.passed[way] + len(data) > limit:
                    self._cut[way] = None
                    other.sendall(data[: limit - self.passed[way]])
                    break
                self.passed[way] += len(data)
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_a_connection_cut_at_any_byte_costs_no_step(serve: Any, undisturbed: str) -> None:
    server = serve(COUNTING, Serial(num_envs=16 * N), max_sessions=64, lease_s=600.0)
    with closing(Proxy(server.address)) as whole, closing(remote(whole.address).make(COUNTING)) as venv:
        before = list(whole.passed)
        assert play(venv) == undisturbed
        ways = [range(start, end, (end - start) // 3) for start, end in zip(before, whole.passed, strict=True)]
    for way, places in enumerate(ways):
        for at in places:
            proxy = Proxy(server.address, **{("cut_up", "cut_down")[way]: at})
            with closing(proxy), closing(remote(proxy.address).make(COUNTING)) as venv:
                COUNTED.clear()
                assert play(venv) == undisturbed
                assert len(COUNTED) == N * STEPS
                assert venv.restarts == 0


@pytest.mark.parametrize("backend", [Serial(num_envs=2 * N), None], ids=["serial", "workers"])
def test_a_server_killed_between_any_two_messages_costs_no_number(serve: Any, backend: Any) -> None:
    spec = COUNTING if backend else CARTPOLE
    with closing(Serial(num_envs=N).make(spec)) as here:
        expected = play(here)
    servers = [serve(spec, backend or WORKERS)]
    places = [(t, t % 4) for t in (range(STEPS) if backend else (3, 8))]

    def kill(t: int, k: int) -> None:
        if (t, k) in places:
            servers[-1].close()
            servers.append(serve(spec, backend or WORKERS, address=servers[0].address))

    with closing(remote(servers[0].address).make(spec)) as venv:
        assert play(venv, kill) == expected
        assert len(places) / 2 < venv.restarts <= len(places)  # two may fall between a client's looks


def test_resets_and_choices_are_replayed_as_they_were(serve: Any) -> None:
    servers = [serve(COUNTING)]

    def drive(venv: Any, kill: Callable[[], None]) -> list[Any]:
        rows, mask = np.array([4, 1, 2]), np.array([0, 1, 0, 1, 0, 1], np.bool_)
        told = [venv.reset(seed=list(range(N)))[0]]
        for t in range(6):
            venv.send(rows % 5, rows)
            told.append(venv.recv(rows)[:4])
            kill()
            seeds = [None if t % 2 else 10 * t + i for i in range(N)]
            told.append(venv.reset(seed=seeds, options={"reset_mask": mask})[0])
            told.append(venv.step(np.full(N, t % 5))[:4])
            kill()
        return told

    def kill() -> None:
        servers[-1].close()
        servers.append(serve(COUNTING, address=servers[0].address))

    with closing(Serial(num_envs=N).make(COUNTING, AutoresetMode.DISABLED)) as here:
        expected = drive(here, lambda: None)
    with closing(remote(servers[0].address).make(COUNTING, AutoresetMode.DISABLED)) as venv:
        contract.assert_same(drive(venv, kill), expected)
        assert venv.restarts == 11  # nobody asked after the last one


def test_another_server_goes_on_where_one_is_lost(serve: Any, undisturbed: str) -> None:
    one, other = serve(COUNTING), serve(COUNTING)
    with closing(remote(one.address, other.address).make(COUNTING)) as venv:
        assert play(venv, lambda t, k: one.close() if (t, k) == (6, 2) else None) == undisturbed
        assert venv.restarts == 1


def test_a_lost_answer_to_open_leaves_one_session(serve: Any) -> None:
    server = serve(COUNTING)
    place = make_place(server.address, None, {}, 1.0)
    request = {"nonce": b"n" * 16, "environment": "Counting-v0", "num_envs": 4, "autoreset": "SAME_STEP"}
    one, other = (place.call(server.address, "Open", request, 10.0) for _ in range(2))
    assert one == other
    assert place.call(server.address, "Stats", {}, 10.0)["rows"] == 4


# A run


PPO = ["algo=ppo", "vec.num_envs=6", "algo.num_steps=16", "algo.minibatch_size=32", "algo.epochs=1", "algo.groups=2"]
PPO += ["budget.iterations=3", "compute=serial", "algo.eval_every=2", "algo.eval_episodes=2", "algo.eval_max_steps=40"]


def test_a_run_has_the_same_bytes_here_there_and_with_its_server_killed(
    serve: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    token = tmp_path / "token"
    servers = [serve(token_file=str(token)), serve()]
    received, recv = [0], RemoteVectorEnv.recv

    def recv_or_kill(venv: RemoteVectorEnv, *arguments: Any) -> Any:
        received[0] += 1
        if received[0] == 50:
            servers[1].close()
            servers.append(serve(address=servers[1].address))
        return recv(venv, *arguments)

    def metrics_of(name: str, *arguments: str) -> str:
        assert call_main(*PPO, *arguments, f"run.dir={tmp_path / name}") == 0
        return sha256((tmp_path / name / "metrics.jsonl").read_bytes()).hexdigest()

    expected = metrics_of("serial", "env=cartpole", "vec=serial")
    given = [f"vec.address={servers[0].address}", f"vec.token_file={token}"]
    assert metrics_of("remote", "env=remote", "vec=remote", *given) == expected
    secret = token.read_bytes().strip()
    assert not any(secret in path.read_bytes() for path in (tmp_path / "remote").rglob("*") if path.is_file())
    monkeypatch.setattr(RemoteVectorEnv, "recv", recv_or_kill)
    assert metrics_of("killed", "env=cartpole", "vec=remote", f"vec.address={servers[1].address}") == expected
    assert received[0] > 50 and len(servers) == 3
    servers.append(serve())
    both = f"vec.address=[{servers[3].address},{servers[2].address}]"
    assert metrics_of("two", "env=cartpole", "vec=remote", both) == expected


def test_es_at_a_server_has_the_same_bytes(serve: Any, tmp_path: Path) -> None:
    es = ["algo=es", "env=cartpole", "vec.num_envs=6", "algo.population=8", "algo.pairs_per_task=2", "compute=serial"]
    es += ["budget.iterations=2", "algo.eval_episodes=2", "algo.eval_max_steps=40", "algo.episode_cap=60"]
    for name, vec in {"here": ["vec=serial"], "there": ["vec=remote", f"vec.address={serve().address}"]}.items():
        assert call_main(*es, *vec, f"run.dir={tmp_path / name}") == 0
    here, there = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("here", "there"))
    assert here == there


# (c) Who says nothing


def test_a_client_silent_beyond_its_lease_comes_back(serve: Any, undisturbed: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(place, "_beat", lambda *arguments: None)
    server = serve(COUNTING, lease_s=0.3)

    def be_silent(t: int, k: int) -> None:
        if (t, k) == (5, 1):
            wait_until(lambda: not server._sessions)

    with closing(remote(server.address).make(COUNTING)) as venv:
        assert play(venv, be_silent) == undisturbed
        assert venv.restarts == 1
    assert server._rows == 0


def test_a_client_that_lives_keeps_its_session_without_a_step(serve: Any) -> None:
    server = serve(COUNTING, lease_s=0.4)
    with closing(remote(server.address).make(COUNTING)) as venv:
        venv.begin(1)
        [session] = server._sessions.values()
        first = session._stream.seen
        wait_until(lambda: session._stream.seen > first + 1.0)
        venv.step(np.zeros(N, np.int64))
        assert venv.restarts == 0


def start_process(address: str = "127.0.0.1:0", vec: str = "serial") -> tuple["subprocess.Popen[str]", str]:
    """Serve CartPole in a process of its own; returns it and its address."""
    arguments = ["env=cartpole", f"vec={vec}", "vec.num_envs=8", f"serve.address={address}"]
    command = [sys.executable, "-m", "paddock.serve", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=contract.ROOT)
    assert process.stdout is not None
    return process, process.stdout.readline().split(" at ")[1].partition(",")[0]


@pytest.mark.nightly
@pytest.mark.real_start
def test_a_server_that_is_stopped_is_noticed() -> None:
    server, address = start_process()
    try:
        with closing(remote(address, wait_s=0.5).make(CARTPOLE)) as venv:
            venv.begin(1)
            os.kill(server.pid, signal.SIGSTOP)
            wait_until(lambda: psutil.Process(server.pid).status() == psutil.STATUS_STOPPED)
            begun = time.monotonic()
            venv.send(np.zeros(N, np.int64))
            assert isinstance(venv, RemoteVectorEnv) and venv._links[0]._wire is not None
            with pytest.raises(place.Lost, match="cannot be reached"):
                venv._links[0]._wire.receive()
            print(f"noticed after {time.monotonic() - begun:.1f} s")
            assert time.monotonic() - begun < guard.PING_S + guard.ANSWER_S + 2
            with pytest.raises(EnvError, match="cannot be reached"):
                venv.recv()
    finally:
        server.kill()
        server.wait()


@pytest.mark.nightly
@pytest.mark.real_start
def test_a_process_killed_and_one_told_to_end_cost_no_number() -> None:
    with closing(Serial(num_envs=N).make(CARTPOLE)) as here:
        expected = play(here)
    process, address = start_process(vec="multiprocess")
    codes = []

    def end(t: int, k: int) -> None:
        nonlocal process
        if (t, k) in ((2, 1), (5, 2)):
            children = psutil.Process(process.pid).children()
            process.send_signal(signal.SIGKILL if t == 2 else signal.SIGTERM)
            codes.append(process.wait(30))
            wait_until(lambda: not any(child.is_running() for child in children))
            process, _ = start_process(address, "multiprocess")

    try:
        with closing(remote(address, wait_s=60.0).make(CARTPOLE)) as venv:
            assert play(venv, end) == expected
            assert venv.restarts == 2 and codes == [-signal.SIGKILL, 0]
    finally:
        process.kill()
        process.wait()


# (d) Numbers of orders, and whose session it is


class Raw:
    """A client that says whatever it is told to."""

    def __init__(self, server: EnvironmentServer, num_envs: int = 2) -> None:
        self.place = make_place(server.address, None, {}, 1.0)
        request = {"nonce": os.urandom(16), "environment": "Counting-v0", "num_envs": num_envs}
        opened = self.place.call(server.address, "Open", request | {"autoreset": "SAME_STEP"}, 10.0)
        self.session, self.secret = opened["session"], opened["secret"]
        self.address = server.address

    def attach(self, secret: bytes | None = None, received: int = 0) -> place.Wire:
        wire = place.Wire(self.place, self.address, 60.0)
        wire.send(join(Kind.ATTACH, [self.session, secret or self.secret, received]))
        return wire


def begin(seq: int, key: int = 1) -> bytes:
    return join(Kind.BEGIN, [seq, 0, key, np.zeros(2, np.int64), np.arange(2)])


def turn(seq: int, action: int = 1) -> bytes:
    return join(Kind.TURN, [seq, 0, [0, 2]], [np.full(2, action, np.int64)])


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ([begin(1), turn(2), turn(2, action=3)], "order 2 came again, and is another one"),
        ([begin(1), turn(3)], "order 3 came where 2 is due"),
        ([begin(2**64 - 1)], f"order {2**64 - 1} came where 1 is due"),
        ([begin(-1, key=2)], None),
        ([join(Kind.TURN, [1, 0, [0, 3]], [np.zeros(3, np.int64)])], "rows are not some of the 2"),
        ([join(Kind.TURN, [1, 0, [0, 2]], [np.zeros(9, np.int64)])], "a body of 72 bytes where 16"),
        ([join(Kind.TURN, [1, 0, np.array([0, 0], "<u4").tobytes()], [np.zeros(2, np.int64)])], "rows are not"),
        ([join(Kind.STATE, [1, 0])], "where nothing was replayed"),
        ([join(Kind.OUTCOME, [1, 0])], "is no order"),
        ([join(Kind.BEGIN, [1, 0, "x", np.zeros(2, np.int64), np.arange(2)])], "a key is no whole number"),
    ],
)
def test_an_order_out_of_turn_ends_the_session_before_anything_steps(
    serve: Any, frames: Any, named: str | None
) -> None:
    server = serve(COUNTING)
    wire = Raw(server).attach()
    assert wire.receive().kind is Kind.ATTACHED
    COUNTED.clear()
    for frame in frames[:-1]:
        wire.send(frame)
        assert wire.receive().kind is Kind.OUTCOME
    wire.send(frames[-1])
    if named is None:  # an old number, of nobody: nothing comes of it
        wire.send(begin(1))
        assert wire.receive().header[0] == 1
        wire.close()
        return
    said = wire.receive()
    assert said.kind is Kind.FAILED and named in said.header[2]
    assert len(COUNTED) == 2 * frames[:-1].count(turn(2))
    with pytest.raises(place.Lost):
        wire.receive()
    wire.close()


def test_an_order_that_comes_again_is_answered_again_and_not_done(serve: Any) -> None:
    raw = Raw(serve(COUNTING))
    wire = raw.attach()
    COUNTED.clear()
    answers = [wire.receive()]
    for frame in (begin(1), turn(2), turn(2), turn(2), begin(1)):
        wire.send(frame)
        answers.append(wire.receive())
    assert [answer.header[0] for answer in answers[1:]] == [1, 2, 2, 2, 1] and len(COUNTED) == 2
    assert len({answer.sums for answer in answers[2:5]}) == 1
    other = raw.attach()  # takes the session over
    assert [other.receive().header[0] for _ in range(3)] == [2, 1, 2]
    with pytest.raises(place.Lost):
        wire.receive()
    thief = raw.attach(secret=b"x" * 16)
    said = thief.receive()
    assert said.kind is Kind.FAILED and "knows no such session" in said.header[2]
    other.send(turn(3))
    assert other.receive().header[0] == 3
    for one in (wire, other, thief):
        one.close()


# (e), (f) Forged and mutated frames


def test_a_flipped_bit_in_any_byte_is_seen(serve: Any) -> None:
    frame = turn(2)
    for at in range(len(frame)):
        for bit in (0, 7):
            bad = bytearray(frame)
            bad[at] ^= 1 << bit
            with pytest.raises(Garbled):
                split(bytes(bad))
    wire = Raw(serve(COUNTING)).attach()
    wire.receive()
    wire.send(bytes(bad))
    with pytest.raises(place.Lost, match="DATA_LOSS"):
        wire.receive()
    wire.close()


def resealed(frame: bytes) -> bytes:
    """The frame with checksums that are right."""
    head = FIXED.unpack_from(frame)[4]
    at = START + head + -head % 8
    sums = SUMS.pack(zlib.crc32(frame[START:at], zlib.crc32(frame[: FIXED.size])), zlib.crc32(frame[at:]))
    return frame[: FIXED.size] + sums + frame[START:]


def mutate(frame: bytes, chance: random.Random) -> bytes:
    bad = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(bad))
        bad[at] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
    if chance.random() < 0.2:
        del bad[chance.randrange(START, len(bad)) :]
    return resealed(bytes(bad)) if len(bad) > START else bytes(bad)


@pytest.mark.parametrize("count", [500, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_mutated_frames_end_a_session_at_the_most(count: int) -> None:
    chance, ends, fine = random.Random(1), 0, 0

    def session() -> Session:
        venv = Serial(num_envs=2).make(COUNTING, copy=False, packed=True)
        from envs.vector.storage import Layouts

        return Session(venv, COUNTING, Layouts.of(COUNTING, *COUNTING.raw_spaces), True, b"")

    at, seq = session(), 0
    for _ in range(count):
        seq += 1
        good = chance.choice([begin, turn])(seq) if seq > 1 else begin(1)
        data = mutate(good, chance) if seq > 1 else good
        try:
            frame = split(data)
            list(at._take(frame))
            while at._turns:
                list(at._finish(at._pop(0)))
            seq, fine = at._accepted, fine + 1
        except Garbled:
            at.venv.close()
            at, seq, ends = session(), 0, ends + 1
    assert ends > count // 10 and fine > count // 10


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_no_bytes_decode_to_anything_but_plain_values(count: int) -> None:
    chance = random.Random(2)
    whole = encode({"a": (1, [np.zeros(3), np.float32(1)]), "b": np.array([None, (2,)], object), "c": 2**80})
    for _ in range(count):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(Garbled, Unsayable):
            encode(decode(bytes(data[: chance.randint(1, len(data))])))


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 10_000 + b"\xc0",  # lists in lists
        b"\xdd\xff\xff\xff\xff",  # a list of 2^32 - 1
        b"\xc6\xff\xff\xff\xff",
        encode([["<f8", [2**31, 2**31], b""]])[:-1],
        b"\xc7\x05\x07hello",  # an extension of nobody's
    ],
)
def test_a_message_that_claims_too_much_is_refused(data: bytes) -> None:
    with pytest.raises(Garbled):
        decode(data)


# (g), (j) Room


def test_there_is_room_for_so_many_and_health_answers_all_the_same(serve: Any) -> None:
    server = serve(COUNTING, max_sessions=3, max_envs_per_session=4)
    raws = [Raw(server) for _ in range(3)]
    wires = [raw.attach() for raw in [*raws, *raws, *raws]]
    for _ in range(20):
        with pytest.raises(place.Lost, match=r"EXHAUSTED: 6 of 12 environments and 3 of 3 sessions are in use"):
            Raw(server)
    with pytest.raises(ConfigError, match=r"vec.num_envs=6 is more than the 4 environments that a session may have"):
        remote(server.address).make(COUNTING)
    with guard.connect(server.address, None, {}) as channel:
        assert channel.unary_unary(f"/{HEALTH}/Check")(b"", timeout=5) == SERVING
        assert next(channel.unary_stream(f"/{HEALTH}/Watch")(b"", timeout=5)) == SERVING
    for wire in wires:
        wire.close()
    with pytest.raises(ConfigError, match=r"serve.address=.* cannot be listened at: another process is there"):
        serve(COUNTING, address=server.address)


def test_a_world_of_several_agents_is_not_served_yet(serve: Any) -> None:
    relay = env_spec("envs.sanity.relay:Relay")
    with pytest.raises(ConfigError, match="Relay is a world of 3 agents, and this takes environments of one") as caught:
        serve(relay)
    assert "\n" not in str(caught.value)


def test_the_doctor_and_status_say_what_a_server_is_at(serve: Any) -> None:
    server = serve(COUNTING)
    with closing(remote(server.address).make(COUNTING)) as venv:
        venv.begin(1)
        venv.step(np.zeros(N, np.int64))
        lines = list(health.describe_server(health.read_status([server.address])))
        assert lines[0].startswith("Counting-v0 on vec=serial") and lines[1] == "6 of 12 environments in 1 sessions"
        assert re.match(r" +6 environments +6 steps  1 streams", lines[2])
        [(_, finding)] = health.check_server(remote(server.address, num_envs=8))
        assert finding.level == "warn" and "6 of 12 environments free" in finding.text
        server._offer["versions"] = {"numpy": "1.0"}
        [(_, finding)] = health.check_server(remote(server.address))
        assert finding.level == "warn" and f"numpy 1.0 there and {np.__version__} here" in finding.text
    server.close()
    [(_, finding)] = health.check_server(remote(server.address))
    assert finding.level == "FAIL" and "cannot be reached" in finding.text
    with pytest.raises(ConfigError, match=r"start it: python -m paddock.serve") as caught:
        health.read_status([server.address])
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="tokenfile is not a key of status; did you mean 'token_file'"):
        health.read_status([server.address, "tokenfile=x"])
    with pytest.raises(ConfigError, match=r"serve\.adress is not a key of .*; did you mean 'serve\.address'"):
        serving.start(["env=cartpole", "vec=serial", "serve.adress=127.0.0.1:0"])


# (h) Who is let in


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a certificate of it for a server, and one for a client; and another authority."""
    folder = tmp_path_factory.mktemp("keys")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    try:
        for name in ("ca", "other"):
            openssl("req", "-x509", *curve, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    except FileNotFoundError:
        pytest.skip("there is no openssl")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
    for name in ("server", "client"):
        openssl("req", "-new", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"]
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    return folder


def tls_of(keys: Path, name: str, ca: str = "ca") -> dict[str, str]:
    return {"ca": str(keys / f"{ca}.pem"), "cert": str(keys / f"{name}.pem"), "key": str(keys / f"{name}.key")}


def test_only_who_has_the_token_is_let_in(serve: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("PADDOCK_TOKEN", raising=False)
    token = tmp_path / "token"
    server = serve(COUNTING, token_file=str(token))
    assert token.stat().st_mode & 0o777 == 0o600 and len(token.read_text().strip()) >= 32
    with closing(remote(server.address, token_file=str(token)).make(COUNTING)) as venv:
        venv.begin(1)
    other = tmp_path / "other"
    guard.make_token(str(other))
    for given in (None, str(other)):
        with pytest.raises(ConfigError, match="the token is not the server's") as caught:
            remote(server.address, token_file=given).make(COUNTING)
        assert other.read_text().strip() not in str(caught.value)
    token.chmod(0o644)
    with pytest.raises(ConfigError, match="can be read by others"):
        remote(server.address, token_file=str(token)).make(COUNTING)
    with pytest.raises(ConfigError, match="a token is not sent without encryption"):
        make_place("10.1.2.3:3003", str(other), {}, 0.0).connect("10.1.2.3:3003")
    other.write_text("short")
    with pytest.raises(ConfigError, match="at least 32 printable"):
        remote(server.address, token_file=str(other)).make(COUNTING)


def test_a_server_for_other_machines_needs_a_token_and_encryption(serve: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("PADDOCK_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"open to other machines; name serve.token_file and serve.tls.cert and .key"):
        serve(COUNTING, address="0.0.0.0:0")
    assert serve(COUNTING, address="0.0.0.0:0", insecure=True).address


def test_certificates_are_asked_for_and_checked(serve: Any, keys: Path) -> None:
    server = serve(COUNTING, tls=tls_of(keys, "server"))
    with closing(remote(server.address, tls=tls_of(keys, "client")).make(COUNTING)) as venv:
        assert venv.begin(1)[0].shape == (N, 3)
    for tls in ({"ca": str(keys / "ca.pem")}, tls_of(keys, "client", ca="other"), {}):
        with pytest.raises(EnvError, match="cannot be reached"):
            remote(server.address, tls=tls, wait_s=0.0).make(COUNTING)
    with pytest.raises(ConfigError, match="cert and key go together"):
        remote(server.address, tls={"cert": str(keys / "ca.pem")}).make(COUNTING)


# (i) What is served


def test_what_is_asked_for_must_be_what_is_served(serve: Any, monkeypatch: Any) -> None:
    server = serve(COUNTING)
    with pytest.raises(ConfigError, match=r"env.id=CartPole-v1 here, and Counting-v0 at vec.address=.*env=remote"):
        remote(server.address).make(CARTPOLE)
    with pytest.raises(ConfigError, match=r"env.fresh=True here, and False at"):
        remote(server.address).make(env_spec("Counting-v0", fresh=True))
    other = serve(CARTPOLE)
    with pytest.raises(ConfigError, match=r"serves CartPole-v1 otherwise than"):
        remote(server.address, other.address).make(COUNTING)
    monkeypatch.setattr(place, "PROTOCOL", 2)
    with pytest.raises(ConfigError, match="the client speaks protocol 2, and this server 1; install the same version"):
        remote(server.address).make(COUNTING)


def test_another_environment_at_the_same_port_is_refused(serve: Any) -> None:
    server = serve(COUNTING)
    with closing(remote(server.address).make(COUNTING)) as venv:
        venv.begin(1)
        server.close()
        serve(CARTPOLE, address=server.address)
        with pytest.raises(ConfigError, match="serves CartPole-v1 otherwise than") as caught:
            venv.step(np.zeros(N, np.int64))
        assert "\n" not in str(caught.value)


# (k) What environments do


def test_an_environment_that_raises_is_named_and_the_server_goes_on(serve: Any) -> None:
    spec = contract.faulty("raise")
    server = serve(spec)
    with closing(remote(server.address).make(spec)) as venv:
        venv.reset(seed=100)
        venv.step(np.zeros(N, int))
        with pytest.raises(EnvError, match=contract.FAULTS["raise"]) as caught:
            venv.step(np.zeros(N, int))
        assert contract.TRACES["raise"] in str(caught.value)
        with pytest.raises(VectorMisuse, match="call reset first"):
            venv.send(np.zeros(N, int))
        venv.reset(seed=0)
        venv.step(np.zeros(N, int))


def test_an_environment_that_crashes_kills_a_worker_and_not_the_server(serve: Any) -> None:
    spec = contract.faulty("segfault")
    server = serve(spec, WORKERS)
    with closing(remote(server.address).make(spec)) as venv, closing(remote(server.address).make(spec)) as other:
        venv.reset(seed=100), other.reset(seed=0)
        venv.step(np.zeros(N, int))
        with pytest.raises(EnvError, match=contract.FAULTS["segfault"]):
            venv.step(np.zeros(N, int))
        other.step(np.zeros(N, int))


def test_an_environment_that_does_not_come_back_is_named(serve: Any) -> None:
    spec = env_spec("Forgetful-v0")
    servers = [serve(spec)]
    with closing(remote(servers[0].address).make(spec)) as venv:
        venv.begin(1)
        venv.step(np.zeros(N, np.int64))
        servers[0].close()
        serve(spec, address=servers[0].address)
        with pytest.raises(EnvError, match=r"environment 0 \(Forgetful-v0\) did not come back .*env.fresh=true"):
            venv.step(np.zeros(N, np.int64))


def test_an_info_that_cannot_be_said_is_named(serve: Any) -> None:
    spec = env_spec("Secretive-v0")
    with closing(remote(serve(spec).address).make(spec)) as venv:
        venv.begin(1)
        with pytest.raises(
            EnvError, match=r"info '(final_info\.)?myself' of Secretive-v0 cannot be said .*serve.infos=none"
        ):
            venv.step(np.zeros(N, np.int64))
    with closing(remote(serve(spec, infos="none").address).make(spec)) as venv:
        venv.begin(1)
        assert "fine" not in venv.step(np.zeros(N, np.int64))[4]


def test_without_replay_a_lost_server_ends_the_run_in_one_line(serve: Any) -> None:
    server = serve(COUNTING)
    with closing(remote(server.address, lost="fail").make(COUNTING)) as venv:
        venv.begin(1)
        server.close()
        serve(COUNTING, address=server.address)
        with pytest.raises(EnvError, match=r"vec.lost=fail; go on by the same command") as caught:
            venv.step(np.zeros(N, np.int64))
        assert "\n" not in str(caught.value)


def test_a_server_that_stays_away_ends_the_run_in_one_line(serve: Any) -> None:
    server = serve(COUNTING)
    with closing(remote(server.address, wait_s=0.3).make(COUNTING)) as venv:
        venv.begin(1)
        server.close()
        with pytest.raises(EnvError, match=r"cannot be reached .*for 0.3 s\); start its server again") as caught:
            venv.step(np.zeros(N, np.int64))
        assert "\n" not in str(caught.value)


# (l) Told to end


def test_a_server_told_to_end_finishes_and_sends_its_clients_elsewhere(serve: Any, undisturbed: str) -> None:
    one, other = serve(COUNTING), serve(COUNTING)
    drained = []

    def drain(t: int, k: int) -> None:
        if (t, k) == (4, 2):
            drained.append(one.drain())

    with closing(remote(one.address, other.address).make(COUNTING)) as venv:
        assert play(venv, drain) == undisturbed
        assert drained == [True] and venv.restarts == 1


# (o) Around it


def test_a_fork_of_a_client_is_refused(serve: Any) -> None:
    with closing(remote(serve(COUNTING).address).make(COUNTING)) as venv:
        venv.begin(1)
        assert isinstance(venv, RemoteVectorEnv)
        venv._links[0]._pid += 1  # as a fork sees it
        with pytest.raises(VectorMisuse, match="before this process was forked"):
            venv.step(np.zeros(N, np.int64))
        venv._links[0]._pid -= 1


def test_addresses_of_every_kind(serve: Any, tmp_path: Path, monkeypatch: Any, undisturbed: str) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    addresses = [f"unix:{tmp_path}/env", "127.0.0.1:0"]
    if socket.has_ipv6 and Path("/proc/net/if_inet6").exists() and Path("/proc/net/if_inet6").read_text():
        addresses.append("[::1]:0")
    for address in addresses:
        with closing(remote(serve(COUNTING, address=address).address).make(COUNTING)) as venv:
            assert play(venv) == undisturbed
    for wrong in ("here", "1.2.3.4:", "a:b", "::1:3003", "unix:"):
        with pytest.raises(ConfigError, match="must be HOST:PORT"):
            remote(wrong).make(COUNTING)


def test_a_client_follows_the_file_that_servers_write(serve: Any, tmp_path: Path, undisturbed: str) -> None:
    path = str(tmp_path / "address")
    servers = [serve(COUNTING, address_file=path)]

    def move(t: int, k: int) -> None:
        if (t, k) == (4, 1):
            servers[0].close()
            os.unlink(path)
            threading.Timer(0.2, lambda: servers.append(serve(COUNTING, address_file=path))).start()

    with closing(remote(f"file:{path}").make(COUNTING)) as venv:
        assert play(venv, move) == undisturbed
        assert venv.restarts == 1 and servers[0].address != servers[1].address
    with pytest.raises(EnvError, match=r"vec.address=file:/nowhere names no server yet"):
        remote("file:/nowhere", wait_s=0.0).make(COUNTING)


def test_nothing_is_left_of_a_server_and_its_clients(serve: Any) -> None:
    before = {thread.name for thread in threading.enumerate()}
    server = serve(CARTPOLE, WORKERS)
    venv = remote(server.address).make(CARTPOLE)
    venv.begin(1)
    [session] = server._sessions.values()
    workers = contract.workers_of(session.venv)
    venv.step(np.zeros(N, np.int64))
    venv.close()
    assert not any(worker.is_running() for worker in workers) and server._rows == 0
    server.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2])), 1.0)
    ours = {"frames", "beat", "leases", "session_0", "session_1"}
    wait_until(lambda: not ({thread.name for thread in threading.enumerate()} - before) & ours)


def test_only_who_chooses_a_server_needs_grpc() -> None:
    look = "import sys, envs.vector, paddock.launch, paddock.serve, paddock.doctor; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], cwd=contract.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_frames_are_what_they_were() -> None:
    frame = split(join(Kind.TURN, [1, "é"], [np.arange(3, dtype=np.int16), np.zeros((0, 2)), np.ones(1)], flags=1))
    assert isinstance(frame, Frame) and (frame.kind, frame.flags, frame.header) == (Kind.TURN, 1, [1, "é"])
    assert bytes(frame.body) == np.arange(3, dtype=np.int16).tobytes() + bytes(2) + np.ones(1).tobytes()
