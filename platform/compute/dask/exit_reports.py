"""How lost workers ended: asked of their nannies, which outlive them, and read from what they wrote last."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import distributed.comm

from paddock.algos.pool.exit_report import QUESTION, last_lines

from .connection import WorkerConnection

NANNY_S = 2.0  # a nanny that has not answered by then is not asked any more
HEARD_S = 10.0  # nor one that has not heard of the end by then, as where the machine has much else to do
END_S = 1.0  # a worker that is to end and has not by then is killed


async def read_exit(connection: dict[str, Any], worker: WorkerConnection) -> str:
    """Return how a lost worker ended: the cause in one line, and its last lines of errors after it, if any.

    Args:
        connection: arguments of connections to nannies.
    """
    cause, last = None, last_lines(worker.answer["stderr"])
    try:
        cause, told = await asyncio.wait_for(_ask(connection, worker.answer), HEARD_S)
        last = told or last
    except (OSError, TimeoutError):
        pass
    return "\n".join([cause or "its process or machine ended", *last])


async def kill(connection: dict[str, Any], worker: WorkerConnection) -> bool:
    """Have a worker's nanny end it and start another.

    Args:
        connection: arguments of connections to nannies.

    Returns:
        whether it has a nanny, and that could be reached.
    """
    reached = False
    if worker.answer["nanny"] is not None:
        with contextlib.suppress(OSError, TimeoutError):
            async with _reaching(connection, worker.answer["nanny"]) as nanny, asyncio.timeout(NANNY_S):
                reached = True
                await nanny.write({"op": "kill", "reason": "it is stuck", "timeout": END_S})
                await nanny.read()
    return reached


async def _ask(connection: dict[str, Any], worker: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    if worker["nanny"] is None:
        return None, []
    async with _reaching(connection, worker["nanny"]) as nanny:
        while True:
            async with asyncio.timeout(NANNY_S):
                await nanny.write({"op": QUESTION, "pid": worker["pid"], "stderr": worker["stderr"]})
                answer = await nanny.read()
            if not isinstance(answer, dict) or "last" not in answer:
                return None, []
            if answer["cause"] is not None:
                return answer["cause"], list(answer["last"])
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def _reaching(connection: dict[str, Any], address: str) -> AsyncIterator[Any]:
    # Dask's limit is not for the handshake, which a nanny that was stopped does not answer.
    async with asyncio.timeout(NANNY_S):
        comm = await distributed.comm.connect(address, NANNY_S, **connection)
    try:
        yield comm
    finally:
        comm.abort()
