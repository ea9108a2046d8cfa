"""Compares every worker with this process before the first task, and names the odd one out.

A worker with another NumPy or Box2D computes other numbers, and one that cannot import the project dies of its first
task; both are better said at once.
"""

import platform
import sys
from collections.abc import Collection
from typing import Any

import cloudpickle
from distributed import Client

from algos.pool import PoolError

PACKAGES = ("numpy", "gymnasium", "box2d", "torch", "distributed", "cloudpickle")


def check_workers(client: Client, imports: Collection[str]) -> None:
    """Raise PoolError, naming worker and package, unless all workers can compute what this process would.

    Args:
        imports: packages that the tasks need, by their import names.
    """
    # Dask's own question needs no code of ours there, and bytecode does not travel between Python versions.
    ours = platform.python_version_tuple()[:2]
    answers: Any = client.get_versions()
    for address, versions in answers["workers"].items():
        theirs = str(versions["host"]["python"]).split(".")
        if tuple(theirs[:2]) != ours:
            remedy = "use one environment everywhere"
            raise PoolError(f"worker {address} has Python {'.'.join(theirs[:3])}, this process {_python()}; {remedy}")
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        found: dict[str, Any] = client.run(describe_process, PACKAGES, tuple(imports), on_error="return")
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    expected = describe_process(PACKAGES, tuple(imports))
    for address, described in found.items():
        if isinstance(described, BaseException):
            raise PoolError(f"worker {address} cannot answer: {described}; restart it with `--preload algos.worker`")
        for name, version in described.items():
            if version != expected[name]:
                remedy = _remedy(name, expected[name])
                raise PoolError(f"worker {address} has {name} {version}, this process {expected[name]}; {remedy}")


def describe_process(packages: tuple[str, ...], imports: tuple[str, ...]) -> dict[str, str]:
    """The versions of packages in this process, and whether it can import others."""
    # On a worker this function comes alone, without its module.
    import importlib.util

    described = {}
    for name in packages:
        try:
            described[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            described[name] = "not installed"
    for name in imports:
        described.setdefault(name, "importable" if importlib.util.find_spec(name) else "not importable")
    return described


def _python() -> str:
    return platform.python_version()


def _remedy(name: str, expected: str) -> str:
    if name in ("algos", "envs"):
        return "install the project there (pip install -e .) or start the worker in its root"
    if name not in PACKAGES:
        return f"install {name} there too"
    same = f"install {name}=={expected}" if expected != "not installed" else f"uninstall {name}"
    return f"make it the same there: pip {same}"
