"""Settings of pools of Dask workers, validated early and opened after all other checks.

Dask takes half a second to import, so it is imported when a pool is opened.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from paddock.algos.pool.protocol import Pool
from paddock.envs.certificates import Paths, check_tls
from paddock.envs.errors import require
from paddock.envs.machine import usable_cores
from paddock.envs.ranges import check_fields

from ..slurm.options import WorkerKeys
from .dask.autoscale import Bounds
from .keys import Count, Retries, Timeout, check_encrypted, read_bounds, read_security


@dataclass(frozen=True, kw_only=True)
class Local:
    """Worker processes on this machine."""

    workers: Count
    retries: Retries
    task_timeout_s: Timeout

    def __post_init__(self) -> None:
        """Validate the settings."""
        self.bounds  # noqa: B018
        check_fields(self)

    @property
    def bounds(self) -> Bounds:
        """Return the minimum and maximum number of workers."""
        return read_bounds(self.workers, usable_cores())

    def open(self, imports: Collection[str], folder: Path | None = None) -> Pool:
        """Start the workers."""
        from .dask.cluster import local

        return local(self.bounds, self.retries, self.task_timeout_s, imports)

    def describe(self) -> str:
        """Describe the workers in one line."""
        return f"{self.bounds} processes on this machine"


@dataclass(frozen=True, kw_only=True)
class Dask:
    """Workers of a running scheduler, or of a cluster started here if no address is given."""

    address: str | None
    scheduler_file: str | None
    workers: Count
    retries: Retries
    task_timeout_s: Timeout
    tls: Paths

    def __post_init__(self) -> None:
        """Validate the settings."""
        self.bounds  # noqa: B018
        check_fields(self)
        check_tls(self.tls)
        both = self.address is not None and self.scheduler_file is not None
        require(
            not both, f"address={self.address} and scheduler_file={self.scheduler_file} are both set; set one of them"
        )
        if self.address is not None:
            complete = re.fullmatch(r"(\w+://)?([\w.-]+|\[[\da-f:]+\]):\d+", self.address)
            remedy = "write it as `dask scheduler` prints it: tcp://HOST:PORT"
            require(complete is not None, f"address={self.address} is not an address; {remedy}")
            check_encrypted(f"address={self.address}", self.address, self.tls)

    @property
    def bounds(self) -> Bounds:
        """Return the minimum and maximum number of workers of a cluster started here."""
        return read_bounds(self.workers, usable_cores())

    def open(self, imports: Collection[str], folder: Path | None = None) -> Pool:
        """Connect to the workers, and check that they match this process and can import these packages.

        Raises:
            PoolError: the scheduler does not answer, has no worker, or a worker does not match this process.
        """
        from .dask import cluster

        secret = read_security(self.tls)
        address = self.address
        if self.scheduler_file is not None:
            address = cluster.read_scheduler_file(Path(self.scheduler_file))
            check_encrypted(f"compute.scheduler_file={self.scheduler_file}: {address}", address, self.tls)
        if address is not None:
            return cluster.connect(address, self.retries, self.task_timeout_s, imports, secret)
        pool = cluster.local(self.bounds, self.retries, self.task_timeout_s, imports, secret)
        cluster.log.info("compute.address is not set: started a Dask cluster here with %d workers", pool.size)
        return pool

    def describe(self) -> str:
        """Describe the workers in one line."""
        if self.address is None and self.scheduler_file is None:
            return f"{self.bounds} processes of a Dask cluster on this machine"
        return f"those of the scheduler at {self.address or self.scheduler_file}"


@dataclass(frozen=True, kw_only=True)
class Slurm(WorkerKeys):
    """Workers as Slurm jobs, submitted from here through dask-jobqueue."""

    def open(self, imports: Collection[str], folder: Path | None = None) -> Pool:
        """Submit the jobs and wait for the first worker.

        Raises:
            PoolError: Slurm is not installed, rejects the jobs, or starts no worker in time; or a worker does not
                match this process.
        """
        from ..slurm.workers import submit

        return submit(self, imports, folder)
