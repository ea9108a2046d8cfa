"""Which worker gets which tasks: chunks in the order of the batches, and what is called back from one for another.

All of it belongs to the client's event loop.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from .connection import WorkerConnection
from .tasks import DaskBatch, Item
from .workers import Workers

CHUNK_S = 0.25  # of work in a chunk at most; ends stream back all the while
LEAST_S = 0.008  # of work in a chunk at least: a message costs about a tenth of it
LONG_S = 0.15  # tasks of this length wait here, for whichever worker is free first


def feed(workers: Workers, batches: Sequence[DaskBatch], timeout_s: float | None) -> None:
    """Send tasks while a worker wants some, in the order of the batches.

    Args:
        timeout_s: that a task may take.
    """
    kept: list[WorkerConnection] = []  # which no further batch may have
    for batch in batches:
        while _needs_worker(batch) and (wanting := _find_room(workers, batch, kept)) is not None:
            _give(workers, wanting, batch, timeout_s)
        if batch.waiting and batch.waiting[0].alone:
            kept += _nearest_to_empty(workers, batch, kept)


def recall(worker: WorkerConnection, numbers: list[int]) -> None:
    """Ask a worker to return these of its tasks, as far as it has not begun them; a call of an object stays."""
    tasks = [number for number in numbers if isinstance(worker.items[number].source, DaskBatch)]
    if tasks:
        worker.recalling = True
        worker.send("recall", tasks)


def rebalance(workers: Workers) -> bool:
    """Call back what waits on one worker while another has nothing; return whether anything was called back."""
    rich = [worker for worker in workers.values() if len(worker.items) > worker.threads and not worker.recalling]
    rich.sort(key=lambda worker: worker.expected_s, reverse=True)
    recalled = False
    for worker in rich[: len(workers.idle)]:
        tasks = [number for number, item in worker.items.items() if isinstance(item.source, DaskBatch)]
        if tasks := tasks[worker.threads :]:  # those before are begun
            recall(worker, tasks[len(tasks) // 2 :])
            recalled = True
    return recalled


def _find_room(workers: Workers, batch: DaskBatch, kept: Sequence[WorkerConnection]) -> WorkerConnection | None:
    alone = batch.waiting[0].alone

    def may_have(worker: WorkerConnection) -> bool:
        # One that was let go a moment ago still stands among those that want some.
        return worker.usable and worker.parallel(batch.needs) > 0 and worker not in kept

    for worker in filter(may_have, workers.idle):
        if not (alone and worker.items):
            return worker
    if batch.mean_s is None or batch.mean_s > LONG_S or alone:
        return None
    return next(filter(may_have, workers.hungry), None)


def _nearest_to_empty(workers: Workers, batch: DaskBatch, kept: Sequence[WorkerConnection]) -> list[WorkerConnection]:
    """Return the worker, if any, that is to have nothing else until a task runs there that must be alone."""
    fitting = (worker for worker in workers.values() if worker.usable and worker.parallel(batch.needs))
    rest = (worker for worker in fitting if worker not in kept)
    return sorted(rest, key=lambda worker: (worker.objects, len(worker.items)))[:1]


def _give(workers: Workers, worker: WorkerConnection, batch: DaskBatch, timeout_s: float | None) -> None:
    threads = worker.parallel(batch.needs)
    size = chunk_size(batch.remaining, workers.slots // batch.needs.cpu, threads, batch.mean_s)
    if batch.mean_s is None:
        size = max(size - len(worker.items), 1)
    items: list[Item] = []
    while _needs_worker(batch) and len(items) < size and not (items and (items[-1].alone or batch.waiting[0].alone)):
        item = batch.waiting.popleft()
        item.waits = False
        items.append(item)
    worker.share(batch.blobs)
    for item in items:
        if item.blobs:
            worker.share(item.blobs)
    sent = [(workers.hold(worker, item, batch.mean_s), item.data) for item in items]
    needs = replace(batch.needs, cpu=worker.threads) if items[0].alone else batch.needs
    worker.send("run", batch.function.id, sent, needs, timeout_s, batch.renew_after)
    workers.place(worker)


def _needs_worker(batch: DaskBatch) -> bool:
    """Return whether a task waits; those at the front go that ended meanwhile, or whose worker speaks again."""
    while batch.waiting and (batch.waiting[0].over or batch.waiting[0].held):
        batch.waiting.popleft().waits = False
    return bool(batch.waiting)


def chunk_size(remaining: int, slots: int, threads: int, mean_s: float | None) -> int:
    """Return how many tasks to send to a worker at once.

    Half of an even share of what remains, so that the last chunks are single tasks (guided self-scheduling,
    Polychronopoulos and Kuck 1987), between LEAST_S and CHUNK_S of work for each thread; one for each thread while
    nothing is known of their length.

    Args:
        remaining: tasks not yet sent.
        slots: threads of all workers.
        threads: of this worker, as many as can run such tasks.
        mean_s: of a task; None: not known.
    """
    if mean_s is None:
        return threads
    share = math.ceil(remaining * threads / (2 * max(slots, 1)))
    most, least = (int(threads * seconds / max(mean_s, 1e-6)) for seconds in (CHUNK_S, LEAST_S))
    return max(1, least, min(share, most))
