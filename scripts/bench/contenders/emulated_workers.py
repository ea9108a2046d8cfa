"""Many Dask workers in one process, for scripts/bench/runs/pool.py: `emulated_workers.py ADDRESS COUNT FOLDER`.

Each worker has its own connections and its own thread for tasks. They share the interpreter, which suffices for tasks
that sleep.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import dask
from distributed import Worker

AT_ONCE = 16  # workers started concurrently
HEARTBEAT_MS = 60_000.0  # rare, since all workers share one core
QUIET = {  # disables monitoring, which would dominate with so many workers in one process
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "60s",
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}


async def main(address: str, count: int, folder: str) -> None:
    """Start the workers, print `ready`, and serve until the scheduler exits."""
    workers: list[Worker] = []
    while len(workers) < count:
        some = [
            Worker(address, nthreads=1, preload=["paddock.algos.pool.worker"], dashboard=False, local_directory=folder)
            for _ in range(min(AT_ONCE, count - len(workers)))
        ]
        workers += await asyncio.gather(*some)
    for worker in workers:
        worker.periodic_callbacks["heartbeat"].callback_time = HEARTBEAT_MS
    print("ready", flush=True)
    await asyncio.gather(*(worker.finished() for worker in workers))


if __name__ == "__main__":
    with dask.config.set(QUIET):
        asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
