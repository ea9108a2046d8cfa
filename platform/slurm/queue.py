"""Submission of commands to Slurm, as jobs that are requeued at their time limit."""

import contextlib
import io
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.envs.errors import ConfigError, require

from ..runs.state import explain_refusal, find_job_variables


def require_slurm() -> None:
    """Raise ConfigError if Slurm's commands are missing here."""
    missing = [name for name in ("sbatch", "srun", "scontrol", "squeue") if shutil.which(name) is None]
    remedy = "submit where Slurm is installed, or remove it to run here"
    require(not missing, f"hydra/launcher=slurm needs {', '.join(missing)} on the PATH; {remedy}")


def submit_commands(
    folder: Path, commands: Sequence[Sequence[str]], parameters: Mapping[str, Any], max_requeues: int
) -> list[Any]:
    """Submit commands as an array of jobs; return submitit's jobs, whose files are in a folder that the nodes share."""
    # Slow to import.
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    from .job import SlurmJob

    batch = folder / secrets.token_hex(4)  # other commands may have jobs in this folder
    executor = submitit.SlurmExecutor(batch, max_num_timeout=max_requeues)
    executor.update_parameters(**parameters)
    delay_s = parameters["signal_delay_s"]
    try:
        with _outside_jobs(), contextlib.redirect_stderr(io.StringIO()):  # submitit prints the error too
            jobs: list[Any] = executor.submit_array([SlurmJob(command, delay_s) for command in commands])
    except (FailedJobError, FailedSubmissionError) as error:
        shutil.rmtree(batch, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()
        failed = error.__cause__
        output = str(error) or (failed.output if isinstance(failed, subprocess.CalledProcessError) else "")
        raise ConfigError(explain_refusal(output, "hydra.launcher")) from error
    return jobs


@contextlib.contextmanager
def _outside_jobs() -> Iterator[None]:
    """Hide the variables of the enclosing Slurm job from child processes."""
    hidden = {name: os.environ.pop(name) for name in find_job_variables()}
    try:
        yield
    finally:
        os.environ.update(hidden)
