"""Learns how a lost worker ended: from its nanny, which outlives it, and from what it wrote last."""

import asyncio
from typing import Any

import distributed.comm

from algos.pool.exit_report import QUESTION, last_lines

from .connection import Link

NANNY_S = 2.0  # a nanny that has not heard of the end by then is not asked any more


class Funeral:
    """Calling it gives, for a lost worker, the cause of its end, with its last lines of errors below."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self._connection = connection

    async def __call__(self, link: Link) -> str:
        """The cause in one line, and any last lines after it."""
        cause, last = None, last_lines(link.answer["stderr"])
        try:
            cause, told = await asyncio.wait_for(self._ask(link), NANNY_S)
            last = told or last
        except (OSError, TimeoutError):
            pass
        return "\n".join([cause or "its process or machine ended", *last])

    async def _ask(self, link: Link) -> tuple[str | None, list[str]]:
        if link.answer["nanny"] is None:
            return None, []
        comm = await distributed.comm.connect(link.answer["nanny"], NANNY_S, **self._connection)
        try:
            while True:
                question = {"op": QUESTION, "pid": link.answer["pid"], "stderr": link.answer["stderr"]}
                await comm.write(question)
                answer = await comm.read()
                if not isinstance(answer, dict) or "last" not in answer:
                    return None, []
                if answer["cause"] is not None:
                    return answer["cause"], list(answer["last"])
                await asyncio.sleep(0.05)
        finally:
            comm.abort()
