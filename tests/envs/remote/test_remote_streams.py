"""Streams, by what gRPC's public interface is made of and by that interface, give the same bytes."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import env_spec, wait_until
from remote_servers import (  # noqa: F401
    CARTPOLE,
    COUNTED,
    COUNTING,
    WORKERS,
    Counting,
    Raw,
    begin,
    make_other,
    over_grpc_fixture,
    play,
    remote,
    serve_fixture,
    set_lease,
    turn,
    undisturbed_fixture,
)

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")


from paddock.envs.remote import guard  # noqa: E402
from paddock.envs.remote.client import calls, place  # noqa: E402
from paddock.envs.remote.frames import Kind, join  # noqa: E402
from paddock.envs.remote.server import service, session, steps, stream  # noqa: E402


@pytest.mark.parametrize("public", [(), ("client",), ("server",), ("client", "server")], ids="+".join)
def test_either_way_to_send_and_receive_gives_the_same_numbers(
    serve: Any, undisturbed: str, monkeypatch: pytest.MonkeyPatch, over_grpc: None, public: tuple[str, ...]
) -> None:
    if "client" in public:
        monkeypatch.setattr(calls.DirectStream, "__init__", make_other)
    if "server" in public:
        monkeypatch.setattr(stream, "_find_operations", lambda context: None)
    server = serve(COUNTING)
    with closing(remote(server.address).make(COUNTING)) as venv:
        told = play(venv)
        kind = type(venv._links[0]._wire._stream)
        assert kind is (calls.PublicStream if "client" in public else calls.DirectStream)
        assert ("frames" in [thread.name for thread in threading.enumerate()]) == ("server" in public)
    assert told == undisturbed


@pytest.mark.parametrize("unix", [False, True], ids=["gRPC", "unix"])
def test_signs_of_life_from_another_thread_lose_and_mix_nothing(serve: Any, unix: bool) -> None:
    server = serve(COUNTING)
    raw = Raw(server)
    wire = place.Wire(raw.place, raw.address, 0.0005, unix_name=raw.unix_name if unix else None)
    wire.send(join(Kind.ATTACH, [raw.session, raw.secret, 0]))
    assert wire.receive().kind is Kind.ATTACHED
    wire.send(begin(1))
    for seq in range(2, 400):
        wire.send(turn(seq))
    assert [wire.receive().header[0] for _ in range(1, 400)] == list(range(1, 400))
    (session,) = server.sessions.list()
    before = session.seen()
    wait_until(lambda: session.seen() > before)  # nobody waits for an answer, and they go on
    wire.close()
    wire.close()
    wire.send(turn(400))  # to nobody
    with pytest.raises(place.Lost):
        wire.receive()


def test_answers_to_a_client_that_never_reads_do_not_pile_up(
    serve: Any, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(COUNTING)
    with monkeypatch.context() as patch:
        patch.setattr(calls.DirectStream, "__init__", make_other)  # which reads where it waits to send
        silent = Raw(server).attach()
    silent.send(begin(1))
    for _ in range(3000):
        silent.send(begin(1))  # some 300 kB of the same answer
    (session,) = server.sessions.list()
    wait_until(lambda: session._stream is not None and len(session._stream._waiting) == stream.MOST_WAITING)
    with closing(remote(server.address).make(COUNTING)) as venv:
        assert play(venv) == undisturbed
    assert len(session._stream._waiting) <= stream.MOST_WAITING
    silent.close()


class Patient(Counting):
    """Steps once it may, and says how often it was asked to."""

    let = threading.Event()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert Patient.let.wait(60)
        return super().step(action)


gymnasium.register("Patient-v0", f"{__name__}:Patient", disable_env_checker=True)


@pytest.fixture(name="flood", params=["direct", "public", "unix"])
def flood_fixture(request: Any, serve: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A session whose client asks for 2,000 turns, of which the first takes as long as the test lets it."""
    if request.param == "public":
        monkeypatch.setattr(stream, "_find_operations", lambda context: None)
    Patient.let.clear()
    COUNTED.clear()
    server = serve(env_spec("Patient-v0"))
    raw = Raw(server, environment="Patient-v0")
    wire = place.Wire(raw.place, raw.address, 0.05, unix_name=raw.unix_name if request.param == "unix" else None)
    wire.send(join(Kind.ATTACH, [raw.session, raw.secret, 0]))
    wire.send(begin(1))

    def ask() -> None:
        for seq in range(2, 2002):
            wire.send(turn(seq, seq % 5))

    asking = threading.Thread(target=ask)
    asking.start()
    (session,) = server.sessions.list()
    many = stream.MOST_ORDERS // 2  # fewer than wait where the session took some since
    wait_until(lambda: session._stream is not None and session._stream._frames.qsize() > many, 20)
    wait_until(lambda: session._stream._held, 20)
    yield SimpleNamespace(server=server, session=session, wire=wire, asking=asking)
    Patient.let.set()
    wire.close()
    asking.join(20)


