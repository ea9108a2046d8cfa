"""Submit a server of environments to Slurm: `python -m paddock.serve ... serve.submit=slurm`."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from paddock.envs.errors import ConfigError, require

from .. import ROOT
from ..config.overrides import format_override
from .options import Resources
from .queue import submit_commands


def submit_server(arguments: Sequence[str], address_file: str | None, resources: Resources) -> str:
    """Put a server into the queue, which writes its address into the file whenever it starts; return the job's id.

    Args:
        arguments: of the command that submits.

    Raises:
        ConfigError: there is no Slurm here, it refuses, or clients could not find the server.
    """
    if address_file is None:
        raise ConfigError("serve.submit=slurm needs serve.address_file=PATH, on a disk that nodes and clients see")
    missing = [name for name in ("sbatch", "srun", "scontrol", "squeue") if shutil.which(name) is None]
    remedy = "submit where Slurm is installed, or leave it out to serve here"
    require(not missing, f"serve.submit=slurm needs {', '.join(missing)} on the PATH; {remedy}")
    path = Path(address_file).absolute()
    own = [one for one in arguments if not one.startswith(("serve.submit=", "serve.address_file=", "slurm."))]
    command = [sys.executable, "-m", "paddock.serve", *own, format_override("serve.address_file", path)]
    found = shlex.quote(f"{ROOT}:{os.getcwd()}")
    setup = [f"export PYTHONPATH={found}${{PYTHONPATH:+:$PYTHONPATH}}", "export PYTHONSAFEPATH=1"]
    parameters = resources.parameters(f"paddock-{path.stem}", 1, setup)
    folder = path.parent / f".{path.name}.slurm"
    [job] = submit_commands(folder, [command], parameters, resources.max_requeues, "slurm", endless=True)
    print(f"job {job.job_id}: serves at file:{path}, {job.paths.stdout}")
    print(f"  python -m paddock algo=ppo env=remote vec=remote vec.address=file:{path}")
    print(f"  scancel {job.job_id}")
    return str(job.job_id)
