"""The keys of Slurm jobs: of runs and servers, and of a pool's workers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from paddock.envs.certificates import Paths, check_tls
from paddock.envs.errors import require
from paddock.envs.ranges import AT_LEAST_ONE, AT_LEAST_ZERO, PositiveFloat, PositiveInt, Range, check_fields

from ..compute.dask.autoscale import Bounds
from ..compute.keys import Count, Retries, Timeout, read_bounds

OURS = {  # parameters of sbatch that Paddock sets, or that would lose sight of the jobs
    *("cluster", "clusters", "no-requeue", "parsable", "quiet", "test-only", "wait", "wrap"),
    *("array", "error", "job-name", "nodes", "ntasks", "ntasks-per-node", "open-mode", "output", "requeue", "signal"),
    *("account", "cpus-per-task", "gpus-per-node", "mem", "partition", "qos", "time"),  # they are keys themselves
}
EARLY_S = 60  # Slurm may signal so much earlier than asked; see sbatch(1)


@dataclass(frozen=True, kw_only=True)
class JobKeys:
    """The keys that all jobs have."""

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
    """The keys of hydra.launcher; conf/hydra/launcher/slurm.yaml explains them."""

    memory_gb: Annotated[float | None, Range("must be at least 0.001, or null", low=0.001)]  # 0 MB is the whole node
    signal_delay_s: Annotated[int, Range("must be 10 to 3600 seconds; 120 suits most", low=10, high=3600)]
    max_requeues: Annotated[int, AT_LEAST_ZERO]
    max_parallel: Annotated[int | None, AT_LEAST_ONE]
    wait: bool

    def __post_init__(self) -> None:
        check_fields(self)
        least = math.ceil((self.signal_delay_s + EARLY_S) / 60)
        require(
            self.time_min >= least,
            f"signal_delay_s={self.signal_delay_s} is too long for time_min={self.time_min}, as Slurm may signal up to "
            f"{EARLY_S} s earlier; raise time_min to {least}",
        )
        for key in self.additional:
            taken = str(key).replace("_", "-") in OURS
            require(
                not taken, f"additional: {key} is Paddock's own to set; see the keys in conf/hydra/launcher/slurm.yaml"
            )

    def parameters(self, name: str, jobs: int, environment: Sequence[str]) -> dict[str, Any]:
        """These resources as submitit's SlurmExecutor names them."""
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
            # A step has neither the CPUs of its job nor the script's environment unless it asks, and truncates its log.
            "srun_args": [f"--cpus-per-task={self.cpus}", "--export=ALL", "--open-mode=append"],
            "wckey": None,
        }


@dataclass(frozen=True, kw_only=True)
class WorkerKeys(JobKeys):
    """The keys of workers that are Slurm jobs; conf/compute/slurm.yaml explains them."""

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
        """Return the fewest and most jobs."""
        return read_bounds(self.workers, 1)

    def describe(self) -> str:
        """Describe in one line the workers there would be."""
        return f"{self.bounds} Slurm jobs of {self.cpus} worker{'s' if self.cpus > 1 else ''} each"
