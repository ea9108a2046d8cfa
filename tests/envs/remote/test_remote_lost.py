"""Connections cut, servers killed, stopped or told to end, clients silent: each step once, and the same numbers."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from conftest import wait_until
from gymnasium.vector import AutoresetMode
from remote_servers import (  # noqa: F401
    CARTPOLE,
    COUNTED,
    COUNTING,
    STEPS,
    WORKERS,
    Counting,
    N,
    play,
    remote,
    serve_fixture,
    set_lease,
    start_process,
    undisturbed_fixture,
)
from vector_cases import assert_same

from paddock.envs.vector import EnvError, Serial

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote import security  # noqa: E402
from paddock.envs.remote.client import endpoint  # noqa: E402
from paddock.envs.remote.client.vector import RemoteVectorEnv  # noqa: E402
from paddock.envs.remote.server.steps import SessionEnvs  # noqa: E402

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
    places = [(t, t % 4) for t in (range(0, STEPS, 2) if backend else (3, 8))]

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
            over = np.zeros(N, np.bool_)
            over[rows] = told[-1][2] | told[-1][3]
            kill()
            seeds = [None if t % 2 else 10 * t + i for i in range(N)]
            told.append(venv.reset(seed=seeds, options={"reset_mask": mask | over})[0])
            told.append(venv.step(np.full(N, t % 5))[:4])
            over = told[-1][2] | told[-1][3]
            if over.any():
                told.append(venv.reset(options={"reset_mask": over})[0])
            kill()
        return told

    def kill() -> None:
        servers[-1].close()
        servers.append(serve(COUNTING, address=servers[0].address))

    with closing(Serial(num_envs=N).make(COUNTING, autoreset=AutoresetMode.DISABLED)) as here:
        expected = drive(here, lambda: None)
    with closing(remote(servers[0].address).make(COUNTING, autoreset=AutoresetMode.DISABLED)) as venv:
        assert_same(drive(venv, kill), expected)
        assert venv.restarts == 11  # nobody asked after the last one


def test_servers_that_are_lost_at_the_same_step_end_the_run_in_one_line(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, receive, lost = serve(COUNTING), SessionEnvs.receive, []

    def lose(self: Any, step: Any) -> bytes:
        """Lose all sessions, as an environment does that ends its server's process."""
        if not step.quiet:
            (session,) = server.sessions.list()
            lost.append(session)
            threading.Thread(target=server.sessions.end, args=(session,), daemon=True).start()
            wait_until(lambda: not server.sessions.list())
            session._stream.cut()  # before the answer is sent
        return receive(self, step)

    with closing(remote(server.address).make(COUNTING)) as venv:
        venv.begin(1)
        for _ in range(2):
            venv.step(np.zeros(N, np.int64))
        monkeypatch.setattr(SessionEnvs, "receive", lose)
        with pytest.raises(
            EnvError,
            match=r", as were 10 servers before it at the same step; .* start the server with vec=multiprocess",
        ):
            venv.step(np.zeros(N, np.int64))
        assert venv.restarts == 10 and len(lost) == 11


def test_another_server_goes_on_where_one_is_lost(serve: Any, undisturbed: str) -> None:
    one, other = serve(COUNTING), serve(COUNTING)
    with closing(remote(one.address, other.address).make(COUNTING)) as venv:
        assert play(venv, lambda t, k: one.close() if (t, k) == (6, 2) else None) == undisturbed
        assert venv.restarts == 1


# (c) Who says nothing


def test_a_client_silent_beyond_its_lease_comes_back(serve: Any, undisturbed: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(endpoint.Channel, "_beat", lambda *arguments: None)
    server = serve(COUNTING)

    def be_silent(t: int, k: int) -> None:
        if (t, k) == (5, 1):
            set_lease(server, 0.3)
            wait_until(lambda: not server.sessions._sessions)
            set_lease(server, 60.0)

    with closing(remote(server.address).make(COUNTING)) as venv:
        assert play(venv, be_silent) == undisturbed
        assert venv.restarts == 1
    wait_until(lambda: server.sessions.rows == 0)


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
            assert isinstance(venv, RemoteVectorEnv) and venv._connections[0].channel is not None
            with pytest.raises(endpoint.ConnectionLost, match="cannot be reached"):
                venv._connections[0].channel.receive()
            print(f"noticed after {time.monotonic() - begun:.1f} s")
            assert time.monotonic() - begun < security.PING_S + security.PING_TIMEOUT_S + 2
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


def test_a_server_that_stays_away_ends_the_run_in_one_line(serve: Any) -> None:
    server = serve(COUNTING)
    with closing(remote(server.address, wait_s=0.3).make(COUNTING)) as venv:
        venv.begin(1)
        server.close()
        with pytest.raises(EnvError, match=r"cannot be reached .*for 0.3 s\); restart its server") as caught:
            venv.step(np.zeros(N, np.int64))
        assert "\n" not in str(caught.value)


def test_a_client_follows_the_file_that_servers_write(serve: Any, tmp_path: Path, undisturbed: str) -> None:
    path = str(tmp_path / "address")
    servers = [serve(COUNTING, address_file=path)]
    later = threading.Timer(0.2, lambda: servers.append(serve(COUNTING, address_file=path)))

    def move(t: int, k: int) -> None:
        if (t, k) == (4, 1):
            servers[0].close()
            os.unlink(path)
            later.start()

    with closing(remote(f"file:{path}").make(COUNTING)) as venv:
        assert play(venv, move) == undisturbed
        later.join()
        assert venv.restarts == 1 and servers[0].address != servers[1].address
    with pytest.raises(EnvError, match=r"vec.address=file:/nowhere does not contain a server yet"):
        remote("file:/nowhere", wait_s=0.0).make(COUNTING)
