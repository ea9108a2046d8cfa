"""Streams over a Unix domain socket, where client and server are on one machine: the same bytes, and who is let in."""

import errno
import os
import random
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest
from conftest import env_spec, wait_until
from remote_servers import (  # noqa: F401
    CARTPOLE,
    COUNTED,
    COUNTING,
    STEPS,
    N,
    Raw,
    begin,
    play,
    remote,
    serve_fixture,
    set_lease,
    start_process,
    turn,
    undisturbed_fixture,
)

from paddock.envs.remote.frames import CHUNK, FIXED, MAGIC, MOST_READ, PROTOCOL, START, FrameReader, Kind, join
from paddock.envs.remote.values import Garbled
from paddock.envs.vector import Serial
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.multiprocess.interrupts import Uninterrupted

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.client import calls, place, unix  # noqa: E402
from paddock.envs.remote.client.vector import RemoteVectorEnv  # noqa: E402
from paddock.envs.remote.server import service  # noqa: E402
from paddock.envs.remote.server import unix as listening  # noqa: E402

WORLD = env_spec("toy_worlds:Scripted", kwargs={"agents": "ab", "steps": [{"agents": "ab"}] * 9})
FRAMES = [join(Kind.BEAT, []), turn(1), join(Kind.TURN, [2, 0, [0, 2]], [np.arange(40_000)]), begin(3)]


@pytest.mark.parametrize("seed", range(5))
def test_frames_are_whole_wherever_what_arrives_is_cut(seed: int) -> None:
    chance, data, told = random.Random(seed), b"".join(FRAMES), []
    reader = FrameReader(max(map(len, FRAMES)))
    while data:
        size = min(reader.wanted, chance.choice([1, 7, START, 300, 1 << 20]))
        reader.add(data[:size])
        data = data[size:]
        while reader.frames:
            told.append(reader.frames.popleft())
    assert told == FRAMES


def test_what_begins_no_frame_or_too_long_a_one_is_garbled() -> None:
    with pytest.raises(Garbled, match=r"what begins with b'GET ' is no frame"):
        FrameReader().add(b"GET / HTTP/1.1\r\n\r\n" * 2)
    with pytest.raises(Garbled, match=r"a frame of 320\d\d\d bytes is announced; at most 1000 are taken"):
        FrameReader(1000).add(FRAMES[2][:START])


def test_no_more_room_is_made_than_may_be_read_at_once_whatever_is_announced() -> None:
    (reader := FrameReader()).add(FIXED.pack(MAGIC, PROTOCOL, Kind.OUTCOME, 0, 0, (1 << 32) - 1) + bytes(START))
    assert CHUNK <= reader.wanted <= MOST_READ


def stream_of(venv: Any) -> Any:
    return venv._links[0]._wire._stream


def test_a_client_on_the_servers_machine_goes_past_grpc_to_the_same_numbers(serve: Any, undisturbed: str) -> None:
    server = serve(COUNTING)
    with closing(remote(server.address).make(COUNTING)) as venv:
        assert play(venv) == undisturbed
        assert isinstance(stream_of(venv), unix.UnixStream)
    wait_until(lambda: not server._unix._threads)


@pytest.mark.parametrize("end", ["client", "server"])
def test_a_connection_that_ends_anywhere_costs_no_step(serve: Any, undisturbed: str, end: str) -> None:
    server = serve(COUNTING)

    def cut(t: int, k: int) -> None:
        if end == "client":
            stream_of(venv)._socket.shutdown(socket.SHUT_RDWR)
        else:
            for context in list(server._unix._threads.values()):
                context.cancel()

    with closing(remote(server.address).make(COUNTING)) as venv:
        COUNTED.clear()
        assert play(venv, cut) == undisturbed
        assert len(COUNTED) == N * STEPS
        assert venv.restarts == 0 and venv._links[0].reconnects >= STEPS


