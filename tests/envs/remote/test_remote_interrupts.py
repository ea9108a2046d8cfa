"""Ctrl-C at a client of servers: in whatever it comes, the client can be closed, and goes on to the same numbers.

At a server it says what the server does.
"""

import gc
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import env_spec, wait_until
from remote_servers import (
    COUNTING,
    Counting,
    N,
    make_other,
    over_grpc_fixture,  # noqa: F401
    remote,
    serve_fixture,  # noqa: F401
)

from paddock.envs.vector import Serial
from paddock.envs.vector.multiprocess.interrupts import Uninterrupted, waits

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from grpc._cython import cygrpc  # noqa: E402

from paddock.envs.remote.client import apart, calls, link, place, session  # noqa: E402
from paddock.envs.remote.client.unix import UnixStream  # noqa: E402
from paddock.envs.remote.client.vector import RemoteVectorEnv  # noqa: E402
from paddock.serve import _wait as serve_until_told  # noqa: E402

WORLD = env_spec("toy_worlds:Scripted", kwargs={"agents": "ab", "steps": [{"agents": "ab"}] * 9})


class Interrupting(Counting):
    """Sends Ctrl-C to this process in a step, and waits until it has been seen if it is to."""

    steps = 0
    before: Callable[[], None] = staticmethod(lambda: None)
    seen: threading.Event | None = None

    def step(self, action: Any) -> Any:
        Interrupting.steps += 1
        if Interrupting.steps == 3:
            Interrupting.before()
            os.kill(os.getpid(), signal.SIGINT)
            assert self.seen is None or self.seen.wait(20)
        return super().step(action)


class Holding(Counting):
    """Answers no step before it may."""

    may_answer = threading.Event()

    def step(self, action: Any) -> Any:
        assert self.may_answer.wait(20)
        return super().step(action)


for made in (Interrupting, Holding):
    gymnasium.register(f"{made.__name__}-v0", f"{__name__}:{made.__name__}", disable_env_checker=True)


class WatchedCall:
    """A stream's call of gRPC's that tells whether a thread is in it, waiting for what comes next."""

    def __init__(self, call: Any) -> None:
        self.operate, self.cancel, self.event, self.is_waited_for = call.operate, call.cancel, call.next_event, False

    @waits(throughout=False)
    def next_event(self) -> Any:
        self.is_waited_for = True
        try:
            return self.event()
        finally:
            self.is_waited_for = False


def is_asked_for(stream: Any) -> bool:
    """Whether a message is waited for, and nothing else that could come before it."""
    if isinstance(stream, UnixStream):
        return bool(stream._reading.locked())
    if isinstance(stream, calls.PublicStream):
        return stream._answers._state.due >= {cygrpc.OperationType.receive_message}
    return calls.SENT not in stream._due and stream._call.is_waited_for


@pytest.mark.parametrize("way", ["direct", "public", "unix"])
@pytest.mark.parametrize("waits", [False, True], ids=["as the answer comes", "as nothing comes"])
def test_ctrl_c_while_an_answer_is_waited_for_costs_nothing(
    serve: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, waits: bool, way: str
) -> None:
    if way != "unix":
        request.getfixturevalue("over_grpc")
    if way == "public":
        monkeypatch.setattr(calls.DirectStream, "__init__", make_other)

    def step(venv: Any) -> bytes:
        venv.send(np.ones(1, np.int64))
        try:
            observation = venv.recv()[0]
        except KeyboardInterrupt:
            interrupted.append(venv._connections[0].reconnects)
            seen.set()
            observation = venv.recv()[0]
        return bytes(observation.tobytes())

    interrupted: list[int] = []
    seen = threading.Event()
    monkeypatch.setattr(Interrupting, "steps", 0)
    monkeypatch.setattr(Interrupting, "seen", seen if waits else None)
    spec = env_spec("Interrupting-v0")
    with closing(remote(serve(spec).address, num_envs=1).make(spec)) as venv:
        stream = venv._connections[0].channel._stream
        if way == "direct":
            stream._call = WatchedCall(stream._call)
        monkeypatch.setattr(Interrupting, "before", staticmethod(lambda: wait_until(lambda: is_asked_for(stream))))
        venv.begin(3)
        told = [step(venv) for _ in range(9)]
        assert interrupted == [0] and (not waits or venv._connections[0].reconnects == (way != "unix"))
    with closing(remote(serve(COUNTING).address, num_envs=1).make(COUNTING)) as venv:
        venv.begin(3)
        assert told == [step(venv) for _ in range(9)]


