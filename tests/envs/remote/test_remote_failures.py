"""Environments that raise, crash, hang, leak history or say what has no form in bytes, at a server."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import env_spec, wait_until
from remote_servers import (
    COUNTING,
    WORKERS,
    Counting,
    N,
    Raw,
    begin,
    remote,
    serve_fixture,  # noqa: F401
    set_lease,
    turn,
)
from vector_cases import FAULTS, TRACES, faulty

from paddock.envs.vector import EnvError, VectorMisuse

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.frames import Kind  # noqa: E402
from paddock.envs.remote.server import sessions, steps  # noqa: E402


def test_an_environment_that_raises_is_named_and_the_server_goes_on(serve: Any) -> None:
    spec = faulty("raise")
    server = serve(spec)
    with closing(remote(server.address).make(spec)) as venv:
        venv.reset(seed=100)
        venv.step(np.zeros(N, int))
        with pytest.raises(EnvError, match=FAULTS["raise"]) as caught:
            venv.step(np.zeros(N, int))
        assert TRACES["raise"] in str(caught.value)
        with pytest.raises(VectorMisuse, match="call reset first"):
            venv.send(np.zeros(N, int))
        venv.reset(seed=0)
        venv.step(np.zeros(N, int))


def test_an_environment_that_crashes_kills_a_worker_and_not_the_server(serve: Any) -> None:
    spec = faulty("segfault")
    server = serve(spec, WORKERS)
    with closing(remote(server.address).make(spec)) as venv, closing(remote(server.address).make(spec)) as other:
        venv.reset(seed=100), other.reset(seed=0)
        venv.step(np.zeros(N, int))
        with pytest.raises(EnvError, match=FAULTS["segfault"]):
            venv.step(np.zeros(N, int))
        other.step(np.zeros(N, int))


def test_an_environment_that_does_not_come_back_is_named(serve: Any) -> None:
    spec = env_spec("ClearLastAction-v0")
    servers = [serve(spec)]
    with closing(remote(servers[0].address).make(spec)) as venv:
        venv.begin(1)
        venv.step(np.zeros(N, np.int64))
        servers[0].close()
        serve(spec, address=servers[0].address)
        with pytest.raises(EnvError, match=r"environment 0 \(ClearLastAction-v0\) did not return .*env.fresh=true"):
            venv.step(np.zeros(N, np.int64))


def test_an_info_that_cannot_be_said_is_named(serve: Any) -> None:
    spec = env_spec("Secretive-v0")
    with closing(remote(serve(spec).address).make(spec)) as venv:
        venv.begin(1)
        with pytest.raises(
            EnvError, match=r"info '(final_info\.)?myself' of Secretive-v0 cannot be sent .*serve.infos=none"
        ):
            venv.step(np.zeros(N, np.int64))
    with closing(remote(serve(spec, infos="none").address).make(spec)) as venv:
        venv.begin(1)
        assert "fine" not in venv.step(np.zeros(N, np.int64))[4]


@pytest.mark.parametrize("where", ["receive", "execute"])
def test_an_unexpected_error_ends_its_session_alone(serve: Any, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def fail(*given: Any) -> Any:
        monkeypatch.undo()
        raise TypeError("nobody\nforesaw it")

    server = serve(COUNTING)
    with closing(remote(server.address).make(COUNTING)) as other:
        other.begin(1)
        raw = Raw(server)
        channel = raw.attach()
        channel.send(begin(1))
        assert [channel.receive().kind for _ in range(2)] == [Kind.ATTACHED, Kind.OUTCOME]
        monkeypatch.setattr(steps.SessionEnvs, where, fail)
        channel.send(begin(2) if where == "execute" else turn(2))
        wait_until(lambda: len(server.sessions.list()) == 1, 20)
        told = channel.receive()
        assert told.kind is Kind.FAILED and told.header[0] == 0
        assert told.header[2] == "the session was closed (TypeError: nobody foresaw it)"
        channel.close()
        channel = raw.attach()
        assert channel.receive().header[2] == "this server has no such session"
        channel.close()
        other.step(np.zeros(N, np.int64))
        assert other.restarts == 0


class Hanging(Counting):
    """Steps once it is let."""

    begun, let = threading.Event(), threading.Event()

    def step(self, action: Any) -> Any:
        Hanging.begun.set()
        assert Hanging.let.wait(120)
        return super().step(action)


gymnasium.register("Hanging-v0", f"{__name__}:Hanging", disable_env_checker=True)
HANGING = env_spec("Hanging-v0")


@pytest.fixture(name="hang")
def hang_fixture() -> Iterator[Any]:
    """Have an environment of a server be at work until the end of the test."""

    def hang(server: Any) -> None:
        channel = Raw(server, environment="Hanging-v0").attach()
        channel.send(begin(1))
        channel.send(turn(2))
        assert Hanging.begun.wait(20)
        channel.close()

    Hanging.begun.clear()
    Hanging.let.clear()
    yield hang
    Hanging.let.set()


def test_sessions_end_with_their_clients_beside_a_hung_one(serve: Any, hang: Any) -> None:
    server = serve(HANGING)
    hang(server)
    Raw(server, environment="Hanging-v0")
    set_lease(server, 0.2)
    wait_until(lambda: server.sessions.rows == 2, 20)  # of the one that hangs
    Hanging.let.set()
    wait_until(lambda: server.sessions.rows == 0, 20)


def test_a_server_told_to_end_leaves_an_environment_that_hangs(
    serve: Any, hang: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LEAVE_S", 0.1)
    server = serve(HANGING, drain_s=0.1)
    hang(server)
    ended: list[bool] = []
    (own,) = server.sessions.list()
    threading.Thread(target=lambda: ended.append(server.drain()), daemon=True).start()
    wait_until(lambda: ended == [False], 30)
    assert not own.venv.closed
    Hanging.let.set()
    wait_until(lambda: own.venv.closed, 20)