def test_whoever_cannot_reach_the_socket_goes_by_grpc(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(COUNTING)
    server._unix._stop()  # as that of another machine
    with closing(remote(server.address).make(COUNTING)) as venv:
        venv.begin(1)
        assert isinstance(stream_of(venv), calls.DirectStream)


@pytest.mark.parametrize("side", [unix, listening], ids=["client", "server"])
def test_processes_of_other_users_are_refused(serve: Any, monkeypatch: pytest.MonkeyPatch, side: Any) -> None:
    server = serve(COUNTING)
    monkeypatch.setattr(side, "is_own", lambda connection: False)
    stream = unix.open_unix_stream(server._unix.name, lambda timeout_s: True)
    if side is unix:
        assert stream is None
    else:
        assert stream is not None
        with closing(stream), pytest.raises(calls.StreamEnded, match="the server is gone"):
            stream.receive()
    monkeypatch.undo()
    with closing(remote(server.address).make(COUNTING)) as venv:
        venv.begin(1)


class Poor(socket.socket):
    """A socket whose process may open no more files at first."""

    lacks = ""

    def accept(self) -> Any:
        self._open("accept")
        return super().accept()

    def dup(self) -> Any:
        self._open("dup")
        return super().dup()

    def _open(self, name: str) -> None:
        if name == Poor.lacks:
            Poor.lacks = ""
            raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize("lacks", ["accept", "dup", "thread"])
def test_a_server_that_could_open_no_more_files_or_threads_for_a_while_takes_connections_again(
    serve: Any, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "session" and lacks == "thread":
            monkeypatch.undo()
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(socket, "socket", Poor)
    monkeypatch.setattr(Poor, "lacks", lacks)
    server = serve(COUNTING)
    monkeypatch.setattr(threading.Thread, "start", start)
    first = unix.open_unix_stream(server._unix.name, lambda timeout_s: True)
    assert first is not None
    with closing(first):
        if lacks != "accept":  # which comes to it later
            with pytest.raises(calls.StreamEnded, match="the server is gone"):
                first.receive()
            assert not server._unix._threads
    wire = Raw(server).attach(unix=True)
    assert wire.receive().kind is Kind.ATTACHED and isinstance(wire._stream, unix.UnixStream) and not Poor.lacks
    wire.close()
    assert server._unix.join(20)


def test_a_server_names_no_socket_but_its_own_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        name = f"paddock-{os.urandom(8).hex()}"  # too short
        other.bind(f"\0{name}")
        other.listen()
        assert unix.open_unix_stream(name, lambda timeout_s: True) is None
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_a_server_that_takes_no_more_connections_is_not_waited_for() -> None:
    with socket.socket(socket.AF_UNIX) as stopped, ExitStack() as stack:
        name = f"paddock-{os.urandom(16).hex()}"
        stopped.bind(f"\0{name}")
        stopped.listen(1)
        streams = [unix.open_unix_stream(name, lambda timeout_s: True) for _ in range(5)]
        for stream in streams:
            if stream is not None:
                stack.callback(stream.close)
    assert streams[0] is not None and streams[-1] is None


def test_a_session_without_its_secret_is_nobodys(serve: Any) -> None:
    raw = Raw(serve(COUNTING))
    wire = raw.attach(secret=b"x" * 16, unix=True)
    said = wire.receive()
    assert said.kind is Kind.FAILED and "knows no such session" in said.header[2]
    wire.close()


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (b"x" * 100, "what begins with b'xxxx' is no frame"),
        (FRAMES[2][:-1] + b"\1", "a frame's checksum is not that of its bytes"),
        (join(Kind.TURN, [1, 0, [0, 2]], [np.zeros(1 << 20)]), r"a frame of 83\d{5} bytes is announced; at most"),
        (turn(1), "a stream begins with the session that it is for"),
    ],
    ids=["no frame", "garbled", "too long", "no session"],
)
def test_what_is_no_stream_is_refused_as_by_grpc(serve: Any, said: bytes, named: str) -> None:
    stream = unix.open_unix_stream(serve(COUNTING)._unix.name, lambda timeout_s: True)
    assert stream is not None
    with closing(stream), pytest.raises(calls.StreamEnded, match=named) as caught:
        stream.send(said)
        stream.receive()
    assert caught.value.code in (*place.REFUSALS, *place.FATAL)


def test_more_connections_than_sessions_may_have_are_refused(serve: Any) -> None:
    server = serve(COUNTING, max_sessions=1)
    raw = Raw(server)
    streams = [unix.open_unix_stream(raw.unix_name, lambda timeout_s: True) for _ in range(5)]
    wait_until(lambda: server._streams._value == 0)
    wire = raw.attach(unix=True)
    with pytest.raises(place.MessageRefused, match="there are as many streams as sessions may have"):
        wire.receive()
    for stream in streams:
        assert stream is not None
        stream.close()
    wait_until(lambda: server._streams._value == 5)
    wire.close()
    wire = raw.attach(unix=True)
    assert wire.receive().kind is Kind.ATTACHED
    wire.close()


