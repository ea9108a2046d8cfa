"""Compares every worker with this process before the first task, and names the odd one out.

A worker with another NumPy or Box2D computes other numbers, and one that cannot import the project dies of its first
task; both are better said at once.
"""

import importlib.metadata
import platform
import sys
from typing import Any

import cloudpickle
from distributed import Client

from algos.pool import PoolError

PACKAGES = ("numpy", "gymnasium", "box2d", "torch", "distributed", "cloudpickle")


def check_workers(client: Client) -> None:
    """Raise PoolError, naming worker and package, unless all workers can compute what this process would."""
    # Dask's own question needs no code of ours there, and bytecode does not travel between Python versions.
    ours = platform.python_version_tuple()[:2]
    for address, versions in client.get_versions()["workers"].items():
        theirs = str(versions["host"]["python"]).split(".")
        if tuple(theirs[:2]) != ours:
            remedy = "use one environment everywhere"
            raise PoolError(f"worker {address} has Python {'.'.join(theirs[:3])}, this process {_python()}; {remedy}")
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        found: dict[str, Any] = client.run(describe_process, PACKAGES, on_error="return")
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    expected = describe_process(PACKAGES)
    for address, described in found.items():
        if isinstance(described, BaseException):
            raise PoolError(f"worker {address} cannot answer: {described}; restart it with `--preload algos.worker`")
        for name, version in described.items():
            if version != expected[name]:
                raise PoolError(
                    f"worker {address} has {name} {version}, this process {expected[name]}; {_remedy(name)}"
                )


def describe_process(packages: tuple[str, ...]) -> dict[str, str]:
    """The versions of packages in this process, and whether it can import the project."""
    import importlib.metadata
    import importlib.util

    described = {}
    for name in packages:
        try:
            described[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            described[name] = "not installed"
    for name in ("algos", "envs"):
        described[name] = "importable" if importlib.util.find_spec(name) else "not importable"
    return described


def _python() -> str:
    return platform.python_version()


def _remedy(name: str) -> str:
    if name in ("algos", "envs"):
        return "install the project there (pip install -e .) or start the worker in its root"
    return f"install the same there: pip install {name}=={importlib.metadata.version(name)}"
