"""Finds out how lost workers ended, from their nannies, which outlive them."""

import asyncio
from typing import Any

import distributed.comm

from paddock.algos.pool.exit_report import QUESTION, last_lines

from .connection import WorkerConnection

NANNY_S = 2.0  # a nanny that has not answered by then is not asked any more
KNOWN_S = 10.0  # nor one that does not know of the end by then, as on a busy machine


async def read_exit(connection: dict[str, Any], worker: WorkerConnection) -> str:
    """Return how a lost worker ended: the cause in one line, and the traceback of a crash after it, if any.

    Args:
        connection: arguments of connections to nannies.
    """
    cause, last = None, last_lines(worker.answer["crash_log"])
    question = {"op": QUESTION, "pid": worker.answer["pid"], "crash_log": worker.answer["crash_log"]}
    nanny = None
    try:
        if worker.answer["nanny"] is not None:
            async with asyncio.timeout(NANNY_S):  # Dask's own limit does not include the handshake
                nanny = await distributed.comm.connect(worker.answer["nanny"], NANNY_S, **connection)
        async with asyncio.timeout(KNOWN_S):
            while nanny is not None and cause is None:
                await nanny.write(question)
                answer = await nanny.read()
                if not isinstance(answer, dict) or "last" not in answer:
                    break  # a nanny that does not know the question
                cause, last = answer["cause"], answer["last"] or last
                await asyncio.sleep(0.05)
    except (OSError, TimeoutError):
        pass
    finally:
        if nanny is not None:
            nanny.abort()
    return "\n".join([cause or "its process or machine ended", *last])
