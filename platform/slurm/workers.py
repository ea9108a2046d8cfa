"""Pool of workers in Slurm jobs, submitted by dask-jobqueue and scaled by a worker fleet."""

import asyncio
import contextlib
import copy
import logging
import os
import shlex
import shutil
import signal
import sys
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

from distributed import Client, Security

from paddock.algos.pool.protocol import PoolError

from .. import ROOT
from ..compute.dask.autoscale import NoWorkersError, WorkerFleet
from ..compute.dask.cluster import configure_dask, open_pool
from ..compute.dask.pool import DaskPool
from ..compute.keys import read_security
from ..runs.state import JOB_ID, RUNNING, WAITING, ask_queue, explain_refusal, find_job_variables
from .options import WorkerKeys

_handler = signal.getsignal(signal.SIGINT)
from dask_jobqueue import SLURMCluster  # noqa: E402
from dask_jobqueue.slurm import SLURMJob  # noqa: E402

signal.signal(signal.SIGINT, _handler)  # importing dask-jobqueue replaces it by an exit with code 0

log = logging.getLogger(__name__)

ORPHAN_S = 60  # after which a worker without a scheduler ends its job
ACTIVE = (*WAITING, *RUNNING)
ANSWER_S = 10.0  # timeout of squeue


def submit(recipe: WorkerKeys, imports: Collection[str], folder: Path | None) -> DaskPool:
    """Start a scheduler here and workers as jobs; logs of the jobs go to folder/workers.

    Raises:
        PoolError: Slurm is missing, rejects the jobs or starts no worker in time, or a worker does not match this process.
    """
    if shutil.which("sbatch") is None:
        raise PoolError("compute=slurm needs sbatch on the PATH; run it on a login node")
    configure_dask()
    with contextlib.ExitStack() as undo:
        undo.callback(_remove_empty, folder)
        logs = Path.cwd() if folder is None else folder.absolute() / "workers"
        logs.mkdir(parents=True, exist_ok=True)
        cluster = _cluster(recipe, None if folder is None else logs, read_security(recipe.tls) or Security.temporary())
        undo.callback(_close, cluster)
        _start(cluster, recipe)
        client = Client(cluster, set_as_default=False)
        fleet = WorkerFleet(cluster, recipe.bounds, cluster.ended, recipe.cpus)
        ids = _ids(cluster)
        log.info("submitted %s Slurm jobs (%s); waiting for the first worker", recipe.bounds.min, ", ".join(ids))
        shown = f"the logs in {logs}" if folder else "their logs"
        where = f"in {recipe.bounds} Slurm jobs"
        try:
            workers, limit_s = recipe.cpus, recipe.task_timeout_s
            return open_pool(undo, client, fleet, recipe.retries, limit_s, imports, where, workers, recipe.wait_s)
        except NoWorkersError as error:
            if fleet.any_joined:
                raise
            raise PoolError(f"every job ended before its worker joined ({_state(ids)}); see {shown}") from error
        except TimeoutError as error:
            waited = f"no Slurm job started a worker within compute.wait_s={recipe.wait_s:g}"
            raise PoolError(f"{waited} ({_state(_ids(cluster))}); increase it, or see {shown}") from error


class SlurmWorkerJob(SLURMJob):
    """Worker job that takes its id from sbatch's own line, and inherits nothing from an enclosing job."""

    job_id_regexp = JOB_ID

    async def _submit_job(self, script_filename: str) -> Any:
        around = find_job_variables()
        environment = {name: value for name, value in os.environ.items() if name not in around}
        return await self._call([*shlex.split(self.submit_command), script_filename], env=environment)


class Jobs(SLURMCluster):
    """Cluster sized by jobs instead of workers."""

    job_cls = SlurmWorkerJob

    def _get_worker_security(self, security: Security) -> Security:
        """Return the TLS settings with quoted paths, since Dask does not quote them in the job script."""
        quoted = copy.copy(super()._get_worker_security(security))
        for name in ("tls_ca_file", "tls_worker_cert", "tls_worker_key"):
            setattr(quoted, name, shlex.quote(getattr(quoted, name)))
        return quoted

    def scale(self, n: int | None = None, jobs: int = 0, **limits: Any) -> Any:  # type: ignore[override]
        """Scale to n jobs."""
        return super().scale(jobs=jobs if n is None else n)

    async def ended(self, names: Collection[Any]) -> list[Any]:
        """Return the jobs that are no longer, or never were, in the queue; none if Slurm does not answer."""
        ids = {name: str(self.workers[name].job_id or "") for name in names}
        queue = await asyncio.to_thread(ask_queue, list(filter(None, ids.values())), ANSWER_S)
        return [] if queue is None else [name for name in names if queue.get(ids[name], ("",))[0] not in ACTIVE]


