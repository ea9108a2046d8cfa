"""Environments that raise, crash, hang, leak history or say what has no form in bytes, at a server."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
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
from toy_worlds import Bidding
from vector_cases import FAULTS, TRACES, faulty

from paddock.envs.vector import EnvError, Serial, VectorMisuse
from paddock.envs.vector.serial import SerialVectorEnv

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.client import session  # noqa: E402
from paddock.envs.remote.frames import Kind  # noqa: E402
from paddock.envs.remote.parallel import RemoteParallelEnv  # noqa: E402
from paddock.envs.remote.server import seats, sessions, steps  # noqa: E402


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
    spec = env_spec("Forgetful-v0")
    servers = [serve(spec)]
    with closing(remote(servers[0].address).make(spec)) as venv:
        venv.begin(1)
        venv.step(np.zeros(N, np.int64))
        servers[0].close()
        serve(spec, address=servers[0].address)
        with pytest.raises(EnvError, match=r"environment 0 \(Forgetful-v0\) did not come back .*env.fresh=true"):
            venv.step(np.zeros(N, np.int64))


def test_an_environment_that_cannot_be_made_again_is_named(serve: Any) -> None:
    spec = env_spec("Exhausted-v0", fresh=True, max_episode_steps=3)
    server = serve(spec, Serial(num_envs=1))
    with closing(remote(server.address, num_envs=1).make(spec)) as venv:
        venv.begin(1)
        with pytest.raises(EnvError, match="refused by Exhausted-v0: there are no more licences"):
            for _ in range(9):
                venv.step(np.zeros(1, np.int64))


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


@pytest.mark.parametrize("where", ["send", "receive", "do"])
def test_what_nobody_foresaw_is_told_to_the_client_and_ends_its_session_alone(
    serve: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(*given: Any) -> Any:
        monkeypatch.undo()
        raise TypeError("nobody\nforesaw it")

    server = serve(COUNTING)
    with closing(remote(server.address).make(COUNTING)) as other:
        other.begin(1)
        raw = Raw(server)
        wire = raw.attach()
        wire.send(begin(1))
        assert [wire.receive().kind for _ in range(2)] == [Kind.ATTACHED, Kind.OUTCOME]
        monkeypatch.setattr(steps.SessionEnvs, where, fail)
        wire.send(begin(2) if where == "do" else turn(2))
        wait_until(lambda: len(server.sessions.list()) == 1, 20)
        told = wire.receive()
        assert told.kind is Kind.FAILED and told.header[:2] == [2, "EnvError"]
        assert told.header[2].startswith("the server failed (TypeError: nobody foresaw it), and its log says where; ")
        wire.close()
        wire = raw.attach()
        assert wire.receive().header[2] == "the session has ended, as the server failed"
        wire.close()
        other.step(np.zeros(N, np.int64))
        assert other.restarts == 0


def test_environments_that_raise_as_they_are_closed_leave_room_for_others(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(COUNTING, Serial(num_envs=2), max_sessions=1)
    raw = Raw(server)

    def fail(self: Any) -> None:
        monkeypatch.undo()
        raise OSError("nobody foresaw it")

    monkeypatch.setattr(SerialVectorEnv, "close_extras", fail)
    with pytest.raises(place.Lost, match="nobody foresaw it"):
        raw.place.call(raw.address, "Close", {"session": raw.session, "secret": raw.secret}, 10.0)
    assert server.sessions.rows == 0 and Raw(server).session != raw.session


class Talkative(Counting):
    """Says more than a message may have."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"moves": ["e4"] * 100_000}


gymnasium.register("Talkative-v0", f"{__name__}:Talkative", disable_env_checker=True)


def test_infos_that_are_too_many_are_one_line_with_what_to_do(serve: Any) -> None:
    spec = env_spec("Talkative-v0")
    with closing(remote(serve(spec).address, num_envs=1).make(spec)) as venv:
        venv.begin(1)
        with pytest.raises(
            EnvError, match=r"infos of Talkative-v0 cannot be read .* start the server with serve.infos"
        ):
            venv.step(np.zeros(1, np.int64))


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
        wire = Raw(server, environment="Hanging-v0").attach()
        wire.send(begin(1))
        wire.send(turn(2))
        assert Hanging.begun.wait(20)
        wire.close()

    Hanging.begun.clear()
    Hanging.let.clear()
    yield hang
    Hanging.let.set()


def test_sessions_end_with_their_clients_while_an_environment_of_another_hangs(serve: Any, hang: Any) -> None:
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


class HangingWorld(Bidding):
    """Steps once it is let."""

    def step(self, action: Any) -> None:
        Hanging.begun.set()
        assert Hanging.let.wait(120)
        super().step(action)


WORLD = env_spec(f"{__name__}:HangingWorld", max_episode_steps=9)


