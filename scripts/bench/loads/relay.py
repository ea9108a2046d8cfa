"""A TCP relay that holds every byte back for a while: a network between two machines, where there is none.

    python scripts/bench/loads/relay.py HOST:PORT SECONDS

prints its own address and passes on what comes, in either direction so many seconds later.
"""

import asyncio
import sys


async def serve(to: str, delay_s: float) -> None:
    """Relay until the end of this process."""
    host, _, port = to.rpartition(":")

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pass_on(reader, other_writer, delay_s), pass_on(other_reader, writer, delay_s))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    print(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Write what is read, so many seconds later, in its order."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        data = b"-"
        while data:
            data = await reader.read(1 << 16)
            waiting.put_nowait((loop.time() + delay_s, data))

    reading = asyncio.create_task(read())
    while True:
        due, data = await waiting.get()
        await asyncio.sleep(due - loop.time())
        if not data:
            break
        writer.write(data)
    await reading
    writer.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], float(sys.argv[2])))