class InterruptingLock:
    """A lock with which Ctrl-C comes, when it is first taken."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.release, self.came = lock, lock.release, False

    def acquire(self, **how: Any) -> bool:
        taken: bool = self.lock.acquire(**how)
        if not self.came:
            self.came = True
            signal.raise_signal(signal.SIGINT)
        return taken


def test_ctrl_c_that_comes_with_the_lock_of_events_leaves_it_to_others(serve: Any, over_grpc: None) -> None:
    with closing(remote(serve(COUNTING).address, num_envs=1).make(COUNTING)) as venv:
        venv.begin(3)
        stream = venv._connections[0].channel._stream
        venv.send(np.ones(1, np.int64))
        stream._taking = InterruptingLock(stream._taking)
        with pytest.raises(KeyboardInterrupt):
            venv.recv()
        assert not stream._taking.lock.locked()
        venv.recv()
        assert venv._connections[0].reconnects == 0


def test_ctrl_c_is_not_lost_where_a_stream_is_closed_that_was_forgotten(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(wire: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        close(wire)
        closed.append(wire)

    def forget() -> None:
        remote(server.address, num_envs=1).make(COUNTING).begin(3)
        gc.collect()

    gc.collect()  # those of other tests
    close, closed, server = endpoint.Channel.close, list[Any](), serve(COUNTING)
    monkeypatch.setattr(endpoint.Channel, "close", interrupt)
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        forget()
    assert len(closed) == 1
    forget()
    assert len(closed) == 2
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        pass


@pytest.mark.parametrize(("of", "where"), [(link.Link, "_number"), (session.ClientSession, "next")])
def test_ctrl_c_in_the_midst_of_sending_or_receiving_loses_no_message(
    serve: Any, monkeypatch: pytest.MonkeyPatch, of: type, where: str
) -> None:
    def interrupt(*given: Any) -> Any:
        done = method(*given)
        monkeypatch.setattr(of, where, method)
        signal.raise_signal(signal.SIGINT)
        return done

    method = getattr(of, where)
    with closing(remote(serve(COUNTING).address, num_envs=1).make(COUNTING)) as venv:
        venv.begin(3)
        monkeypatch.setattr(of, where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            venv.send(np.ones(1, np.int64))
            venv.recv()
        told = venv.recv()[0].tobytes()
        assert venv._connections[0].reconnects == 0
    with closing(Serial(num_envs=1).make(COUNTING)) as venv:
        venv.begin(3)
        assert venv.step(np.ones(1, np.int64))[0].tobytes() == told


def test_ctrl_c_while_there_is_no_room_to_send_to_the_first_of_several_servers_asks_the_others(
    serve: Any, over_grpc: None
) -> None:
    one, other = serve(COUNTING), serve(COUNTING)
    with closing(remote(one.address, other.address).make(COUNTING)) as venv:
        venv.begin(3)
        stream = venv._connections[0].channel._stream
        while calls.SENT in stream._due:
            stream._take(lambda: calls.SENT not in stream._due)
        stream._due.add(calls.SENT)  # of a message that nobody takes
        stream._call = WatchedCall(stream._call)

        def interrupt() -> None:
            wait_until(lambda: stream._call.is_waited_for)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            venv.send(np.ones(N, np.int64))
        thread.join()
        assert venv._connections[1]._unsent, "the second would be waited for without having been asked"
        told = venv.recv()[0].tobytes()
        assert [one.reconnects for one in venv._connections] == [1, 0]
    with closing(Serial(num_envs=N).make(COUNTING)) as venv:
        venv.begin(3)
        assert venv.step(np.ones(N, np.int64))[0].tobytes() == told


@pytest.mark.parametrize("nth", [1, 3, 5], ids=["begin", "a turn", "where it leads"])
def test_ctrl_c_in_the_midst_of_a_replay_leaves_it_to_whoever_goes_on(
    serve: Any, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    def interrupt(*given: Any) -> None:
        nonlocal nth
        number(*given)
        nth -= 1
        if not nth:
            signal.raise_signal(signal.SIGINT)

    number, server = link.Link._number, serve(COUNTING)
    with closing(remote(server.address, num_envs=1).make(COUNTING)) as venv:
        venv.begin(10)  # whose episode goes on
        for _ in range(3):
            venv.step(np.ones(1, np.int64))
        server.close()
        serve(COUNTING, address=server.address)
        venv.send(np.ones(1, np.int64))
        monkeypatch.setattr(link.Link, "_number", interrupt)
        with pytest.raises(KeyboardInterrupt):
            venv.recv()
        assert venv._connections[0].is_lost, "an answer would be waited for that nobody gives"
        told = venv.recv()[0].tobytes()
    with closing(Serial(num_envs=1).make(COUNTING)) as venv:
        venv.begin(10)  # whose episode goes on
        for _ in range(3):
            venv.step(np.ones(1, np.int64))
        assert venv.step(np.ones(1, np.int64))[0].tobytes() == told


def test_ctrl_c_while_another_stream_of_the_session_is_begun_leaves_it_to_whoever_goes_on(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*given: Any) -> Any:
        monkeypatch.setattr(session, "Wire", endpoint.Channel)
        wire = endpoint.Channel(*given)
        signal.raise_signal(signal.SIGINT)
        return wire

    def step_in_parts(venv: Any, hook: Callable[[], None] = lambda: None) -> list[bytes]:
        for rows in (slice(0, 1), slice(1, 2)):
            venv.send(np.ones(1, np.int64), rows)
            hook()
        return [venv.recv(rows)[0].tobytes() for rows in (slice(0, 1), slice(1, 2))]

    monkeypatch.setattr(Holding, "may_answer", threading.Event())
    spec = env_spec("Holding-v0")
    with closing(remote(serve(spec).address, num_envs=2, lost="fail").make(spec)) as venv:
        venv.begin(3)
        (own,) = venv._connections
        assert own.channel is not None
        monkeypatch.setattr(session, "Wire", interrupt)

        def lose() -> None:
            own.channel._stream.close()
            if own.due == 2:
                with pytest.raises(KeyboardInterrupt):
                    venv.recv(slice(0, 1))
                assert own.is_lost, "an answer would be waited for, or the second turn sent ahead of the first"
                Holding.may_answer.set()

        told = step_in_parts(venv, lose)
        assert (own.reconnects, own.restarts) == (1, 0)
    with closing(Serial(num_envs=2).make(COUNTING)) as venv:
        venv.begin(3)
        assert told == step_in_parts(venv)


def test_a_session_that_was_not_brought_back_whole_leaves_room_for_the_next(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, pending: Any) -> None:
        monkeypatch.setattr(link.Link, "_replay", replay)
        raise place.Lost("it is cut")

    replay, server = link.Link._replay, serve(COUNTING, Serial(num_envs=N))
    with closing(remote(server.address, wait_s=5.0).make(COUNTING)) as venv:
        venv.begin(3)
        server.close()
        other = serve(COUNTING, Serial(num_envs=N), address=server.address)
        monkeypatch.setattr(link.Link, "_replay", fail)
        told = venv.step(np.ones(N, np.int64))[0].tobytes()
        assert len(other.sessions.list()) == 1
    with closing(Serial(num_envs=N).make(COUNTING)) as venv:
        venv.begin(3)
        assert venv.step(np.ones(N, np.int64))[0].tobytes() == told


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "is closed"])
def test_ctrl_c_while_several_joint_worlds_come_back_leaves_them_to_whoever_goes_on(
    serve: Any, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    def describe(self: Any, *given: Any) -> Any:
        coming.append(threading.current_thread())
        assert len(coming) > 2 or let.wait(20)
        return describes(self, *given)

    def wait(self: Any, *given: Any) -> None:
        if len(coming) == 2:
            let.set()
        waits(self, *given)

    def interrupt() -> None:
        wait_until(lambda: len(coming) == 2, 20)
        os.kill(os.getpid(), signal.SIGINT)

    coming: list[threading.Thread] = []  # at another session
    let, waits, describes = threading.Event(), apart.CallsApart.wait, place.Place.describe
    server, ones = serve(WORLD, Serial(num_envs=2)), np.ones(2, np.int64)
    first, second = (
        RemoteVectorEnv(None, 2, remote(server.address).endpoint(), worlds=["a", "b"], agents=[agent], packed=True)
        for agent in "ab"
    )
    with closing(first), closing(second), ThreadPoolExecutor(1) as pool:
        begun = pool.submit(second.begin, 2)
        first.begin(1)
        begun.result(20)
        server.close()
        other = serve(WORLD, Serial(num_envs=2), address=server.address)
        monkeypatch.setattr(place.Place, "describe", describe)
        came = pool.submit(interrupt)
        first.send(ones)
        with pytest.raises(KeyboardInterrupt):
            first.recv()
        came.result(20)
        monkeypatch.setattr(apart.CallsApart, "wait", wait)
        if goes_on:
            stepped = pool.submit(second.step, ones)
            assert first.recv()[0].tolist() == [[1, 0], [1, 0]]
            assert stepped.result(20)[0].tolist() == [[1, 1], [1, 1]]
        else:
            first.close()
            let.set()
        for thread in coming[:2]:
            thread.join(20)
            assert not thread.is_alive()
        assert len(other.sessions.list()) == 4 * goes_on
        assert not goes_on or [one.restarts for one in first._connections] == [1, 1]


def test_a_server_says_what_it_does_about_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        wait_until(lambda: signal.getsignal(signal.SIGINT) is not before)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    server: Any = SimpleNamespace(sessions=SimpleNamespace(list=lambda: [1, 2]), drain=lambda: True)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(interrupt)
        assert serve_until_told(server) == 0
    ending = "ending: 2 sessions are open, and finish what is under way; Ctrl-C again ends at once"
    assert capsys.readouterr().err.splitlines() == [ending, "ended"]
