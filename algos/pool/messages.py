"""Messages between drivers and workers: pickled lists, sent in parts if they are large.

Dask packs at most 4 GiB at once, and each part is a sign of life, however long the whole takes.
"""

import pickle
from collections.abc import Callable, Sequence
from typing import Any

PART = 2**26  # bytes


async def send(comm: Any, messages: Sequence[tuple[Any, ...]]) -> None:
    """Write messages; a part that others follow goes as a list of one."""
    # Pickled here, since Dask would first measure whatever it is to pack.
    data = pickle.dumps(messages, 5)
    last = max(len(data) - 1, 0) // PART * PART
    for start in range(0, last, PART):
        await comm.write([data[start : start + PART]])
    await comm.write(data[last:])


async def receive(comm: Any, on_part: Callable[[], None] = lambda: None) -> list[tuple[Any, ...]]:
    """Read messages that were sent; `on_part` is called at each part."""
    parts: list[bytes] = []
    while True:
        part = await comm.read()
        on_part()
        if isinstance(part, bytes):
            messages: list[tuple[Any, ...]] = pickle.loads(b"".join([*parts, part]))
            return messages
        parts += part