def test_orders_of_a_client_that_asks_for_many_wait_with_it_and_each_is_done_once(flood: Any) -> None:
    assert flood.session._stream._frames.qsize() <= stream.MOST_ORDERS
    Patient.let.set()
    assert flood.wire.receive().kind is Kind.ATTACHED
    assert [flood.wire.receive().header[0] for _ in range(2001)] == list(range(1, 2002))
    flood.asking.join(20)
    assert len(COUNTED) == 2 * 2000 and not flood.session._stream._held


def test_a_client_whose_signs_of_life_wait_with_its_orders_keeps_its_session(flood: Any) -> None:
    set_lease(flood.server, 0.5)
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > 1.5)  # three leases
    assert flood.server.sessions.list() == [flood.session]
    set_lease(flood.server, 60.0)
    Patient.let.set()
    assert [flood.wire.receive().kind for _ in range(3)][2] is Kind.OUTCOME


def test_a_client_that_goes_while_its_orders_wait_is_noticed(flood: Any) -> None:
    flood.wire.close()
    wait_until(lambda: not flood.session.is_attached, 20)
    Patient.let.set()
    set_lease(flood.server, 0.5)
    wait_until(lambda: not flood.server.sessions.list(), 20)  # as its lease ends
    assert len(COUNTED) < 2 * stream.MOST_ORDERS + 4