def _cluster(recipe: WorkerKeys, logs: Path | None, security: Security) -> Jobs:
    # Workers retire at staggered times, early enough to finish their tasks. A lifetime starts after the imports, which
    # take ten seconds on a busy machine.
    limit_s = 60 * recipe.time_min
    margin_s = max(10, min(limit_s // 10, 600))
    extra = ["--lifetime", f"{limit_s - 2 * margin_s}s", "--lifetime-stagger", f"{margin_s // 2}s", "--no-dashboard"]
    extra += ["--preload", "paddock.algos.pool.worker", "--preload-nanny", "paddock.algos.pool.worker"]
    extra += ["--resources", f"GPU={recipe.gpus // recipe.cpus or 1}"] if recipe.gpus else []
    directives = [f"--gres=gpu:{recipe.gpus}"] if recipe.gpus else []
    directives += [f"--qos={recipe.qos}"] if recipe.qos else []
    for name, value in recipe.additional.items():
        option = f"--{name.replace('_', '-')}"
        directives.append(option if value is True else f"{option}={value}")
    if logs is not None:
        # Dask's own setting does not quote the path.
        directives += [f"--{name}={shlex.quote(f'{logs}/paddock-%j.{name[:3]}')}" for name in ("error", "output")]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return Jobs(
        queue=recipe.partition,
        account=recipe.account,
        walltime=str(recipe.time_min),
        cores=recipe.cpus,
        processes=recipe.cpus,
        memory=f"{recipe.memory_gb}GB",
        job_extra_directives=directives,
        # Jobs import the same code as this process.
        job_script_prologue=[
            f"export PYTHONPATH={shlex.quote(path)}",
            f"export PADDOCK_DRAIN_S={0.8 * margin_s:g}",
            *recipe.setup,
        ],
        worker_extra_args=extra,
        python=shlex.quote(sys.executable),
        death_timeout=ORPHAN_S,
        job_name="paddock",
        security=security,
        shared_temp_directory=str(logs or Path.cwd()),  # for temporary certificates
        protocol="tls://",
        scheduler_options={"host": recipe.host, "dashboard": False, "dashboard_address": "127.0.0.1:0"},
        silence_logs="critical",
    )


def _start(cluster: Any, recipe: WorkerKeys) -> None:
    async def started() -> None:
        cluster.scale(jobs=recipe.bounds.min)
        await cluster

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cluster.sync(started)
    except (RuntimeError, ValueError) as error:  # ValueError: sbatch printed no job id
        reasons = [line for line in str(error).splitlines() if "sbatch:" in line or "rror" in line]
        raise PoolError(explain_refusal("\n".join(reasons) or str(error), "compute")) from error


def _close(cluster: Jobs) -> None:
    # Dask asserts that its workers report their end, which jobs do not.
    cluster._created.clear()
    with contextlib.suppress(AssertionError):
        cluster.close()
    for name in ("ca_file", "cert", "key"):  # temporary files, if any
        if (file := vars(cluster).get(f"_job_{name}")) is not None:
            file.close()


def _remove_empty(folder: Path | None) -> None:
    if folder is not None:
        for empty in (folder / "workers", folder):
            with contextlib.suppress(OSError):
                empty.rmdir()


def _ids(cluster: Jobs) -> list[str]:
    return [str(job.job_id) for job in cluster.workers.values() if job.job_id is not None]


def _state(ids: list[str]) -> str:
    queue = ask_queue(ids, ANSWER_S)
    if queue is None:
        return "squeue does not respond"
    return "; ".join(f"{job} {state} {reason}" for job, (state, reason, _) in queue.items()) or "squeue knows none"
