"""Ctrl-C in the main thread where something would be left half done: it waits until that is whole.

Where nothing else handles it, Python raises KeyboardInterrupt between any two steps of the main thread, and who catches
it, as a notebook does, may go on with what they have.
"""

import _signal  # type: ignore[import-not-found]  # what signal is without enums, which take ten times as long
import signal
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_waits: dict[CodeType, bool] = {}  # of functions that wait for others: whether also what they call may be ended


def waits(*, throughout: bool) -> Callable[[Function], Function]:
    """Have Ctrl-C come at once where a function waits, though whoever called it is not to be interrupted.

    Args:
        throughout: also in whatever it calls; else where it is itself at work, or in C that it called.
    """

    def note(function: Function) -> Function:
        _waits[function.__code__] = throughout
        return function

    return note


class Uninterrupted:
    """Has Ctrl-C wait in the main thread until all is done with what is in hand, but for what `waits`.

    Attributes:
        came: whether it waits.
        finalizing: whether a finalizer is at work, as garbage is found in the midst of anything.
    """

    came = finalizing = False
    _handler: Any = None  # what it is told to otherwise

    def __enter__(self) -> None:
        self._outermost = False
        handler = _signal.getsignal(signal.SIGINT)
        if handler is _hear or not callable(handler):
            return
        if threading.current_thread() is threading.main_thread():
            Uninterrupted._handler = handler
            _signal.signal(signal.SIGINT, _hear)
            self._outermost = True

    def __exit__(self, *_: object) -> None:
        if self._outermost:
            _signal.signal(signal.SIGINT, Uninterrupted._handler)
            self.let_come()

    @staticmethod
    def let_come(frame: FrameType | None = None) -> None:
        """Have Ctrl-C come now, if it waits and nothing is finalized."""
        if not Uninterrupted.came or Uninterrupted.finalizing:
            return
        if threading.current_thread() is threading.main_thread():
            Uninterrupted.came = False
            Uninterrupted._handler(signal.SIGINT, frame)


class Finalizing(Uninterrupted):
    """Has Ctrl-C wait for what `waits`, too: Python drops what a finalizer raises.

    Where it came in none but this, it comes with the next that is done.
    """

    def __enter__(self) -> None:
        self._first = threading.current_thread() is threading.main_thread() and not Uninterrupted.finalizing
        Uninterrupted.finalizing |= self._first  # before it is heard of: what comes from there on waits
        try:
            super().__enter__()
        except BaseException:
            if self._first:
                Uninterrupted.finalizing = False
            raise

    def __exit__(self, *error: object) -> None:
        try:
            super().__exit__(*error)
        finally:
            if self._first:  # here, as Ctrl-C may come in a call
                Uninterrupted.finalizing = False


def _hear(number: int, frame: FrameType | None) -> None:
    """Take Ctrl-C, in the main thread."""
    Uninterrupted.came = True
    at_once, outer = frame is not None and frame.f_code in _waits, frame
    while outer is not None and not at_once:
        at_once, outer = _waits.get(outer.f_code, False), outer.f_back
    if at_once:
        Uninterrupted.let_come(frame)
