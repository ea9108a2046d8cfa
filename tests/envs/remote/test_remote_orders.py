"""What arrives at a session: orders out of turn or again, forged and mutated frames."""

import random
import zlib
from contextlib import closing, suppress
from typing import Any

import numpy as np
import pytest
from conftest import env_spec, wait_until
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

from paddock.envs.remote import guard  # noqa: E402
from paddock.envs.remote.frames import FIXED, START, SUMS, Kind, join, split  # noqa: E402
from paddock.envs.remote.server.session import Session  # noqa: E402
from paddock.envs.remote.values import Garbled, Unsayable, decode, encode  # noqa: E402

# (d) Numbers of orders, and whose session it is


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ([begin(1), turn(2), turn(2, action=3)], "order 2 came again, and is another one"),
        ([begin(1), turn(3)], "order 3 came where 2 is due"),
        ([begin(2**64 - 1)], f"order {2**64 - 1} came where 1 is due"),
        ([begin(-1, key=2)], None),
        ([join(Kind.STEP, [1, 0, [0, 3]], [np.zeros(3, np.int64)])], "rows are not some of the 2"),
        ([join(Kind.STEP, [1, 0, [0, 2]], [np.zeros(9, np.int64)])], "a body of 72 bytes where 16"),
        ([join(Kind.STEP, [1, 0, np.array([0, 0], "<u4").tobytes()], [np.zeros(2, np.int64)])], "rows are not"),
        ([join(Kind.STATE, [1, 0])], "where nothing was replayed"),
        ([join(Kind.OUTCOME, [1, 0])], "is no order"),
        ([join(Kind.BEGIN, [1, 0, "x", np.zeros(2, np.int64), np.arange(2), None])], "a key is no whole number"),
        *(
            ([join(Kind.RESET, [1, 0, [0, 2], [1, 2], {}, back])], "an episode of a joint world is no short name")
            for back in ("w", ["w", 1], ["w", 1, -1, 0], ["w", 2**53, 0, 0], ["w" * 65, 1, 0, 0])
        ),
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
        from paddock.envs.vector.storage import Layouts

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
        encode(np.array("xy", "<U2")).replace(b"x\0\0\0", b"x\0\0\1"),
        encode(np.array("xy", ">U2")).replace(b"\0\0\0x", b"\xff\0\0x"),
    ],
)
def test_a_message_that_claims_too_much_is_refused(data: bytes) -> None:
    with pytest.raises(Garbled):
        decode(data)


