"""Plain data and NumPy arrays in MessagePack, with extension types for tuples, NumPy scalars and arrays.

Nothing is pickled, and encoded values name no classes. Decoded values equal the encoded ones, including NaN payloads.
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
    """A value cannot be encoded."""


class DecodeError(PaddockError):
    """Bytes cannot be decoded."""


def encode(value: Any) -> bytes:
    """Encode a value of numbers (up to 64 bits), text, bytes, arrays, lists, tuples and mappings; or raise EncodeError."""
    try:
        return msgpack.packb(value, default=_extend, strict_types=True)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EncodeError(f"{' '.join(str(error).split())[:200]}") from error


def decode(data: bytes | memoryview) -> Any:
    """Decode a value of `encode`; raise DecodeError for invalid bytes."""
    try:
        return msgpack.unpackb(data, ext_hook=_read_extension, strict_map_key=False)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise DecodeError(f"no value: {' '.join(str(error).split())[:200]}") from error


def copy_value(value: Any, max_bytes: int) -> Any:
    """Return a value as its receiver decodes it; raise EncodeError if it is too large or cannot be encoded."""
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
            for k, item in enumerate(items):  # one by one: NumPy would convert lists to arrays
                array[k] = item
            return array.reshape(shape)
        case (3, [str(text), bytes(data)]):
            return _read_array(text, [], data)[()]
        case (4, list(items)):
            return tuple(items)
    raise DecodeError(f"{code} is not a valid extension type")


def _read_array(text: str, shape: list[int], data: bytes) -> Any:
    if not DTYPES.fullmatch(text):
        raise DecodeError(f"{text!r} is not a dtype")
    dtype = np.dtype(text)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise DecodeError(f"{len(data)} bytes, expected an array {shape} of {text}")
    return np.frombuffer(bytearray(data), dtype, math.prod(shape)).reshape(shape)
