"""Frames: the messages between client and server.

A frame has eight bytes (kind, flags, header length), a MessagePack header, and arrays padded to 8 bytes in the layout
agreed on when the session was opened, so that steps carry no dtypes, shapes or keys.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.remote.values import DecodeError, decode, encode
from paddock.envs.vector.storage import RowIndex

PROTOCOL = 12  # version, equal on both sides
PREFIX = struct.Struct("<BBxxI")
QUIET = 1  # flag of a replayed order, whose outcome is not sent
MAX_OPTIONS = 1 << 19  # bytes of a reset's options
SPARE = 1 << 20  # bytes of a frame besides its rows


class Kind(IntEnum):
    """Kind of a frame: the client's, then the server's."""

    ATTACH = 1
    RESET = 2
    BEGIN = 3
    STEP = 4
    STATE = 5
    HEARTBEAT = 6
    ATTACHED = 16
    OUTCOME = 17
    FAILED = 18
    GOODBYE = 19


KINDS = {int(kind): kind for kind in Kind}  # five times as fast as calling Kind
ORDERS = (Kind.RESET, Kind.BEGIN, Kind.STEP, Kind.STATE)  # numbered requests of the client


@dataclass(frozen=True)
class Frame:
    """Decoded message."""

    kind: Kind
    flags: int
    header: list[Any]
    body: memoryview


def encode_frame(kind: Kind, header: Sequence[Any], arrays: Sequence[NDArray[Any]] = (), flags: int = 0) -> bytes:
    """Encode a frame; raise EncodeError if its header cannot be encoded."""
    head = encode(list(header))
    pieces = [PREFIX.pack(kind, flags, len(head)), head, bytes(-len(head) % 8)]
    for array in arrays:
        pieces += [array.tobytes(), bytes(-array.nbytes % 8)]
    return b"".join(pieces)


def decode_frame(data: bytes) -> Frame:
    """Decode a frame; raise DecodeError for invalid bytes."""
    if len(data) < PREFIX.size:
        raise DecodeError(f"{len(data)} bytes are not a valid frame")
    kind, flags, length = PREFIX.unpack_from(data)
    view, end = memoryview(data), PREFIX.size + length
    header = decode(view[PREFIX.size : end])
    if kind not in KINDS or type(header) is not list:
        raise DecodeError(f"kind {kind} with a header of type {type(header).__name__} is not a valid frame")
    return Frame(KINDS[kind], flags, header, view[end + -length % 8 :])


class ArrayReader:
    """Reader of the arrays of a frame's body."""

    def __init__(self, body: memoryview) -> None:
        self._body, self._at = body, 0

    def take(self, dtype: np.dtype[Any], *shape: int) -> NDArray[Any]:
        """Return a view of the next array; raise DecodeError if the body is too short."""
        count = math.prod(shape)
        size = count * dtype.itemsize
        if self._at + size > len(self._body):
            raise DecodeError(f"the body has {len(self._body)} bytes, expected {self._at + size}")
        array = np.frombuffer(self._body, dtype, count, self._at).reshape(shape) if size else np.zeros(shape, dtype)
        self._at += size + -size % 8
        return array

    def take_like(self, rows: NDArray[Any], count: int) -> NDArray[Any]:
        """Return a view of the next array, of `count` rows like those of another; raise as `take` does."""
        return self.take(rows.dtype, count, *rows.shape[1:])

    def finish(self) -> None:
        """Raise DecodeError unless the whole body has been read."""
        if self._at != len(self._body):
            raise DecodeError(f"the body has {len(self._body)} bytes, expected {self._at}")


def encode_rows(rows: RowIndex) -> list[int] | bytes:
    """Encode rows for a header: (start, stop), or their indices."""
    return [rows.start, rows.stop] if isinstance(rows, slice) else rows.astype("<u4").tobytes()


def decode_rows(encoded: Any, num_envs: int) -> RowIndex:
    """Decode the rows of a header; raise DecodeError unless they are distinct rows of `num_envs`."""
    if type(encoded) is list and len(encoded) == 2 and all(type(n) is int for n in encoded):
        if 0 <= encoded[0] < encoded[1] <= num_envs:
            return slice(encoded[0], encoded[1])
    elif type(encoded) is bytes and encoded and len(encoded) % 4 == 0:
        rows = np.frombuffer(encoded, "<u4").astype(np.intp)
        if rows.max() < num_envs and len(np.unique(rows)) == len(rows):
            return rows
    raise DecodeError(f"rows are not distinct indices below {num_envs}")


def count_rows(rows: RowIndex) -> int:
    """Return the number of rows."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def shift_rows(rows: RowIndex, by: int) -> RowIndex:
    """Return rows with `by` added to their indices."""
    if not by:
        return rows
    return slice(rows.start + by, rows.stop + by) if isinstance(rows, slice) else rows + by
