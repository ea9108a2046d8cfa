"""Opens a pool of workers that are Slurm jobs: dask-jobqueue submits them, a fleet replaces and multiplies them."""

import contextlib
import logging
import os
import shutil
import subprocess
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
from dask_jobqueue import SLURMCluster
from distributed import Client

from algos.pool import PoolError

from .cluster import LEAN, open_pool, quieten
from .elastic import Fleet
from .pool import DaskPool
from .tls import security

if TYPE_CHECKING:
    from .recipes import Slurm

log = logging.getLogger(__name__)

LOST_S = "10s"  # a job that lost its workers for so long is given up and replaced


def submit(recipe: "Slurm", imports: Collection[str], folder: Path | None) -> DaskPool:
    """Start a scheduler here and workers as jobs; logs of the jobs go to folder/workers.

    Raises:
        PoolError: Slurm is not here, refuses, or starts no worker in time; or one does not match this process.
    """
    if shutil.which("sbatch") is None:
        raise PoolError("compute=slurm needs Slurm's sbatch, which is not on PATH; run it on a login node")
    quieten()
    settings = {**LEAN, "distributed.deploy.lost-worker-timeout": LOST_S, "distributed.worker.daemon": False}
    with contextlib.ExitStack() as undo:
        undo.enter_context(dask.config.set(settings))
        undo.callback(_tidy, folder)
        cluster = _cluster(recipe, folder)
        undo.callback(_close, cluster)
        _start(cluster, recipe)
        client = Client(cluster, set_as_default=False)
        undo.callback(client.close)
        fleet = Fleet(cluster, recipe.bounds, recipe.cores)
        log.info("submitted %s Slurm jobs (%s); waiting for the first worker", recipe.bounds.min, _ids(cluster))
        where = f"in {recipe.bounds} Slurm jobs"
        try:
            pool = open_pool(
                client, fleet, recipe.retries, recipe.task_timeout_s, imports, where, recipe.cores, recipe.wait_s
            )
        except TimeoutError as error:
            waited = f"no Slurm job started a worker within compute.wait_s={recipe.wait_s:g}"
            raise PoolError(f"{waited} ({_state(cluster)}); raise it, or see the logs in {folder}/workers") from error
        pool.undo = undo.pop_all()
        return pool


def _cluster(recipe: "Slurm", folder: Path | None) -> Any:
    # A worker retires while there is time to finish what it runs, and not all of them in the same minute.
    margin_s = max(5, min(recipe.walltime_s // 10, 600))
    lifetime_s = recipe.walltime_s - 2 * margin_s
    extra = ["--lifetime", f"{lifetime_s}s", "--lifetime-stagger", f"{margin_s}s"]
    extra += ["--preload", "algos.worker", "--preload-nanny", "algos.worker", "--no-dashboard"]
    gpus = [f"--gres=gpu:{recipe.gpus}"] if recipe.gpus else []
    extra += ["--resources", f"GPU={recipe.gpus // recipe.cores or 1}"] if recipe.gpus else []
    secret = security(recipe.tls)
    home = Path(__file__).resolve().parents[2]
    return SLURMCluster(
        queue=recipe.partition,
        account=recipe.account,
        walltime=recipe.walltime,
        cores=recipe.cores,
        processes=recipe.cores,
        memory=f"{recipe.memory_gb}GB",
        job_extra_directives=[*gpus, *recipe.directives],
        # The jobs import what this process does, wherever they start.
        job_script_prologue=[
            f"export PYTHONPATH={os.pathsep.join(filter(None, [str(home), os.environ.get('PYTHONPATH')]))}",
            f"export PADDOCK_DRAIN_S={0.8 * margin_s:g}",
            *recipe.prologue,
        ],
        worker_extra_args=extra,
        log_directory=str((folder / "workers").absolute()) if folder is not None else None,
        job_name="paddock",
        security=secret,
        protocol="tls://" if secret else "tcp://",
        scheduler_options={"host": recipe.host, "dashboard": False},
        silence_logs="critical",
    )


def _start(cluster: Any, recipe: "Slurm") -> None:
    """Submit the first jobs, and hear of it where Slurm refuses."""

    async def started() -> None:
        cluster.scale(jobs=recipe.bounds.min)
        await cluster

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cluster.sync(started)
    except RuntimeError as error:
        said = [line.strip() for line in str(error).splitlines() if "sbatch:" in line or "rror" in line]
        raise PoolError(f"Slurm refuses a worker's job: {' '.join(said) or error}") from error


def _close(cluster: Any) -> None:
    # Dask asserts that every worker has started, which a job that Slurm refused has not.
    with contextlib.suppress(AssertionError):
        cluster.close()


def _tidy(folder: Path | None) -> None:
    """Remove the folder of logs if no job came to write one."""
    if folder is not None:
        for empty in (folder / "workers", folder):
            with contextlib.suppress(OSError):
                empty.rmdir()


def _ids(cluster: Any) -> str:
    return ", ".join(str(job.job_id) for job in cluster.workers.values()) or "none yet"


def _state(cluster: Any) -> str:
    """What Slurm says of the jobs."""
    ids = ",".join(str(job.job_id) for job in cluster.workers.values())
    command = ["squeue", "-h", "-t", "all", "-j", ids or "0", "-o", "%i %T %r"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.split("\n")
        return "; ".join(line for line in told if line) or "squeue knows none"
    return "squeue does not answer"
