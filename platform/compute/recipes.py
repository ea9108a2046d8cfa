"""Recipes for pools of Dask workers: checked at the border, opened when everything else has been checked too.

Dask takes half a second to import, which an error message should not wait for; so it comes when a pool is opened.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from envs.errors import nearest, require

SCHEMES = ("tcp", "tls", "ucx", "ucxx", "ws", "wss")


@dataclass(frozen=True, kw_only=True)
class Local:
    """Worker processes on this machine."""

    workers: int | None  # None: one per core
    retries: int
    task_timeout_s: float | None

    def __post_init__(self) -> None:
        _check(self.workers, self.retries, self.task_timeout_s)

    def open(self, imports: Collection[str]) -> Any:
        """Start the workers. They are copies of this process, and can import what it can."""
        from .cluster import local

        return local(self.workers, self.retries, self.task_timeout_s)

    def describe(self) -> str:
        """One line on the workers there would be."""
        return f"{self.workers or os.cpu_count()} processes on this machine"


@dataclass(frozen=True, kw_only=True)
class Dask:
    """The workers of a running scheduler, or of a cluster started here where no address is given."""

    address: str | None
    workers: int | None
    retries: int
    task_timeout_s: float | None

    def __post_init__(self) -> None:
        _check(self.workers, self.retries, self.task_timeout_s)
        if self.address is not None:
            _check_address(self.address)

    def open(self, imports: Collection[str]) -> Any:
        """Join the workers, once they have been found to be like this process and to import what is asked.

        Raises:
            PoolError: the scheduler does not answer, has no worker, or a worker does not match this process.
        """
        from .cluster import connect

        return connect(self.address, self.workers, self.retries, self.task_timeout_s, imports)

    def describe(self) -> str:
        """One line on the workers there would be."""
        if self.address is None:
            return f"{self.workers or os.cpu_count()} processes of a Dask cluster on this machine"
        return f"those of the scheduler at {self.address}"


def _check(workers: int | None, retries: int, task_timeout_s: float | None) -> None:
    fine = workers is None or 1 <= workers <= 1024
    require(fine, f"workers={workers} must be between 1 and 1024, or null for one per core")
    require(0 <= retries <= 100, f"retries={retries} must be between 0 and 100; 3 suits most")
    limit = task_timeout_s
    require(limit is None or limit > 0, f"task_timeout_s={limit} must be positive, or null for no limit")


def _check_address(address: str) -> None:
    remedy = "write it as `dask scheduler` prints it: tcp://HOST:PORT"
    try:
        parts = urlsplit(address if "://" in address else f"tcp://{address}")
        complete = bool(parts.hostname and parts.port)
    except ValueError:
        complete = False
    require(complete, f"address={address} is not an address; {remedy}")
    known = nearest(parts.scheme, SCHEMES)
    require(parts.scheme in SCHEMES, f"address={address} has an unknown protocol, {parts.scheme}; {known}")