def test_streams_of_clients_that_went_before_they_were_served_leave_room_for_others(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_late(requests: Any, context: Any) -> stream.FrameStream:
        begun.release()
        wait_until(lambda: not context.is_active())
        try:
            return stream.FrameStream(requests, context)
        finally:
            ended.release()

    begun, ended, server = threading.Semaphore(0), threading.Semaphore(0), serve(COUNTING, max_sessions=1)
    raw, room = Raw(server), server._streams._value
    channel, metadata = raw.place.connect(raw.address)
    with channel, monkeypatch.context() as patch:
        patch.setattr(service, "FrameStream", make_late)
        for _ in range(room):
            going = channel.stream_stream(f"/{guard.SERVICE}/Play")(iter(()), metadata=metadata)
            assert begun.acquire(timeout=20)
            going.cancel()
            assert ended.acquire(timeout=20)
        wait_until(lambda: server._streams._value == room, timeout_s=20)
    wire = raw.attach()
    assert wire.receive().kind is Kind.ATTACHED
    wire.close()


class AwaitedLock:
    """A lock that is waited for also by who would have it at once or not at all: its holder wakes now and then."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.release = lock, lock.release

    def acquire(self, blocking: bool = True) -> bool:
        return bool(self.lock.acquire(timeout=20))


def test_turns_that_arrive_while_workers_are_waited_for_go_to_them_at_once_and_once_each(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "AWAKE_S", 600.0)
    threads, send = [], steps.SessionEnvs.send

    def note(*given: Any) -> None:
        threads.append(threading.current_thread().name.partition("_")[0])
        send(*given)

    monkeypatch.setattr(steps.SessionEnvs, "send", note)
    server = serve(CARTPOLE, replace(WORKERS, workers=1))
    raw = Raw(server, environment="CartPole-v1")
    (own,) = server.sessions.list()

    def ask(*frames: bytes) -> Any:
        for frame in frames:
            wire.send(frame)
        return [wire.receive() for _ in frames]

    wire = raw.attach()
    assert wire.receive().header == [0]
    ask(begin(1))
    ask(turn(2))
    own._hands = AwaitedLock(own._hands)
    third = ask(turn(3))[0]
    (again,) = ask(turn(3))
    assert again.header[0] == 3 and again.sums == third.sums
    assert [name == "session" for name in threads] == [True, False]
    wire.close()
    wire = raw.attach(received=2)
    assert wire.receive().header == [3] and wire.receive().sums == third.sums
    assert [told.header[0] for told in ask(turn(4), turn(5))] == [4, 5]
    assert own.steps == 2 * 4
    (refused,) = ask(join(Kind.TURN, [6, 0, [0, 2]], [np.zeros(9, np.int64)]))
    assert refused.kind is Kind.FAILED and "a body of 72 bytes" in refused.header[2]
    wire.close()
    raw = Raw(server, environment="CartPole-v1")
    (own,) = server.sessions.list()
    wire = raw.attach()
    wire.receive()
    threads.clear()
    ask(begin(1))
    ask(turn(2))
    wait_until(lambda: not own._hands.locked())
    own.drain()
    assert wire.receive().kind is Kind.GOODBYE
    wire.close()


def test_what_nobody_foresaw_where_a_turn_arrives_ends_its_session_and_not_the_thread_of_all(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        assert threading.current_thread().name.partition("_")[0] != "session"
        monkeypatch.undo()
        raise TypeError("nobody foresaw it")

    monkeypatch.setattr(session, "AWAKE_S", 600.0)
    server = serve(CARTPOLE, replace(WORKERS, workers=1))
    raw = Raw(server, environment="CartPole-v1")
    (own,) = server.sessions.list()
    wire = raw.attach()
    for frame in (begin(1), turn(2)):
        wire.send(frame)
    assert [wire.receive().header[0] for _ in range(3)] == [0, 1, 2]
    own._hands = AwaitedLock(own._hands)
    monkeypatch.setattr(steps.SessionEnvs, "send", fail)
    wire.send(turn(3))
    wait_until(lambda: not server.sessions.list(), 20)
    assert "TypeError: nobody foresaw it" in wire.receive().header[2]
    assert raw.place.call(raw.address, "Stats", {}, 10.0)["sessions"] == []
    wire.close()


@pytest.mark.parametrize("unix", [False, True], ids=["gRPC", "unix"])
def test_a_message_of_half_a_megabyte_arrives_whole(serve: Any, unix: bool) -> None:
    raw = Raw(serve(COUNTING))
    wire = raw.attach(unix=unix)
    assert wire.receive().kind is Kind.ATTACHED
    wire.send(join(Kind.BEGIN, [1, 0, 1, np.zeros(2, np.int64), np.arange(2), None]))
    wire.send(join(Kind.TURN, [2, 0, [0, 2]], [np.zeros(1 << 16, np.int64)]))  # a body that is far too long
    assert wire.receive().kind is Kind.OUTCOME
    said = wire.receive()
    assert said.kind is Kind.FAILED and "a body of 524288 bytes where 16" in said.header[2]
    wire.close()


def test_a_stream_that_another_thread_looks_after_answers_as_soon(serve: Any) -> None:
    raw = Raw(serve(COUNTING))
    wire = raw.attach()  # without signs of life, which would pass the turn on
    assert wire.receive().kind is Kind.ATTACHED
    wire.send(begin(1))
    assert wire.receive().kind is Kind.OUTCOME
    assert not wire.is_over
    threads = set(threading.enumerate())
    began = time.monotonic()
    for seq in range(2, 100):
        wire.send(turn(seq))
        assert wire.receive().header[0] == seq
        assert not wire.is_over
    assert time.monotonic() - began < 10
    assert not set(threading.enumerate()) - threads
    wire.close()
