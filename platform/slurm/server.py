"""Submit an environment server to Slurm: `python -m paddock.serve ... serve.submit=slurm`."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from paddock.envs.errors import ConfigError

from .. import ROOT
from ..config.overrides import format_override
from .options import Resources
from .queue import require_slurm, submit_commands


def submit_server(arguments: Sequence[str], address_file: str | None, resources: Resources) -> str:
    """Submit a server that writes its address into a file whenever it starts; return the job's id.

    `arguments` are those of the submitting command; ConfigError is raised if Slurm is missing or rejects the job.
    """
    if address_file is None:
        raise ConfigError("serve.submit=slurm needs serve.address_file=PATH, on a disk that nodes and clients share")
    require_slurm("serve.submit=slurm", "serve")
    path = Path(address_file).absolute()
    kept = [one for one in arguments if not one.startswith(("serve.submit=", "serve.address_file=", "slurm."))]
    command = [sys.executable, "-m", "paddock.serve", *kept, format_override("serve.address_file", path)]
    path_entries = shlex.quote(f"{ROOT}:{os.getcwd()}")
    setup = [f"export PYTHONPATH={path_entries}${{PYTHONPATH:+:$PYTHONPATH}}", "export PYTHONSAFEPATH=1"]
    parameters = resources.parameters(f"paddock-{path.stem}", 1, setup)
    folder = path.parent / f".{path.name}.slurm"
    [job] = submit_commands(folder, [command], parameters, resources.max_requeues, "slurm", endless=True)
    print(f"job {job.job_id}: address in file:{path}, output in {job.paths.stdout}")
    print(f"  python -m paddock algo=ppo env=remote vec=remote vec.address=file:{path}")
    print(f"  scancel {job.job_id}")
    return str(job.job_id)
