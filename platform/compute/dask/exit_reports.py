"""Finds out how lost workers ended, from their nannies, which outlive them."""

import asyncio
from typing import Any

import distributed.comm

from paddock.algos.pool.exit_report import KNOWN_S, QUESTION, answer, describe_end

from .connection import WorkerConnection

NANNY_S = 2.0  # a nanny that has not answered by then is not asked any more


async def read_exit(connection: dict[str, Any] | None, worker: WorkerConnection) -> str:
    """Return how a lost worker ended: the cause in one line, and the traceback of a crash after it, if any.

    Args:
        connection: arguments of connections to nannies; None: they are in this process.
    """
    pid, crash_log, nanny = (worker.answer[name] for name in ("pid", "crash_log", "nanny"))
    if connection is None:
        return await answer(pid, crash_log)
    comm = None
    try:
        if nanny is not None:
            async with asyncio.timeout(NANNY_S):  # Dask's own limit does not include the handshake
                comm = await distributed.comm.connect(nanny, NANNY_S, **connection)
            async with asyncio.timeout(KNOWN_S + NANNY_S):
                await comm.write({"op": QUESTION, "pid": pid, "crash_log": crash_log})
                known = await comm.read()
            if isinstance(known, str):  # else the nanny does not know the question
                return known
    except (OSError, TimeoutError):
        pass
    finally:
        if comm is not None:
            comm.abort()
    return describe_end(None, crash_log)
