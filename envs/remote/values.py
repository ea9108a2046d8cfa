"""Plain data and arrays as bytes that hold no code: MessagePack, with types of its own for what is NumPy's.

Nothing is ever pickled, and nothing that is decoded names a class. Tuples, whole numbers of less than 4,096 bits,
NumPy's numbers and arrays of them come back as they were, NaNs with their bits.
"""

import re
import sys
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from paddock.envs.errors import PaddockError

ARRAY, OBJECTS, SCALAR, TUPLE, INTEGER = range(1, 6)  # MessagePack's extension types
MOST_DEPTH = 16  # structures in structures
MOST_NODES = 100_000  # values in one message
MOST_INTEGER = 512  # bytes of a whole number, of which Python makes text, unlike of longer ones
DTYPES = re.compile(r"[<>|=]?[?biufcSUmM]\d*(\[\w+\])?")  # numbers, texts and times
PLAIN = frozenset((type(None), bool, int, float, str, bytes))


class Unsayable(PaddockError):
    """A value has no form in bytes; the message says which."""


class Garbled(PaddockError):
    """Bytes are not what they should be."""


def encode(value: Any) -> bytes:
    """Return a value as bytes.

    Raises:
        Unsayable: part of it is an object of another kind than numbers, texts, bytes, arrays, lists, tuples, mappings.
    """
    try:
        return msgpack.packb(value, default=_extend, strict_types=True)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Unsayable(f"{' '.join(str(error).split())[:200]}") from error


def are_same(one: Any, other: Any) -> bool:
    """Return whether two values that were decoded are equal, NaNs and arrays too, and mappings in any order."""
    if type(one) is not type(other) and {type(one), type(other)} & {dict, list, tuple, np.ndarray}:
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(are_same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        alike = (one.dtype, one.shape) == (other.dtype, other.shape)
        if alike and one.dtype.hasobject:
            return are_same(one.ravel().tolist(), other.ravel().tolist())
        return alike and one.tobytes() == other.tobytes()
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(are_same, one, other))
    return bool(one == other) or bool(one != one and other != other)


def settle(value: Any, most_bytes: int) -> Any:
    """Return a copy of a value as it comes to whoever is sent it, whatever becomes of the original.

    Raises:
        Unsayable: it has no form in bytes, or one that is too large for part of a message.
    """
    data = encode(value)
    if len(data) > most_bytes:
        raise Unsayable(f"it has {len(data)} bytes; at most {most_bytes} are taken")
    try:
        _count(taken := _decode(data, 0), 1, MOST_NODES // 2)  # beside what else a message has
    except Garbled as error:
        raise Unsayable(str(error)) from None
    return taken


def is_sayable(value: Any) -> bool:
    """Return whether a value has a form in bytes."""
    try:
        encode(value)
    except Unsayable:
        return False
    return True


def find_unsayable(values: Mapping[str, Any]) -> str:
    """Return the dotted key of the first value that has no form in bytes."""
    for key, value in values.items():
        if not is_sayable(value):
            return f"{key}.{find_unsayable(value)}" if isinstance(value, Mapping) else str(key)
    return ""


def decode(data: bytes | memoryview) -> Any:
    """Return the value that `encode` made these bytes of.

    Raises:
        Garbled: they are of no value, or of one with more parts than a message may have.
    """
    value = _decode(data, 0)
    if type(value) is not list or not PLAIN.issuperset(map(type, value)):  # as a step's header is
        _count(value, 0, 0)
    return value


def _extend(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return msgpack.ExtType(OBJECTS, encode([list(value.shape), value.ravel().tolist()]))
        if DTYPES.fullmatch(value.dtype.str):
            return msgpack.ExtType(ARRAY, encode([value.dtype.str, list(value.shape), value.tobytes()]))
    elif isinstance(value, np.generic):
        if DTYPES.fullmatch(value.dtype.str):
            return msgpack.ExtType(SCALAR, encode([value.dtype.str, value.tobytes()]))
    elif type(value) is tuple:
        return msgpack.ExtType(TUPLE, encode(list(value)))
    elif type(value) is int:
        size = value.bit_length() // 8 + 1
        if size <= MOST_INTEGER:
            return msgpack.ExtType(INTEGER, value.to_bytes(size, "little", signed=True))
        raise TypeError(f"a whole number of {value.bit_length()} bits has no form in bytes")
    elif isinstance(value, dict):
        return dict(value)
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} has no form in bytes")


def _decode(data: bytes | memoryview, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise Garbled(f"more than {MOST_DEPTH} structures lie in each other")

    def extend(code: int, content: bytes) -> Any:
        if code == INTEGER:
            if len(content) > MOST_INTEGER:
                raise Garbled(f"a whole number of {len(content)} bytes")
            return int.from_bytes(content, "little", signed=True)
        inner = _decode(content, depth + 1)
        if type(inner) is not list:
            raise Garbled("an extension holds no list")
        if code == TUPLE:
            return tuple(inner)
        if code == ARRAY and len(inner) == 3:
            return _array(*inner)
        if code == SCALAR and len(inner) == 2:
            return _array(inner[0], [], inner[1])[()]
        if code == OBJECTS and len(inner) == 2 and _is_shape(inner[0]) and type(inner[1]) is list:
            array = np.empty(len(inner[1]), object)
            for k, one in enumerate(inner[1]):  # not at once: NumPy would look into lists
                array[k] = one
            return array.reshape(inner[0])
        raise Garbled(f"{code} is no kind of value")

    try:
        return msgpack.unpackb(
            data, ext_hook=extend, strict_map_key=False, max_array_len=MOST_NODES, max_map_len=MOST_NODES
        )
    except Garbled:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise Garbled(f"no value: {' '.join(str(error).split())[:200]}") from error


def _array(text: Any, shape: Any, content: Any) -> Any:
    if type(text) is not str or not DTYPES.fullmatch(text) or not _is_shape(shape) or type(content) is not bytes:
        raise Garbled("an array is not as arrays are")
    dtype = np.dtype(text)
    count = 1
    for size in shape:
        count *= size
    if not dtype.itemsize or count * dtype.itemsize != len(content):
        raise Garbled(f"{len(content)} bytes where an array {shape} of {text} is announced")
    if dtype.kind == "U" and (np.frombuffer(content, f"{dtype.str[0]}u4") > sys.maxunicode).any():
        raise Garbled("an array of text has what is no letter")
    return np.frombuffer(bytearray(content), dtype, count).reshape(shape)


def _is_shape(shape: Any) -> bool:
    return type(shape) is list and len(shape) <= 32 and all(type(n) is int and 0 <= n < 2**48 for n in shape)


def _count(value: Any, depth: int, nodes: int) -> int:
    """Count values in a value, up to the limits."""
    nodes += 1
    if nodes > MOST_NODES or depth > MOST_DEPTH:
        raise Garbled(f"a message has more than {MOST_NODES} values, or more than {MOST_DEPTH} in each other")
    if type(value) in PLAIN:
        return nodes
    if type(value) is dict:
        for key, item in value.items():
            if type(key) not in PLAIN:
                raise Garbled(f"a key is a {type(key).__name__}")
            nodes = _count(item, depth + 1, nodes)
    elif type(value) in (list, tuple):
        for item in value:
            nodes = _count(item, depth + 1, nodes)
    elif isinstance(value, np.ndarray):
        for item in value.ravel() if value.dtype.hasobject else ():
            nodes = _count(item, depth + 1, nodes)
    elif not isinstance(value, np.generic):
        raise Garbled(f"a value is a {type(value).__name__}")
    return nodes
