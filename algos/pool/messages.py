"""Messages between drivers and workers: pickled lists, in chunks, since Dask sends at most 4 GiB at once."""

import pickle
from collections.abc import Callable, Sequence
from typing import Any

CHUNK = 2**26  # bytes


async def send(comm: Any, messages: Sequence[tuple[Any, ...]]) -> None:
    """Write messages; every chunk except the last is wrapped in a list."""
    # Pickle here, since Dask would measure the objects first.
    data = pickle.dumps(messages, 5)
    last = max(len(data) - 1, 0) // CHUNK * CHUNK
    for start in range(0, last, CHUNK):
        await comm.write([data[start : start + CHUNK]])
    await comm.write(data[last:])


async def receive(comm: Any, on_chunk: Callable[[], None] = lambda: None) -> list[tuple[Any, ...]]:
    """Read messages; call `on_chunk` for each chunk."""
    chunks: list[bytes] = []
    while True:
        chunk = await comm.read()
        on_chunk()
        if isinstance(chunk, bytes):
            messages: list[tuple[Any, ...]] = pickle.loads(b"".join([*chunks, chunk]))
            return messages
        chunks += chunk
