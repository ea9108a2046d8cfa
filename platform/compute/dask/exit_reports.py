"""How lost workers ended: asked of their nannies, which outlive them, and read from what they wrote last."""

import asyncio
from typing import Any

import distributed.comm

from algos.pool.exit_report import QUESTION, last_lines

from .connection import WorkerConnection

NANNY_S = 2.0  # a nanny that has not heard of the end by then is not asked any more


class ExitReporter:
    """Reports how a lost worker ended: the cause, and its last lines of errors below."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self._connection = connection

    async def __call__(self, worker: WorkerConnection) -> str:
        """Return the cause in one line, and any last lines after it."""
        cause, last = None, last_lines(worker.answer["stderr"])
        try:
            cause, told = await asyncio.wait_for(self._ask(worker), NANNY_S)
            last = told or last
        except (OSError, TimeoutError):
            pass
        return "\n".join([cause or "its process or machine ended", *last])

    async def _ask(self, worker: WorkerConnection) -> tuple[str | None, list[str]]:
        if worker.answer["nanny"] is None:
            return None, []
        comm = await distributed.comm.connect(worker.answer["nanny"], NANNY_S, **self._connection)
        try:
            while True:
                question = {"op": QUESTION, "pid": worker.answer["pid"], "stderr": worker.answer["stderr"]}
                await comm.write(question)
                answer = await comm.read()
                if not isinstance(answer, dict) or "last" not in answer:
                    return None, []
                if answer["cause"] is not None:
                    return answer["cause"], list(answer["last"])
                await asyncio.sleep(0.05)
        finally:
            comm.abort()