@pytest.fixture(name="hang_world")
def hang_world_fixture(hang: Any) -> Iterator[Any]:
    """Have a joint world of a server be at work until the end of the test, while one of its clients is away."""
    agents = [seat.agent for seat in WORLD.seating]
    with ThreadPoolExecutor(len(agents)) as pool, ExitStack() as stack:

        def hang_world(server: Any) -> None:
            away, *others = (
                stack.enter_context(
                    closing(RemoteParallelEnv(server.address, wait_s=0.0, world="game", agents=[agent]))
                )
                for agent in reversed(agents)
            )
            assert len(list(pool.map(lambda one: one.reset(seed=0), [away, *others]))) == len(agents)
            sessions = server.sessions.list()
            away._served.open()._connections[0].channel.close()  # type: ignore[union-attr]
            wait_until(lambda: not all(one.is_attached for one in sessions), 20)
            done = [pool.submit(one.step, dict.fromkeys(one.acting, 1)) for one in others]
            assert Hanging.begun.wait(20)
            stack.callback(lambda: [one.exception(20) for one in done])  # the server goes before its clients

        yield hang_world
        Hanging.let.set()


def test_a_server_told_to_end_leaves_a_joint_world_that_hangs(
    serve: Any, hang_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LEAVE_S", 0.1)
    server = serve(WORLD, late="noop", late_s=0.01, drain_s=0.1)
    hang_world(server)
    ended: list[bool] = []
    threading.Thread(target=lambda: ended.append(server.drain()), daemon=True).start()
    wait_until(lambda: ended == [False], 30)


def test_a_joint_world_that_hangs_holds_up_no_other(
    serve: Any, hang_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seats, "JOIN_S", 0.01)
    monkeypatch.setattr(session, "BEAT_S", 0.05)
    server = serve(WORLD, late="noop", late_s=0.01)
    hang_world(server)
    set_lease(server, 1.0)  # after which the seats of whoever is away are freed
    wait_until(lambda: len(server.sessions.list()) == 2, 20)
    agents = [seat.agent for seat in WORLD.seating]
    with pytest.raises(EnvError, match=r"joint world game has been at work on a step for 0\.01 s"):
        RemoteParallelEnv(server.address, wait_s=0.0, world="game", agents=agents).reset(seed=0)
    with closing(RemoteParallelEnv(server.address, wait_s=0.0, world="other", agents=agents)) as other:
        other.reset(seed=0)


def test_streams_of_a_session_that_is_at_work_leave_room_for_others_once_they_are_lost(serve: Any, hang: Any) -> None:
    server = serve(HANGING, max_sessions=2)
    raw, other = (Raw(server, environment="Hanging-v0") for _ in range(2))
    wire = raw.attach()
    wire.send(begin(1))
    wire.send(turn(2))
    assert Hanging.begun.wait(20)
    (own,) = (one for one in server.sessions.list() if one.id == raw.session)
    for _ in range(5):  # with the one at work, as many as there is room for
        wire.close()
        before = own._stream
        wire = raw.attach()
        wait_until(lambda before=before: own._stream is not before, 20)
    wire.close()
    wait_until(lambda: server._streams._value == 5, 20)
    wire = other.attach()
    assert wire.receive().kind is Kind.ATTACHED
    wire.close()


class Slow(Counting):
    """Is made once it is let, where it is to wait."""

    waits = False
    closed = 0

    def __init__(self) -> None:
        if Slow.waits:
            Hanging.begun.set()
            assert Hanging.let.wait(120)

    def close(self) -> None:
        Slow.closed += 1


gymnasium.register("Slow-v0", f"{__name__}:Slow", disable_env_checker=True)


@pytest.fixture(name="serve_slow")
def serve_slow_fixture(monkeypatch: pytest.MonkeyPatch, serve: Any, hang: Any) -> Any:
    """Serve environments that are made once they are let."""

    def serve_slow(**changes: Any) -> Any:
        server = serve(env_spec("Slow-v0"), **changes)
        monkeypatch.setattr(Slow, "waits", True)
        monkeypatch.setattr(Slow, "closed", 0)
        return server

    return serve_slow


def test_environments_that_were_made_while_their_server_went_are_ended(serve_slow: Any) -> None:
    server = serve_slow()
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(Raw, server, environment="Slow-v0")
        assert Hanging.begun.wait(20)
        server.close()
        Hanging.let.set()
        wait_until(lambda: Slow.closed == 2 and server.sessions.rows == 0, 20)
        assert opening.exception(20) is not None and not server.sessions.list()


def test_sessions_that_are_being_opened_take_room(serve_slow: Any) -> None:
    server = serve_slow(max_sessions=1)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(Raw, server, environment="Slow-v0")
        assert Hanging.begun.wait(20)
        with pytest.raises(place.Lost, match="1 of 1 sessions are in use"):
            Raw(server, environment="Slow-v0")
        Hanging.let.set()
        opening.result(20)
