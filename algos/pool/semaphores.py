"""Names of the semaphores that a nanny shares with its worker: deleted once both of them have these.

A queue of multiprocessing's has semaphores that are files in /dev/shm, so that a process which starts can find them.
Whoever made them deletes them as it ends, and after a kill its resource tracker does. Where all processes are killed at
once, as a scheduler ends a job, nobody would, and six for each worker would stay until the machine starts again.
"""

from collections.abc import Iterable
from multiprocessing import util
from multiprocessing.synchronize import SemLock
from typing import Any


def delete_names(queues: Iterable[Any]) -> None:
    """Delete the names of the semaphores of queues that this process made, and no other has still to open."""
    finalizers = list(util._finalizer_registry.values())  # type: ignore[attr-defined]
    made = {one._args[0]: one for one in finalizers if one._callback is SemLock._cleanup}  # type: ignore[attr-defined]
    for queue in queues if made else ():
        for lock in (queue._rlock, queue._wlock, queue._sem):
            if (finalize := made.get(lock._semlock.name)) is not None:
                finalize()
