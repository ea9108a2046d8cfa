"""Compares every worker with this process before its first task, and names the one that does not match.

A worker with another NumPy or Box2D computes other numbers, and one that cannot import the project fails at its first
task. A worker that joins later is examined too, and gets no work if it does not match.
"""

import asyncio
import platform
import sys
from collections.abc import Collection, Mapping
from typing import Any, cast

import cloudpickle
from distributed import Client

from paddock.algos.pool.protocol import PoolError
from paddock.algos.pool.worker import describe_process

from .dask.connection import WorkerConnection

PACKAGES = ("numpy", "gymnasium", "box2d", "torch", "distributed", "cloudpickle")


def hello(imports: Collection[str]) -> dict[str, Any]:
    """Return what each worker is asked: its versions of packages, and whether it can import those that tasks need."""
    return {"packages": list(PACKAGES), "imports": sorted(imports)}


def examine(worker: WorkerConnection, imports: Collection[str]) -> str | None:
    """Return what keeps a worker from computing what this process would, and the fix; None where nothing does."""
    theirs: Mapping[str, str] = worker.answer["versions"]
    ours: Mapping[str, str] = describe_process(PACKAGES, tuple(sorted(imports)))["versions"]
    for name, expected in ours.items():
        found = theirs.get(name, "unknown")
        same = found.split(".")[:2] == expected.split(".")[:2] if name == "python" else found == expected
        if not same:
            title = "Python" if name == "python" else name
            return f"has {title} {found}, this process {expected}; {_remedy(name, expected)}"
    return None


async def install(client: Client, address: str) -> None:
    """Load `paddock.algos.pool.worker` in a worker that was started without it.

    Raises:
        PoolError: it has another Python, or cannot import the project.
    """
    # Dask's own question needs no code of ours there, and bytecode does not travel between Python versions. Its
    # `get_versions` waits for the answers of all workers.
    question, scheduler = {"op": "versions", "packages": []}, cast(Any, client.scheduler)
    answers = await scheduler.broadcast(msg=question, workers=[address], on_error="ignore")
    if address not in answers:
        raise OSError(f"{address} has gone")
    theirs = str(answers[address]["host"]["python"]).split(".")
    if theirs[:2] != list(platform.python_version_tuple()[:2]):
        ours = platform.python_version()
        raise PoolError(f"has Python {'.'.join(theirs[:3])}, this process {ours}; {_remedy('python', ours)}")
    # For good: several workers are installed at once, and nothing else of this module travels.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    outcome = await asyncio.to_thread(client.run, load_worker, workers=[address], on_error="return")
    error = outcome.get(address)
    if isinstance(error, BaseException):
        raise PoolError(f"cannot import the project ({error}); {_remedy('paddock', '')}")


async def load_worker(dask_worker: Any) -> None:
    """Do on a worker what `--preload paddock.algos.pool.worker` does; it travels there alone, without its module."""
    from paddock.algos.pool.worker import dask_setup

    waiting = dask_setup(dask_worker)
    if waiting is not None:
        await waiting


def _remedy(name: str, expected: str) -> str:
    if name == "python":
        return "use one environment everywhere"
    if name == "paddock":
        return "install the project there (pip install -e .) or start the worker in its root"
    if name == "__main__":
        return "move what tasks need of the script into a module"
    if name not in PACKAGES:
        return f"install {name} there too"
    same = f"install {name}=={expected}" if expected != "not installed" else f"uninstall {name}"
    return f"make it the same there: pip {same}"
