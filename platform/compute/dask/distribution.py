"""Distribution of tasks over workers: chunks in the order of the batches, and recalls for idle workers.

Everything runs in the client's event loop.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from .connection import WorkerConnection
from .tasks import DaskBatch, Item
from .workers import Workers

CHUNK_S = 0.25  # longest chunk; results are returned as they finish
LEAST_S = 0.008  # shortest chunk; a message costs about a tenth of it
LONG_S = 0.15  # longer tasks wait in the driver for the first free worker


def feed(workers: Workers, batches: Sequence[DaskBatch], timeout_s: float | None) -> None:
    """Send tasks while workers want some, in the order of the batches."""
    reserved: list[WorkerConnection] = []  # not available to later batches
    for batch in batches:
        while _needs_worker(batch) and (worker := _find_worker(workers, batch, reserved)) is not None:
            _send_chunk(workers, worker, batch, timeout_s)
        if batch.waiting and batch.waiting[0].alone:
            reserved += _reserve_worker(workers, batch, reserved)


def recall(worker: WorkerConnection, numbers: list[int]) -> None:
    """Ask a worker to return these of its tasks unless they have started; calls of objects stay."""
    tasks = [number for number in numbers if isinstance(worker.items[number].source, DaskBatch)]
    if tasks:
        worker.recalling = True
        worker.send("recall", tasks)


def rebalance(workers: Workers) -> bool:
    """Recall tasks that wait on busy workers while others are idle; return whether any were recalled."""
    loaded = [worker for worker in workers.values() if len(worker.items) > worker.threads and not worker.recalling]
    loaded.sort(key=lambda worker: worker.expected_s, reverse=True)
    recalled = False
    for worker in loaded[: len(workers.idle)]:
        tasks = [number for number, item in worker.items.items() if isinstance(item.source, DaskBatch)]
        if tasks := tasks[worker.threads :]:  # the earlier ones have started
            recall(worker, tasks[len(tasks) // 2 :])
            recalled = True
    return recalled


def _find_worker(workers: Workers, batch: DaskBatch, reserved: Sequence[WorkerConnection]) -> WorkerConnection | None:
    alone = batch.waiting[0].alone

    def available(worker: WorkerConnection) -> bool:
        # The collections below may still contain a worker that has just become unusable.
        return worker.usable and worker.parallel(batch.needs) > 0 and worker not in reserved

    for worker in filter(available, workers.idle):
        if not (alone and worker.items):
            return worker
    if batch.mean_s is None or batch.mean_s > LONG_S or alone:
        return None
    return next(filter(available, workers.underloaded), None)


def _reserve_worker(workers: Workers, batch: DaskBatch, reserved: Sequence[WorkerConnection]) -> list[WorkerConnection]:
    """Return the worker, if any, to keep free for a task that must run alone."""
    fitting = (worker for worker in workers.values() if worker.usable and worker.parallel(batch.needs))
    rest = (worker for worker in fitting if worker not in reserved)
    return sorted(rest, key=lambda worker: (worker.objects, len(worker.items)))[:1]


def _send_chunk(workers: Workers, worker: WorkerConnection, batch: DaskBatch, timeout_s: float | None) -> None:
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
    """Return whether a task waits, after dropping those at the front that are over or held again."""
    while batch.waiting and (batch.waiting[0].over or batch.waiting[0].held):
        batch.waiting.popleft().waits = False
    return bool(batch.waiting)


def chunk_size(remaining: int, slots: int, threads: int, mean_s: float | None) -> int:
    """Return how many tasks to send to a worker at once.

    Half of an even share of the remaining tasks, so that the last chunks are single tasks (guided self-scheduling,
    Polychronopoulos and Kuck 1987), between LEAST_S and CHUNK_S of work per thread; one task per thread while their
    duration is unknown.

    Args:
        remaining: tasks not yet sent.
        slots: threads of all workers.
        threads: threads of this worker that can run such tasks.
        mean_s: mean duration of a task; None: unknown.
    """
    if mean_s is None:
        return threads
    share = math.ceil(remaining * threads / (2 * max(slots, 1)))
    most, least = (int(threads * seconds / max(mean_s, 1e-6)) for seconds in (CHUNK_S, LEAST_S))
    return max(1, least, min(share, most))
