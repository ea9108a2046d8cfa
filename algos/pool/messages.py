"""How drivers and workers send each other messages: pickled lists of them, in parts where they are large.

Dask packs no more than 4 GiB at once, and of a part it is known when it came, however long the whole takes.
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


async def receive(comm: Any, hear: Callable[[], None] = lambda: None) -> list[tuple[Any, ...]]:
    """Read messages that were sent; `hear` is called at each part."""
    parts: list[bytes] = []
    while True:
        part = await comm.read()
        hear()
        if isinstance(part, bytes):
            messages: list[tuple[Any, ...]] = pickle.loads(b"".join([*parts, part]))
            return messages
        parts += part
