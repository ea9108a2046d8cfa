"""Recipes for pools of Dask workers: checked at the border, opened when everything else has been checked too.

Dask takes half a second to import, which an error message should not wait for; so it comes when a pool is opened.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from algos.pool.protocol import Pool
from envs.cores import usable_cores
from envs.errors import nearest, require

from .dask.autoscale import Bounds
from .tls import check_encrypted, check_tls, security

SCHEMES = ("tcp", "tls", "ucx", "ucxx", "ws", "wss")
MOST = 1024  # workers

Count = int | Mapping[str, int | None] | None  # a number, or {min, max}
Tls = Mapping[str, str | None] | None


@dataclass(frozen=True, kw_only=True)
class Local:
    """Worker processes on this machine."""

    workers: Count
    retries: int
    task_timeout_s: float | None

    def __post_init__(self) -> None:
        self.bounds  # noqa: B018
        _check_faults(self.retries, self.task_timeout_s)

    @property
    def bounds(self) -> Bounds:
        """Fewest and most workers."""
        return read_bounds(self.workers, usable_cores())

    def open(self, imports: Collection[str], folder: Path | None = None) -> Pool:
        """Start the workers. They are copies of this process, and can import what it can."""
        from .dask.cluster import local

        return local(self.bounds, self.retries, self.task_timeout_s, imports)

    def describe(self) -> str:
        """One line on the workers there would be."""
        return f"{self.bounds} processes on this machine"


@dataclass(frozen=True, kw_only=True)
class Dask:
    """The workers of a running scheduler, or of a cluster started here where no address is given."""

    address: str | None
    scheduler_file: str | None
    workers: Count
    retries: int
    task_timeout_s: float | None
    tls: Tls

    def __post_init__(self) -> None:
        self.bounds  # noqa: B018
        _check_faults(self.retries, self.task_timeout_s)
        check_tls(self.tls)
        both = self.address is not None and self.scheduler_file is not None
        require(not both, f"address={self.address} and scheduler_file={self.scheduler_file}: give one of them")
        if self.address is not None:
            _check_address(self.address)
            check_encrypted(f"address={self.address}", self.address, self.tls)

    @property
    def bounds(self) -> Bounds:
        """Fewest and most workers of a cluster started here."""
        return read_bounds(self.workers, usable_cores())

    def open(self, imports: Collection[str], folder: Path | None = None) -> Pool:
        """Join the workers, once they have been found to be like this process and to import what is asked.

        Raises:
            PoolError: the scheduler does not answer, has no worker, or a worker does not match this process.
        """
        from .dask import cluster

        secret = security(self.tls)
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
        """One line on the workers there would be."""
        if self.address is None and self.scheduler_file is None:
            return f"{self.bounds} processes of a Dask cluster on this machine"
        return f"those of the scheduler at {self.address or self.scheduler_file}"


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """Workers as Slurm jobs, submitted from here through dask-jobqueue."""

    workers: Count
    partition: str | None
    account: str | None
    walltime: str
    cores: int
    memory_gb: float
    gpus: int
    directives: Sequence[str]
    prologue: Sequence[str]
    host: str | None
    wait_s: float
    retries: int
    task_timeout_s: float | None
    tls: Tls

    def __post_init__(self) -> None:
        self.bounds  # noqa: B018
        _check_faults(self.retries, self.task_timeout_s)
        check_tls(self.tls)
        for name, path in (self.tls or {}).items():
            spaced = path is not None and path.split() != [path]
            require(not spaced, f"tls: {name}={path} has a space in it, which the jobs' script cannot; move it")
        for name in ("cores", "memory_gb", "wait_s"):
            value = getattr(self, name)
            require(value > 0, f"{name}={value} must be positive")
        require(self.gpus >= 0, f"gpus={self.gpus} must not be negative")
        lasts = f"walltime={self.walltime}"
        require(self.walltime_s >= 60, f"{lasts} is shorter than Slurm's shortest, a minute; write [D-]HH:MM:SS")

    @property
    def bounds(self) -> Bounds:
        """Fewest and most jobs."""
        return read_bounds(self.workers, 1)

    @property
    def walltime_s(self) -> int:
        """How long Slurm lets a job run."""
        parts = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", self.walltime)
        require(parts is not None, f"walltime={self.walltime} is not a time; write [D-]HH:MM:SS, such as 01:00:00")
        assert parts is not None
        days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    def open(self, imports: Collection[str], folder: Path | None = None) -> Pool:
        """Submit the jobs and wait for the first.

        Raises:
            PoolError: Slurm is not here, refuses, or starts no worker in time; or one does not match this process.
        """
        from .slurm import submit

        return submit(self, imports, folder)

    def describe(self) -> str:
        """One line on the workers there would be."""
        return f"{self.bounds} Slurm jobs of {self.cores} worker{'s' if self.cores > 1 else ''} each"


def read_bounds(workers: Count, default: int) -> Bounds:
    """Fewest and most workers of a setting: a number, {min, max}, or null for the default."""
    if not isinstance(workers, Mapping):
        workers = {"min": workers, "max": workers}
    for name in workers:
        require(
            name in ("min", "max"),
            f"compute.workers.{name} is not a key of compute.workers; {nearest(str(name), ('min', 'max'))}",
        )
    given = {name: count for name, count in workers.items() if count is not None}
    for name, count in given.items():
        shown = f"workers={count}" if given.get("min") == given.get("max") else f"workers: {name}={count}"
        whole = isinstance(count, int) and not isinstance(count, bool)
        require(whole and 1 <= count <= MOST, f"{shown} must be a whole number between 1 and {MOST}, or null")
    low = given.get("min", min(default, given.get("max", default)))
    high = given.get("max", low)
    require(low <= high, f"workers: min={low} is more than max={high}; swap them")
    return Bounds(low, high)


def _check_faults(retries: int, task_timeout_s: float | None) -> None:
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