@pytest.mark.parametrize("count", [120, pytest.param(100_000, marks=[pytest.mark.nightly, pytest.mark.timeout(900)])])
def test_forged_requests_leave_the_server_and_other_sessions_as_they_were(
    serve: Any, undisturbed: str, count: int
) -> None:
    server, chance = serve(COUNTING, Serial(num_envs=4 * N), max_sessions=64), random.Random(3)
    open_: dict[str, Any] = {"nonce": b"n" * 16, "environment": "Counting-v0", "num_envs": 1, "autoreset": "SAME_STEP"}
    good: dict[str, dict[str, Any]] = {
        "Open": open_,
        "Describe": {"protocol": 2},
        "Stats": {},
        "Close": {"session": "0", "secret": b"s" * 16},
    }
    with guard.connect(server.address, None, {}) as channel, closing(remote(server.address).make(COUNTING)) as venv:

        def forge(name: str) -> None:
            data = bytearray(encode({**good[name], "beside": [1, "é", np.zeros(2)]}))
            for _ in range(chance.randint(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            with suppress(grpc.RpcError):
                channel.unary_unary(f"/{guard.SERVICE}/{name}")(bytes(data), timeout=10)

        def between(t: int, k: int) -> None:
            for _ in range(max(1, count // 36)):
                forge(chance.choice(list(good)))
            with suppress(grpc.RpcError):
                list(channel.stream_stream(f"/{guard.SERVICE}/Play")(iter([mutate(turn(1), chance)]), timeout=10))

        assert play(venv, between) == undisturbed and venv.restarts == venv._connections[0].reconnects == 0


@pytest.mark.parametrize(
    "forged",
    [
        {"environment": np.zeros(3)},
        {"autoreset": np.zeros(3)},
        {"autoreset": []},
        {"world": "w", "agents": [["a"]]},
        {"world": "w", "agents": [np.zeros(3)]},
        {"groups": 0},
        {"groups": np.zeros(3)},
    ],
    ids=["environment", "autoreset", "a list", "agents", "an agent", "no group", "groups"],
)
def test_requests_of_other_types_are_refused(serve: Any, forged: dict[str, Any]) -> None:
    server = serve(env_spec("toy_worlds:Told"), Serial(num_envs=1))
    asked = {"nonce": b"n" * 16, "environment": "toy_worlds:Told", "num_envs": 1, "autoreset": "DISABLED"}
    with guard.connect(server.address, None, {}) as channel:
        ask = channel.unary_unary(f"/{guard.SERVICE}/Open")
        with pytest.raises(grpc.RpcError) as caught:
            ask(encode(asked | forged), timeout=20)
        assert caught.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
        assert "session" in decode(ask(encode(asked), timeout=20))


def test_a_message_that_unpacks_to_more_than_there_is_room_for_is_refused(serve: Any) -> None:
    server = serve(COUNTING)
    with guard.connect(server.address, None, {}) as channel:
        ask = channel.unary_unary(f"/{guard.SERVICE}/Stats")
        with pytest.raises(grpc.RpcError) as caught:
            ask(bytes(8 << 20), timeout=20, compression=grpc.Compression.Gzip)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "rows" in decode(ask(encode({}), timeout=10))


def test_a_client_that_never_reads_stalls_itself_alone(serve: Any, undisturbed: str) -> None:
    server = serve(COUNTING, Serial(num_envs=2 * N))
    raw = Raw(server)
    wire = raw.attach()
    wire.send(begin(1))
    for _ in range(2000):  # each is answered by what is kept of it
        wire.send(turn(2))
    with closing(remote(server.address).make(COUNTING)) as venv:
        assert play(venv) == undisturbed
    session = server.sessions.find(raw.session, raw.secret)
    assert session is not None and len(session._kept) <= 2
    wire.close()


def test_what_a_client_must_have_is_not_kept_for_it(serve: Any) -> None:
    server = serve(COUNTING)
    raw = Raw(server)
    wire = raw.attach()
    session = server.sessions.find(raw.session, raw.secret)
    assert session is not None
    wire.send(begin(1))
    for k in range(2, 302):  # the second row acts three times as often as both together
        rows = [0, 2] if k % 4 == 0 else [1, 2]
        wire.send(join(Kind.STEP, [k, 0, rows], [np.zeros(rows[1] - rows[0], np.int64)]))
    assert [wire.receive().header[0] for _ in range(302)] == [0, *range(1, 302)]
    assert sorted(session._kept) == [1, 301]
    wire.close()
    wire = raw.attach(received=299)
    assert [wire.receive().header[0] for _ in range(2)] == [301, 301]
    for k in range(302, 302 + 65):
        wire.send(begin(k))
        assert wire.receive().header[0] == k
    wire.send(begin(302 + 65))
    assert wire.receive().header[2] == "the session is closed: it acknowledges nothing"
    wire.close()


def test_a_client_that_was_killed_frees_its_environments(serve: Any) -> None:
    server = serve(COUNTING)
    wire = Raw(server, num_envs=2).attach()
    wire.send(begin(1))
    assert [wire.receive().kind for _ in range(2)] == [Kind.ATTACHED, Kind.OUTCOME]
    assert server.sessions.rows == 2
    wire.close()  # all that is seen of a killed one
    set_lease(server, 0.3)
    wait_until(lambda: server.sessions.rows == 0)
