"""Handling of lost workers: their tasks run again or are given up, and the cause is reported.

A lost task runs alone from then on, so that a task that kills its workers is identified. It is given up after more
losses than retries, unless another worker still has a copy.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import distributed.comm

from paddock.algos.pool.exit_report import KNOWN_S, QUESTION, answer, describe_end
from paddock.algos.pool.protocol import WorkerLost

from .actors import ActorHandle
from .connection import WorkerConnection
from .tasks import Ended, Item, finish
from .workers import Workers

log = logging.getLogger(__name__)

NANNY_S = 2.0  # timeout of a nanny's answer
WHOLE = 0.9  # share of a worker's lifetime; a task that ran that long needs more than a worker's lifetime
MORE_TIME = "increase the lifetime of workers (compute.time_min, or --lifetime of `dask worker`), or use shorter tasks"
RETIRED = f"it retired before the task ended; {MORE_TIME}"


def take_tasks(workers: Workers, worker: WorkerConnection, retries: int) -> tuple[list[Item], list[Item]]:
    """Remove a lost worker, and return its tasks to run again and those to give up."""
    workers.pop(worker.address, None)
    workers.place(worker)
    unended = [item for item in worker.items.values() if not item.over]
    # Calls of objects may run next to a task that runs alone, since they follow their objects.
    by_itself = worker.alone or len(worker.items) == 1
    for number in list(worker.items):
        workers.release(worker, number)
    again: list[Item] = []
    given_up: list[Item] = []
    for item in unended:
        actor = item.source if isinstance(item.source, ActorHandle) else None
        if _counts(worker, item):
            item.losses += 1
            if item.losses > retries and (by_itself or actor is not None) and not item.held:
                given_up.append(item)
                if actor is not None:
                    actor.items.pop(item.index, None)
                continue
            item.alone = actor is None
        if not item.held:
            again.append(item)
    return again, given_up


async def report_loss(
    worker: WorkerConnection, read: Callable[[WorkerConnection], Awaitable[str]], again: int, given_up: list[Item]
) -> None:
    """Log why a worker was lost, and fail the tasks that are given up."""
    cause = RETIRED if worker.retired else await read(worker)
    if again:
        tasks = f"{again} task{'s' if again > 1 else ''}"
        log.warning("lost worker %s: %s; rerunning its %s", worker.address, cause.partition("\n")[0], tasks)
    ends = []
    for item in given_up:
        text = f"task {item.index} lost its worker {item.losses} times, last {worker.address}: {cause}"
        ends.append((item, Ended(item, error=WorkerLost(text))))
    finish(ends)


def _counts(worker: WorkerConnection, item: Item) -> bool:
    """Return whether a worker's exit counts as a loss of the task; if it retires, only after most of its lifetime."""
    if worker.retired:
        now = time.monotonic()
        return now - item.since > WHOLE * (now - worker.joined)
    return not worker.leaving


async def read_exit(connection: dict[str, Any] | None, worker: WorkerConnection) -> str:
    """Return why a lost worker exited, in one line, followed by the traceback of a crash, if any.

    `connection` has the arguments of connections to nannies; None: nannies are in this process.
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
            if isinstance(known, str):  # otherwise the nanny does not support the request
                return known
    except (OSError, TimeoutError):
        pass
    finally:
        if comm is not None:
            comm.abort()
    return describe_end(None, crash_log)