def test_answers_to_a_client_that_never_reads_wait_with_its_session_alone(
    serve: Any, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(COUNTING)
    raw = Raw(server)
    (own,) = server.sessions.list()
    silent = raw.attach(unix=True)
    connection = silent._stream._socket
    connection.setblocking(True)
    connection.settimeout(0.2)
    connection.sendall(begin(1))
    with pytest.raises(TimeoutError):
        while True:
            connection.sendall(begin(1))  # some 300 bytes of the same answer
    with closing(remote(server.address).make(COUNTING)) as venv:
        assert play(venv) == undisturbed
    set_lease(server, 0.5)
    wait_until(lambda: own not in server.sessions.list(), 20)  # as its lease ends
    silent.close()


def test_who_sends_more_than_there_is_room_for_takes_answers_meanwhile(serve: Any) -> None:
    raw = Raw(serve(COUNTING))
    wire = raw.attach(unix=True)
    assert wire.receive().kind is Kind.ATTACHED
    wire.send(begin(1))
    for _ in range(5000):
        wire.send(begin(1))  # more than fits on the way, as do the answers
    assert {wire.receive().header[0] for _ in range(5001)} == {1}
    wire.close()


def test_ctrl_c_where_there_is_no_room_costs_no_message(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(look: Any, timeout_s: float) -> bool:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)
        Uninterrupted.let_come()
        raise AssertionError

    class Full:
        """A socket that takes so many bytes at first."""

        def __init__(self, connection: Any, most: int) -> None:
            self.connection, self.most = connection, most

        def __getattr__(self, name: str) -> Any:
            return getattr(self.connection, name)

        def send(self, data: Any) -> int:
            most, self.most = self.most, 1 << 30
            if most == 1 << 30:
                stream_of(venv)._socket = self.connection
            if not most:
                raise BlockingIOError
            self.most = 0 if most < len(data) else 1 << 30
            return int(self.connection.send(data[:most]))

    with closing(Serial(num_envs=1).make(COUNTING)) as here:
        here.begin(3)
        expected = here.step(np.ones(1, np.int64))[0].tobytes()
    server = serve(COUNTING)
    for taken in (0, 10):
        with closing(remote(server.address, num_envs=1).make(COUNTING)) as venv:
            venv.begin(3)
            stream_of(venv)._socket = Full(stream_of(venv)._socket, taken)
            monkeypatch.setattr(unix, "_wait", interrupt)
            with pytest.raises(KeyboardInterrupt):
                venv.send(np.ones(1, np.int64))
            assert venv.recv()[0].tobytes() == expected
            assert venv._links[0].reconnects == (taken > 0)  # its rest could follow nothing


def test_a_server_that_gives_no_sign_of_life_is_lost(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix, "SILENT_S", 0.05)
    server = serve(COUNTING)
    raw = Raw(server)
    wire = raw.attach(unix=True)
    assert wire.receive().kind is Kind.ATTACHED
    begun, answered = time.monotonic(), []
    thread = threading.Thread(target=lambda: answered.append(wire.receive()))
    thread.start()
    wait_until(lambda: time.monotonic() - begun > 0.5)  # several looks
    assert thread.is_alive()
    wire.send(begin(1))
    thread.join(20)
    assert answered[0].kind is Kind.OUTCOME
    monkeypatch.setattr(place.Place, "is_alive", lambda self, address, timeout_s: False)
    wire.close()
    wire = raw.attach(received=1, unix=True)
    assert wire.receive().kind is Kind.ATTACHED
    with pytest.raises(place.Lost, match=r"cannot be reached \(UNAVAILABLE: it gives no sign of life\)"):
        wire.receive()
    wire.close()


def test_signs_of_life_are_asked_of_the_server_itself_whatever_files_say_by_then(serve: Any, tmp_path: Any) -> None:
    (token := tmp_path / "token").write_text("x" * 40)
    token.chmod(0o600)
    path = tmp_path / "address"
    server, other = serve(COUNTING, address_file=str(path), token_file=str(token)), serve(COUNTING)
    with closing(remote(f"file:{path}", token_file=str(token)).make(COUNTING)) as venv:
        token.rename(tmp_path / "elsewhere")  # a client that is let in needs none
        is_alive = stream_of(venv)._is_alive
        path.write_text('{"address": "127.0.0.1:1"}')
        assert is_alive(20.0)
        path.write_text(f'{{"address": "{other.address}"}}')
        server._server.stop(0).wait(20)
        assert not is_alive(0.2)
        token.with_name("elsewhere").rename(token)
    gone = place.Place((other.address,), None, {"ca": str(tmp_path / "gone")}, 1.0)
    assert not gone.is_alive(other.address, 0.2)


class Closed(socket.socket):
    """A socket that another thread closes, just when there is no more room."""

    def send(self, *given: Any) -> int:
        try:
            return super().send(*given)
        except BlockingIOError:
            self.close()
            raise


@pytest.mark.parametrize("kind", [socket.socket, Closed], ids=["the server stops", "it is closed"])
def test_who_waits_for_room_sees_that_none_comes(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    monkeypatch.setattr(unix, "SILENT_S", 0.05)
    left, other = socket.socketpair()
    own = kind(fileno=left.detach())
    own.setblocking(False)
    signs = [False, True, True]
    with closing(unix.UnixStream(own, lambda timeout_s: signs.pop())) as stream, other:
        stream.send(bytes(1 << 24))
        assert stream.is_over and len(signs) == (3 if kind is Closed else 0)


@pytest.mark.parametrize(
    "header, code",
    [([7, "enough"], "PERMISSION_DENIED"), ([7], "DATA_LOSS"), (["7", b""], "DATA_LOSS"), ([], "DATA_LOSS")],
)
def test_how_a_server_ends_a_stream_is_said_and_what_is_no_such_thing_is_lost_data(header: Any, code: str) -> None:
    own, other = socket.socketpair()
    own.setblocking(False)
    with closing(unix.UnixStream(own, lambda timeout_s: True)) as stream, other:
        other.sendall(join(Kind.ENDED, header))
        with pytest.raises(calls.StreamEnded) as raised:
            stream.receive()
        assert raised.value.code is getattr(grpc.StatusCode, code)


def test_a_server_that_can_make_no_socket_serves_by_grpc(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(socket.socket):
        def __init__(self, family: int = -1, *rest: Any, **named: Any) -> None:
            if family == socket.AF_UNIX:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            super().__init__(family, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(listening.socket, "socket", Refused)
        server = serve(COUNTING)
    with closing(remote(server.address).make(COUNTING)) as venv:
        assert isinstance(stream_of(venv), calls.DirectStream)


def test_clients_of_a_joint_world_go_by_grpc_which_sees_a_stopped_server_where_nobody_waits(serve: Any) -> None:
    server = serve(WORLD, Serial(num_envs=2))
    with closing(RemoteVectorEnv(None, 1, remote(server.address).place(), worlds=["a"], agents=["a"])) as joint:
        assert isinstance(stream_of(joint), calls.DirectStream)
    with closing(RemoteVectorEnv(None, 1, remote(server.address).place())) as alone:
        assert isinstance(stream_of(alone), unix.UnixStream)


def test_steps_of_more_than_a_socket_holds_go_by_grpc(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(COUNTING)  # of 24 bytes a row
    for held, kind in ((24 * N, unix.UnixStream), (24 * N - 1, calls.DirectStream)):
        monkeypatch.setattr(service, "BUFFERED", held)
        with closing(remote(server.address).make(COUNTING)) as venv:
            assert isinstance(stream_of(venv), kind)


def test_a_drained_server_ends_connections_once_what_is_under_way_is_done(serve: Any, undisturbed: str) -> None:
    one, other = serve(COUNTING), serve(COUNTING)
    drained: list[bool] = []

    def drain(t: int, k: int) -> None:
        if (t, k) == (4, 2):
            drained.append(one.drain())
            assert not one._unix._threads

    with closing(remote(one.address, other.address).make(COUNTING)) as venv:
        assert play(venv, drain) == undisturbed
        assert drained == [True] and venv.restarts == 1


def test_while_a_drained_server_waits_for_one_client_it_gives_signs_of_life_and_others_come_back_in_vain(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(COUNTING, drain_s=60.0)
    raw = Raw(server)
    (slow,) = server.sessions.list()
    monkeypatch.setattr(slow, "drain", lambda: None)  # as where a step takes long
    wire = raw.attach(unix=True)
    assert wire.receive().kind is Kind.ATTACHED
    with (
        closing(remote(server.address, num_envs=2, wait_s=0.5).make(COUNTING)) as venv,
        ThreadPoolExecutor(1) as pool,
        closing(wire),
    ):
        venv.begin(1)
        drained = pool.submit(server.drain)
        with pytest.raises(EnvError, match=r"UNAVAILABLE: the server is going"):
            while True:
                venv.step(np.ones(2, np.int64))
        assert venv._links[0].reconnects == 0
        assert raw.place.is_alive(server.address, 20.0)
        assert not drained.done()
        wire.close()
        assert drained.result(20)


@pytest.mark.real_start
def test_a_killed_server_is_noticed_at_once_and_leaves_no_socket() -> None:
    process, address = start_process()
    try:
        with closing(remote(address, wait_s=0.2, num_envs=2).make(CARTPOLE)) as venv:
            venv.begin(1)
            name = stream_of(venv)._socket.getpeername()
            process.kill()
            process.wait()
            begun = time.monotonic()
            with pytest.raises(place.Lost):
                venv._links[0]._wire.receive()
            assert time.monotonic() - begun < 2
            with socket.socket(socket.AF_UNIX) as one, pytest.raises(ConnectionRefusedError):
                one.connect(name)
    finally:
        process.kill()
        process.wait()
