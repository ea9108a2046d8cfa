"""The generator functions that plans are made of: lazy, composable, and ended by closing them."""

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")


def prefetch(source: Generator[Item, None, None], depth: int) -> Generator[Item, None, None]:
    """Pull from source in a thread, at most `depth` items ahead; its exception is raised where its item would be.

    Closing this generator ends the thread, once the source has given the item it is at.
    """
    ready: queue.Queue[tuple[bool, Any]] = queue.Queue(depth)
    stop = threading.Event()

    def offer(kind: bool, item: Any) -> bool:
        while not stop.is_set():
            try:
                ready.put((kind, item), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def pull() -> None:
        try:
            for item in source:
                if not offer(True, item):
                    return
            offer(False, None)
        except BaseException as error:
            offer(False, error)
        finally:
            source.close()

    thread = threading.Thread(target=pull, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            more, item = ready.get()
            if more:
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        stop.set()
        thread.join()


def minibatches(size: int, batch: int, generator: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Shuffled indices of range(size) in parts of `batch`; the last part may be smaller."""
    order = generator.permutation(size)
    for start in range(0, size, batch):
        yield order[start : start + batch]
