"""Compares every worker with this process before its first task, and names the one that does not match.

A worker with another NumPy or Box2D computes other numbers, and one that cannot import the project fails at its first
task. A worker that joins later is examined too, and gets no work if it does not match.
"""

from collections.abc import Collection, Mapping
from typing import Any

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
        if name == "python":
            same, remedy = found.split(".")[:2] == expected.split(".")[:2], "use one environment everywhere"
        elif name in PACKAGES:
            change = f"install {name}=={expected}" if expected != "not installed" else f"uninstall {name}"
            same, remedy = found == expected, f"make it the same there: pip {change}"
        elif name == "__main__":
            same, remedy = found == expected, "move what tasks need of the script into a module"
        else:
            same, remedy = found == expected, f"install {name} there too"
        if not same:
            return f"has {name.replace('python', 'Python')} {found}, this process {expected}; {remedy}"
    return None
