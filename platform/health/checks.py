"""Checks of `paddock.doctor` that need the installed packages; each tries the component itself."""

import importlib.metadata
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paddock.envs.errors import PaddockError

from ..runs.folder import check_writable
from ..runs.provenance import ask
from .installed import Finding, format_error

LEAST_GB = 2.0  # free disk space: checkpoints and videos of a few runs
ANSWER_S = 20.0  # timeout of external commands


def check_disk(root: Path, least_gb: float = LEAST_GB) -> Finding:
    """Check that the runs folder is writable and has free space."""
    try:
        folder = check_writable(root.absolute())
        free_gb = shutil.disk_usage(folder).free / 1e9
    except OSError as error:
        return Finding("FAIL", f"{root} cannot be written ({error.strerror})", "choose another folder with run.root=")
    if free_gb < least_gb:
        return Finding("warn", f"{folder} has {free_gb:.1f} GB free, less than {least_gb:g}", "free disk space")
    return Finding("ok", f"{folder}: {free_gb:.0f} GB free")


def check_native() -> Finding:
    """Check that the C libraries are built, load, and step an environment."""
    from paddock.algos.learning.replay import library as replay
    from paddock.algos.networks.dense import library as dense
    from paddock.envs.native import library
    from paddock.envs.spec import EnvSpec
    from paddock.envs.vector import Native

    if not library.built():
        return Finding("warn", "not built, so vec=native is unavailable", "install gcc and run pip install again")
    try:
        dense.load(), replay.load()
        env = EnvSpec(id="CartPole-v1", kwargs={}, wrappers=(), max_episode_steps=None, fresh=False)
        vec = Native(num_envs=1, threads=1).make(env)
        vec.reset(seed=0)
        vec.step(np.zeros(1, np.int64))
        vec.close()
    except Exception as error:
        return Finding("FAIL", format_error(error))
    return Finding("ok", f"{library.widest()} instructions")


def check_gpu() -> Finding:
    """Check that GPUs, if present, compute."""
    import torch

    if not torch.cuda.is_available():
        if Path("/dev/nvidiactl").exists():
            remedy = "install a CUDA build of PyTorch (pytorch.org) and a matching driver"
            return Finding("FAIL", f"present, but torch {torch.__version__} cannot use it", remedy)
        return Finding("ok", "none; device=cpu")
    try:
        names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
        for k in range(len(names)):
            torch.ones(8, 8, device=f"cuda:{k}").mm(torch.ones(8, 8, device=f"cuda:{k}")).sum().item()
    except Exception as error:
        return Finding("FAIL", format_error(error), "compare the driver (nvidia-smi) with torch.version.cuda")
    return Finding("ok", f"{', '.join(names)}; CUDA {torch.version.cuda}")


def check_wandb() -> Finding:
    """Check that W&B is installed and has an API key."""
    try:
        version = importlib.metadata.version("wandb")
    except importlib.metadata.PackageNotFoundError:
        return Finding("FAIL", "not installed", "pip install wandb")
    mode = os.environ.get("WANDB_MODE", "online")
    if mode != "online":
        return Finding("ok", f"{version}, WANDB_MODE={mode}")
    from requests.utils import get_netrc_auth  # which wandb installs

    url = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    if get_netrc_auth(url) is None and not os.environ.get("WANDB_API_KEY"):
        return Finding("warn", f"{version}, no API key, so track=wandb works offline", "run `wandb login` to sync")
    return Finding("ok", f"{version}, API key for {url}")


def check_slurm() -> Finding:
    """Check that Slurm's controller answers, if Slurm is installed."""
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        return Finding("ok", "not installed")
    partitions = ask("sinfo", "--noheader", "--format=%P %D %t", timeout_s=ANSWER_S)
    if partitions is None:
        remedy = "set SLURM_CONF to the cluster's slurm.conf, or ask its administrator"
        return Finding("warn", f"{sbatch} exists, but sinfo does not respond", remedy)
    return Finding("ok", f"partitions, nodes, state: {' '.join(partitions.split())}")


def check_compute(recipe: Any, imports: Sequence[str] = ("paddock",)) -> Iterator[tuple[str, Finding]]:
    """Check that a pool opens, and that its workers match this process and answer."""
    try:
        pool = recipe.open(imports)
    except PaddockError as error:
        yield "workers", Finding("FAIL", str(error))
        return
    try:
        yield "workers", Finding("ok", pool.describe())
        ends = list(pool.imap_unordered(_identify_worker, list(range(4 * pool.size))))
        if failed := next((done.error for done in ends if done.error is not None), None):
            yield "tasks", Finding("FAIL", format_error(failed))
        else:
            hosts = sorted({done.value[0] for done in ends})
            yield (
                "tasks",
                Finding("ok", f"answered by {len({done.value for done in ends})} workers on {', '.join(hosts)}"),
            )
    except PaddockError as error:
        yield "tasks", Finding("FAIL", str(error))
    finally:
        pool.close()


def _identify_worker(_: int) -> tuple[str, int]:
    return socket.gethostname(), os.getpid()
