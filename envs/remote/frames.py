"""Frames: what one message between client and server holds, and what is checked of it before anything else.

24 bytes (magic, version, kind, flags, lengths of header and body, a checksum of all before the body and one of the
body), a header of plain data, and arrays back to back, each padded to 8 bytes, in the layout that was agreed when the
session was opened: a step carries no dtype, shape or key.
"""

import math
import struct
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.remote.values import Garbled, decode, encode
from paddock.envs.vector.storage import RowIndex

PROTOCOL = 8  # what both sides must speak
MAGIC = b"PDK\n"
FIXED = struct.Struct("<4sBBHII")
SUMS = struct.Struct("<II")
START = FIXED.size + SUMS.size
QUIET = 1  # flag of an order: it is done, and no outcome is told
CHOSEN = 2  # flag of a joint world's reset: its seed is that which others had chosen
MOST_SIGNAL = 1 << 16  # bytes of a signal's value
MOST_OPTIONS = 1 << 19  # bytes of a reset's options
MOST_NAME, MOST_COUNT = 64, 1 << 53  # of an episode of a joint world
SPARE = 1 << 20  # bytes of a frame beside what its rows need
CHUNK = 1 << 16  # bytes that are read at once, where no frame is announced
MOST_READ = 1 << 20  # else; a socket holds less, and room for all that is announced would be made each time


class Kind(IntEnum):
    """What a frame says; those of the client come first."""

    ATTACH = 1
    RESET = 2
    BEGIN = 3
    TURN = 4
    STATE = 5
    BEAT = 6
    SIGNAL = 7
    ATTACHED = 16
    OUTCOME = 17
    FAILED = 18
    GOODBYE = 19
    ENDED = 20


KINDS = {int(kind): kind for kind in Kind}  # a call of Kind takes five times as long
ORDERS = (Kind.RESET, Kind.BEGIN, Kind.TURN, Kind.STATE, Kind.SIGNAL)  # the client's, which are numbered


@dataclass(frozen=True)
class Frame:
    """A message that was taken apart.

    Attributes:
        sums: both checksums, which tell one frame from another.
    """

    kind: Kind
    flags: int
    header: list[Any]
    body: memoryview
    sums: tuple[int, int]


def join(kind: Kind, header: Sequence[Any], arrays: Sequence[NDArray[Any]] = (), flags: int = 0) -> bytes:
    """Return a frame's bytes; `Unsayable` where its header has no form in bytes."""
    head = encode(list(header))
    body: list[bytes] = []
    for array in arrays:
        body.append(array.tobytes())
        if over := array.nbytes % 8:
            body.append(bytes(8 - over))
    length, body_sum = 0, 0
    for part in body:
        length += len(part)
        body_sum = zlib.crc32(part, body_sum)
    fixed = FIXED.pack(MAGIC, PROTOCOL, kind, flags, len(head), length)
    padded = head + bytes(-len(head) % 8)
    sums = SUMS.pack(zlib.crc32(padded, zlib.crc32(fixed)), body_sum)
    return b"".join([fixed, sums, padded, *body])


def split(data: bytes) -> Frame:
    """Take a frame apart.

    Raises:
        Garbled: it is no frame, of another version or of an unknown kind, or a bit of it is not as it was sent.
    """
    if len(data) < START:
        raise Garbled(f"{len(data)} bytes are no frame")
    magic, version, kind, flags, head, length = FIXED.unpack_from(data)
    if magic != MAGIC or version != PROTOCOL:
        raise Garbled(f"a frame of protocol {version}, and this side speaks {PROTOCOL}")
    at = START + head + -head % 8
    if at + length != len(data):
        raise Garbled(f"{len(data)} bytes where a frame of {at + length} is announced")
    view = memoryview(data)
    sums = SUMS.unpack_from(data, FIXED.size)
    if zlib.crc32(view[START:at], zlib.crc32(view[: FIXED.size])) != sums[0] or zlib.crc32(view[at:]) != sums[1]:
        raise Garbled("a frame's checksum is not that of its bytes")
    header = decode(view[START : START + head])
    known = KINDS.get(kind)
    if known is None:
        raise Garbled(f"{kind} is no kind of frame")
    if type(header) is not list:
        raise Garbled("a frame's header is no list")
    return Frame(known, flags, header, view[at:], sums)


