"""Keys of Slurm jobs for runs and pool workers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from paddock.envs.certificates import Paths, check_tls
from paddock.envs.errors import require
from paddock.envs.ranges import AT_LEAST_ONE, AT_LEAST_ZERO, PositiveFloat, PositiveInt, Range, check_fields

from ..compute.dask.autoscale import Bounds
from ..compute.keys import Count, Retries, Timeout, read_bounds

RESERVED = {  # sbatch parameters that Paddock sets, or that break tracking of jobs
    *("cluster", "clusters", "no-requeue", "parsable", "quiet", "test-only", "wait", "wrap"),
    *("array", "error", "job-name", "nodes", "ntasks", "ntasks-per-node", "open-mode", "output", "requeue", "signal"),
    *("account", "cpus-per-task", "gpus-per-node", "mem", "partition", "qos", "time"),  # set by their own keys
}
EARLY_S = 60  # Slurm may signal this much earlier than requested (sbatch(1))


@dataclass(frozen=True, kw_only=True)
class JobKeys:
    """Keys of all jobs."""

    partition: str | None
    account: str | None
    qos: str | None
    time_min: PositiveInt
    cpus: PositiveInt
    gpus: Annotated[int, AT_LEAST_ZERO]
    setup: Sequence[str]
    additional: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Resources(JobKeys):
    """Keys of conf/hydra/launcher/slurm.yaml, which documents them."""

    memory_gb: Annotated[
        float | None, Range("must be at least 0.001, or null", low=0.001)
    ]  # 0 MB would mean the whole node
    signal_delay_s: Annotated[int, Range("must be between 10 and 3600 seconds; the default is 120", low=10, high=3600)]
    max_requeues: Annotated[int, AT_LEAST_ZERO]
    max_parallel: Annotated[int | None, AT_LEAST_ONE]

    def __post_init__(self) -> None:
        check_fields(self)
        least = math.ceil((self.signal_delay_s + EARLY_S) / 60)
        require(
            self.time_min >= least,
            f"signal_delay_s={self.signal_delay_s} is too long for time_min={self.time_min}, since Slurm may signal "
            f"{EARLY_S} s early; increase time_min to {least}",
        )
        for key in self.additional:
            taken = str(key).replace("_", "-") in RESERVED
            require(not taken, f"additional: Paddock sets {key}; see the keys in conf/hydra/launcher/slurm.yaml")

    def parameters(self, name: str, jobs: int, environment: Sequence[str]) -> dict[str, Any]:
        """Return the parameters of submitit's SlurmExecutor."""
        chosen = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "mem": None if self.memory_gb is None else f"{round(1024 * self.memory_gb)}M",
            "gpus_per_node": self.gpus or None,
        }
        return {key: value for key, value in chosen.items() if value is not None} | {
            "job_name": name,
            "time": self.time_min,
            "nodes": 1,
            "ntasks_per_node": 1,
            "cpus_per_task": self.cpus,
            "array_parallelism": self.max_parallel or jobs,
            "signal_delay_s": self.signal_delay_s,
            "setup": [*self.setup, *environment],
            "stderr_to_stdout": True,
            "additional_parameters": {"requeue": True, **self.additional},
            # By default a step gets neither the job's CPUs nor its environment, and truncates the log.
            "srun_args": [f"--cpus-per-task={self.cpus}", "--export=ALL", "--open-mode=append"],
            "wckey": None,
        }


@dataclass(frozen=True, kw_only=True)
class WorkerKeys(JobKeys):
    """Keys of conf/compute/slurm.yaml, which documents them."""

    workers: Count
    memory_gb: PositiveFloat
    host: str | None
    wait_s: PositiveFloat
    retries: Retries
    task_timeout_s: Timeout
    tls: Paths

    def __post_init__(self) -> None:
        self.bounds  # noqa: B018
        check_fields(self)
        check_tls(self.tls)

    @property
    def bounds(self) -> Bounds:
        """Minimum and maximum number of jobs."""
        return read_bounds(self.workers, 1)

    def describe(self) -> str:
        """Describe the workers in one line."""
        return f"{self.bounds} Slurm jobs of {self.cpus} worker{'s' if self.cpus > 1 else ''} each"
