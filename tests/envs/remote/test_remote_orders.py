"""What arrives at a session: orders out of turn or again, malformed frames and requests."""

import random
from contextlib import closing, suppress
from typing import Any

import numpy as np
import pytest
from remote_servers import (  # noqa: F401
    COUNTED,
    COUNTING,
    N,
    Raw,
    begin,
    play,
    remote,
    serve_fixture,
    set_lease,
    turn,
    undisturbed_fixture,
)

from paddock.envs.vector import Serial

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote import security  # noqa: E402
from paddock.envs.remote.client.endpoint import ConnectionLost  # noqa: E402
from paddock.envs.remote.frames import Kind, encode_frame  # noqa: E402
from paddock.envs.remote.values import DecodeError, decode, encode  # noqa: E402


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ([begin(1), turn(3)], "got order 3, expected 2"),
        ([encode_frame(Kind.STEP, [1, 0, [0, 3]], [np.zeros(3, np.int64)])], "rows are not distinct indices below 2"),
        ([encode_frame(Kind.STEP, [1, 0, [0, 2]], [np.zeros(9, np.int64)])], "the body has 72 bytes, expected 16"),
    ],
)
def test_an_order_out_of_turn_ends_the_session_before_anything_steps(serve: Any, frames: Any, named: str) -> None:
    channel = Raw(serve(COUNTING)).attach()
    assert channel.receive().kind is Kind.ATTACHED
    COUNTED.clear()
    for frame in frames[:-1]:
        channel.send(frame)
        assert channel.receive().kind is Kind.OUTCOME
    channel.send(frames[-1])
    answer = channel.receive()
    assert answer.kind is Kind.FAILED and named in answer.header[2] and not COUNTED
    with pytest.raises(ConnectionLost):
        channel.receive()
    channel.close()


def test_an_order_that_comes_again_is_answered_again_and_not_done(serve: Any) -> None:
    raw = Raw(serve(COUNTING))
    channel = raw.attach()
    COUNTED.clear()
    answers = [channel.receive()]
    for frame in (begin(1), turn(2), turn(2), turn(2), begin(1)):
        channel.send(frame)
        answers.append(channel.receive())
    assert [answer.header[0] for answer in answers[1:]] == [1, 2, 2, 2, 1] and len(COUNTED) == 2
    assert len({bytes(answer.body) for answer in answers[2:5]}) == 1
    other = raw.attach()  # takes the session over
    assert [other.receive().header[0] for _ in range(3)] == [2, 1, 2]
    with pytest.raises(ConnectionLost):
        channel.receive()
    thief = raw.attach(secret=b"x" * 16)
    answer = thief.receive()
    assert answer.kind is Kind.FAILED and "has no such session" in answer.header[2]
    other.send(turn(3))
    assert other.receive().header[0] == 3
    for one in (channel, other, thief):
        one.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 10_000 + b"\xc0",  # lists in lists
        encode([["<f8", [2**31, 2**31], b""]])[:-1],
    ],
)
def test_a_message_that_claims_too_much_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(data)


def test_forged_requests_leave_the_server_and_other_sessions_as_they_were(serve: Any, undisturbed: str) -> None:
    server, chance = serve(COUNTING, Serial(num_envs=4 * N), max_sessions=64), random.Random(3)
    good: dict[str, dict[str, Any]] = {
        "Open": {"environment": "Counting-v0", "num_envs": 1, "autoreset": "SAME_STEP"},
        "Describe": {"protocol": 2},
        "Close": {"session": "0", "secret": b"s" * 16},
    }

    def mutate(data: bytes) -> bytes:
        bad = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        return bytes(bad)

    with security.connect(server.address, None, {}) as channel, closing(remote(server.address).make(COUNTING)) as venv:

        def forge(t: int, k: int) -> None:
            name = chance.choice(list(good))
            with suppress(grpc.RpcError):
                channel.unary_unary(f"/{security.SERVICE}/{name}")(mutate(encode(good[name])), timeout=10)
            with suppress(grpc.RpcError):
                list(channel.stream_stream(f"/{security.SERVICE}/Play")(iter([mutate(turn(1))]), timeout=10))

        assert play(venv, forge) == undisturbed and venv.restarts == venv._connections[0].reconnects == 0


def test_a_client_that_never_reads_stalls_itself_alone(serve: Any, undisturbed: str) -> None:
    server = serve(COUNTING, Serial(num_envs=2 * N))
    raw = Raw(server)
    channel = raw.attach()
    channel.send(begin(1))
    for _ in range(2000):  # each is answered by what is kept of it
        channel.send(turn(2))
    with closing(remote(server.address).make(COUNTING)) as venv:
        assert play(venv) == undisturbed
    session = server.sessions.find(raw.session, raw.secret)
    assert session is not None and len(session._kept) <= 2
    channel.close()


def test_answers_that_a_client_must_have_are_not_kept_for_it(serve: Any) -> None:
    server = serve(COUNTING)
    raw = Raw(server)
    channel = raw.attach()
    session = server.sessions.find(raw.session, raw.secret)
    assert session is not None
    channel.send(begin(1))
    for k in range(2, 102):  # the second row acts three times as often as both together
        rows = [0, 2] if k % 4 == 0 else [1, 2]
        channel.send(encode_frame(Kind.STEP, [k, 0, rows], [np.zeros(rows[1] - rows[0], np.int64)]))
    assert [channel.receive().header[0] for _ in range(102)] == [0, *range(1, 102)]
    assert sorted(session._kept) == [1, 101]
    channel.close()
