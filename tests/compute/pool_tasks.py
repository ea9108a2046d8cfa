"""Functions that tests give to pools; workers import them by name."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from distributed.comm.tcp import TCP

from paddock.algos.pool import messages
from paddock.algos.pool.broadcast import Broadcast


def square(x: int) -> int:
    return x * x


def fail_on(bad: tuple[int, ...], x: int) -> int:
    if x in bad:
        raise ValueError(x)
    return x


def touch(path: str) -> None:
    with open(path, "a") as file:
        file.write(".")


def note(path: str, x: int) -> int:
    touch(path)
    return x


def nap(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def crash(x: int) -> int:
    if x == 1:
        ctypes.string_at(0)
    return x


def hold(task: tuple[int, str]) -> int:
    """Wait until a file is there; the task's own file says that it began."""
    index, folder = task
    Path(folder, f"began-{index}-{os.getpid()}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    return index


class Telltale:
    """Counts how often it is pickled here and unpickled anywhere, by files."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __getstate__(self) -> dict[str, Any]:
        Path(self.folder, f"pickled-{time.time_ns()}").touch()
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        Path(self.folder, f"unpickled-{os.getpid()}-{time.time_ns()}").touch()


def look(task: tuple[Broadcast[Telltale], int]) -> int:
    telltale, x = task
    assert telltale.value.folder
    return x


def look_and_die_once(task: tuple[Broadcast[Telltale], int]) -> int:
    telltale, x = task
    marker = Path(telltale.value.folder, "died")
    if x == 3 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def fail_at_first(task: tuple[int, str]) -> int:
    index, folder = task
    marker = Path(folder, f"failed-{index}")
    if not marker.exists():
        marker.touch()
        raise RuntimeError("not yet")
    return index


def most_at_once(task: tuple[int, str]) -> int:
    """How many of these run in this process at the same time, as seen by one of them."""
    index, folder = task
    mine = Path(folder, f"{os.getpid()}-{index}")
    mine.touch()
    time.sleep(0.2)
    seen = len(list(Path(folder).glob(f"{os.getpid()}-*")))
    time.sleep(0.1)
    mine.unlink()
    return seen


class Counter:
    """An object with a state, for stateful workers."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    def add(self, amount: int) -> int:
        self.count += amount
        return self.count

    def where(self) -> int:
        return os.getpid()

    def slowly(self, seconds: float) -> int:
        time.sleep(seconds)
        return self.count

    def fail(self) -> None:
        raise KeyError("of the object")

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def leave(self) -> None:
        sys.exit(3)


def leave(code: int | None) -> None:
    """Leave the process, but for None."""
    if code is not None:
        sys.exit(code)


def add_shared(shared: Broadcast[int], x: int) -> int:
    return shared.value + x


def pack_at_most(limit: int) -> None:
    """Let Dask write no more than so many bytes at once in this process: its own limit, of 4 GiB, takes too long."""
    write = TCP.write

    async def write_little(self: TCP, msg: Any, *args: Any, **kwargs: Any) -> int:
        data = msg[0] if isinstance(msg, list) else msg
        if isinstance(data, bytes) and len(data) > limit:
            raise ValueError("bytes object is too large")
        return int(await write(self, msg, *args, **kwargs))

    TCP.write = write_little  # type: ignore[method-assign]
    messages.CHUNK = min(messages.CHUNK, limit)


def reverse(data: bytes) -> bytes:
    return data[::-1]