class FrameReader:
    """Cuts frames out of the bytes of a connection as they arrive.

    Attributes:
        frames: those that are whole.
        wanted: how many bytes may be read next.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        """Take frames of at most so many bytes; None: of any number."""
        self.frames: deque[bytes] = deque()
        self.wanted = CHUNK
        self._most, self._parts, self._held, self._size = most_bytes, list[bytes](), 0, 0

    def add(self, data: bytes) -> None:
        """Take what arrived next.

        Raises:
            Garbled: no frame begins where one is due, or one that is too long.
        """
        while data:
            if not self._size:
                data, self._parts, self._held = b"".join((*self._parts, data)), [], 0
                if len(data) < START:
                    self._keep(data)
                    return
                self._size = self._announced(data)
            lacking = self._size - self._held
            if len(data) < lacking:
                self._keep(data)
                self.wanted = max(CHUNK, min(lacking - len(data), MOST_READ))
                return
            self.frames.append(b"".join((*self._parts, data[:lacking])))
            data, self._parts, self._held, self._size, self.wanted = data[lacking:], [], 0, 0, CHUNK

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self._held += len(data)

    def _announced(self, data: bytes) -> int:
        magic, _, _, _, head, length = FIXED.unpack_from(data)
        size = START + head + -head % 8 + length
        if magic != MAGIC:
            raise Garbled(f"what begins with {data[:4]!r} is no frame")
        if self._most is not None and size > self._most:
            raise Garbled(f"a frame of {size} bytes is announced; at most {self._most} are taken")
        return int(size)


@dataclass(frozen=True)
class JointEpisode:
    """Where in which episode of a joint world a client is, wherever and however often that world is made.

    Attributes:
        world: a name that it had when it was made first.
        number: of the episode in it.
        step: what the client was told last is of; 0: the reset.
        signals: given to the world until the episode had begun; None: it is not known how many.
    """

    world: str
    number: int
    step: int = 0
    signals: int | None = 0

    @classmethod
    def read(cls, said: Any) -> "JointEpisode | None":
        """Return what a header has of it; raises Garbled where that is none."""
        if said is None:
            return None
        if type(said) is list and len(said) == 4 and type(said[0]) is str and len(said[0]) <= MOST_NAME:
            counts = said[1:] if said[3] is not None else said[1:3]
            if all(type(one) is int and 0 <= one < MOST_COUNT for one in counts):
                return cls(*said)
        raise Garbled("an episode of a joint world is no short name and three counts")

    def say(self) -> list[Any]:
        """Return it as a header has it."""
        return list(astuple(self))

    def same(self, other: "JointEpisode | None") -> bool:
        """Return whether another is a place in the same episode."""
        return other is not None and (self.world, self.number) == (other.world, other.number)


class Cursor:
    """Reads the arrays of a body, one after another."""

    def __init__(self, body: memoryview) -> None:
        self._body, self._at = body, 0

    def take(self, dtype: np.dtype[Any], *shape: int) -> NDArray[Any]:
        """Return the next array, a view.

        Raises:
            Garbled: the body has not as much.
        """
        count = math.prod(shape)
        size = count * dtype.itemsize
        if self._at + size > len(self._body):
            raise Garbled(f"a body of {len(self._body)} bytes where {self._at + size} are needed")
        array = np.frombuffer(self._body, dtype, count, self._at).reshape(shape) if size else np.zeros(shape, dtype)
        self._at += size + -size % 8
        return array

    def take_like(self, rows: NDArray[Any], count: int) -> NDArray[Any]:
        """Return the next array, of so many rows as those of another; raises as `take` does."""
        return self.take(rows.dtype, count, *rows.shape[1:])

    def finish(self) -> None:
        """Raise Garbled if something is left."""
        if self._at != len(self._body):
            raise Garbled(f"a body of {len(self._body)} bytes where {self._at} are needed")


def say_rows(rows: RowIndex) -> list[int] | bytes:
    """Return rows as a header has them: (start, stop), or their numbers."""
    return [rows.start, rows.stop] if isinstance(rows, slice) else rows.astype("<u4").tobytes()


def read_rows(said: Any, num_envs: int) -> RowIndex:
    """Return rows that a header has.

    Raises:
        Garbled: they are not distinct rows of so many.
    """
    if type(said) is list and len(said) == 2 and all(type(n) is int for n in said):
        if 0 <= said[0] < said[1] <= num_envs:
            return slice(said[0], said[1])
    elif type(said) is bytes and said and len(said) % 4 == 0:
        rows = np.frombuffer(said, "<u4").astype(np.intp)
        if rows.max() < num_envs and len(np.unique(rows)) == len(rows):
            return rows
    raise Garbled(f"rows are not some of the {num_envs} there are")


def count_rows(rows: RowIndex) -> int:
    """Return how many rows these are."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def shift_rows(rows: RowIndex, by: int) -> RowIndex:
    """Return rows whose numbers are greater by so many."""
    if not by:
        return rows
    return slice(rows.start + by, rows.stop + by) if isinstance(rows, slice) else rows + by
