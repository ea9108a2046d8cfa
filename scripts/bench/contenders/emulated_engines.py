"""Many ipyparallel engines in one process, for scripts/bench/runs/pool.py: `emulated_engines.py FILE COUNT`.

Each engine has its own connections and its own thread for tasks. It speaks the protocol of ipyparallel 9 without the
IPython kernel of a real engine, which would slow ipyparallel down.
"""

import asyncio
import functools
import json
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio
from ipyparallel.serialize import serialize_object, unpack_apply_message
from jupyter_client.session import Session

CONTEXT = zmq.asyncio.Context()


async def main(info: dict[str, Any], count: int) -> None:
    """Start the engines, print `ready`, and serve until the process is killed."""
    CONTEXT.set(zmq.MAX_SOCKETS, 4 * count + 8)
    threads = ThreadPoolExecutor(count)
    session = Session(key=info["key"].encode(), signature_scheme=info["signature_scheme"])
    serving = [asyncio.create_task(serve(session, threads, info)) for _ in range(count)]
    print("ready", flush=True)
    await asyncio.gather(*serving)


async def serve(session: Session, threads: ThreadPoolExecutor, info: dict[str, Any]) -> None:
    """Register an engine, and run its tasks one at a time."""
    name = str(uuid.uuid4())

    def connect(kind: int, *channels: str) -> Any:
        socket = CONTEXT.socket(kind)
        socket.setsockopt(zmq.IDENTITY, name.encode())
        for channel in channels:
            socket.connect(f"{info['interface']}:{info[channel]}")
        return socket

    shell, registration = connect(zmq.ROUTER, "mux", "task"), connect(zmq.DEALER, "registration")
    hearts = asyncio.create_task(beat(connect(zmq.SUB, "hb_ping"), connect(zmq.DEALER, "hb_pong")))
    await registration.send_multipart(session.serialize(session.msg("registration_request", {"uuid": name})))
    while not hearts.done():
        idents, frames = session.feed_identities(await shell.recv_multipart())
        request = session.deserialize(frames)
        metadata = {"started": datetime.now(UTC), "dependencies_met": True, "engine": name, "status": "ok"}
        function, given, named = unpack_apply_message(request["buffers"], {})
        value = await asyncio.get_running_loop().run_in_executor(threads, functools.partial(function, *given, **named))
        answer = session.msg("apply_reply", {"status": "ok"}, parent=request["header"], metadata=metadata)
        await shell.send_multipart([*session.serialize(answer, idents), *serialize_object(value)])


async def beat(ping: Any, pong: Any) -> None:
    """Answer the controller's heartbeats."""
    ping.setsockopt(zmq.SUBSCRIBE, b"")
    while True:
        await pong.send_multipart(await ping.recv_multipart())


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])))
