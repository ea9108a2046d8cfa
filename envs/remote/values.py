"""Plain data and NumPy arrays as MessagePack, with extension types for NumPy's.

Nothing is ever pickled, and no encoded value names a class. Tuples, NumPy scalars and arrays are decoded as they were
encoded, NaNs with their bits.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from paddock.envs.errors import PaddockError

ARRAY, OBJECTS, SCALAR, TUPLE = range(1, 5)  # MessagePack's extension types
DTYPES = re.compile(r"[<>|=]?[?biufcSUmM]\d*(\[\w+\])?")  # numbers, strings and times


class EncodeError(PaddockError):
    """A value cannot be encoded; the message says which."""


class DecodeError(PaddockError):
    """Bytes are not what they should be."""


def encode(value: Any) -> bytes:
    """Return a value as bytes.

    Raises:
        EncodeError: part of it is neither a number of at most 64 bits, text, bytes, an array, a list, a tuple nor a
            mapping.
    """
    try:
        return msgpack.packb(value, default=_extend, strict_types=True)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EncodeError(f"{' '.join(str(error).split())[:200]}") from error


def decode(data: bytes | memoryview) -> Any:
    """Return the value that `encode` made these bytes of; raises DecodeError where there is none."""
    try:
        return msgpack.unpackb(data, ext_hook=_read_extension, strict_map_key=False)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise DecodeError(f"no value: {' '.join(str(error).split())[:200]}") from error


def copy_value(value: Any, max_bytes: int) -> Any:
    """Return a copy of a value as its receiver decodes it; raises EncodeError where it is too large or has no form."""
    data = encode(value)
    if len(data) > max_bytes:
        raise EncodeError(f"it has {len(data)} bytes; at most {max_bytes} are accepted")
    return decode(data)


def is_encodable(value: Any) -> bool:
    """Return whether a value can be encoded."""
    try:
        encode(value)
    except EncodeError:
        return False
    return True


def find_unencodable(values: Mapping[str, Any]) -> str:
    """Return the dotted key of the first value that cannot be encoded."""
    for key, value in values.items():
        if not is_encodable(value):
            return f"{key}.{find_unencodable(value)}" if isinstance(value, Mapping) else str(key)
    return ""


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
    elif isinstance(value, dict):
        return dict(value)
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} cannot be encoded")


def _read_extension(code: int, content: bytes) -> Any:
    match code, decode(content):
        case (1, [str(text), list(shape), bytes(data)]):
            return _read_array(text, shape, data)
        case (2, [list(shape), list(items)]):
            array = np.empty(len(items), object)
            for k, item in enumerate(items):  # not at once: NumPy would look into lists
                array[k] = item
            return array.reshape(shape)
        case (3, [str(text), bytes(data)]):
            return _read_array(text, [], data)[()]
        case (4, list(items)):
            return tuple(items)
    raise DecodeError(f"{code} is no extension type with such content")


def _read_array(text: str, shape: list[int], data: bytes) -> Any:
    if not DTYPES.fullmatch(text):
        raise DecodeError(f"{text!r} is no dtype")
    dtype = np.dtype(text)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise DecodeError(f"{len(data)} bytes where an array {shape} of {text} is announced")
    return np.frombuffer(bytearray(data), dtype, math.prod(shape)).reshape(shape)
