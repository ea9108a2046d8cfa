"""Pickling between a driver and its workers: objects of `__main__` by value, with one set of globals on a worker."""

import io
import pickle
import sys
from typing import Any

import cloudpickle
from cloudpickle.cloudpickle import _function_setstate

_globals: dict[str, Any] = {"__name__": "__main__"}  # on a worker: globals of the driver's `__main__`
_received: dict[str, Any] = {}  # last received values; a global that differs was reassigned on the worker


def dump(value: Any) -> bytes:
    """Pickle a value; objects of `__main__` are pickled by value, because the receiver cannot import them."""
    try:
        data = pickle.dumps(value, 5)
        if b"__main__" not in data:
            return data
    except Exception:  # cloudpickle either succeeds or raises the error again
        pass
    return dump_by_value(value)


def dump_by_value(value: Any) -> bytes:
    """Pickle a value like `dump`, in one pass over its objects."""
    file = io.BytesIO()
    _Pickler(file, 5).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):
    def _dynamic_function_reduce(self, func: Any) -> Any:
        reduced = super()._dynamic_function_reduce(func)
        if func.__globals__ is not vars(sys.modules["__main__"]):
            return reduced
        make, (code, _, *arguments), state, items, pairs, _ = reduced
        return make, (code, _MainGlobals(), *arguments), state, items, pairs, _set_main_state


class _MainGlobals:
    """Placeholder that is unpickled as the shared globals of a worker."""

    def __reduce__(self) -> Any:
        return _main_globals, ()


def _main_globals() -> dict[str, Any]:
    return _globals


def _set_main_state(function: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Set a function's state, but keep globals that were reassigned on the worker."""
    received = state[1]["__globals__"]
    updates = {
        name: value for name, value in received.items() if name not in _globals or _globals[name] is _received.get(name)
    }
    _received.update(updates)
    state[1]["__globals__"] = updates
    _function_setstate(function, state)
