"""Commands in Slurm's queue, as jobs that are put back there when they meet their time limit."""

import contextlib
import io
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.envs.errors import ConfigError

from ..runs.state import explain_refusal, find_job_variables


def submit_commands(
    folder: Path,
    commands: Sequence[Sequence[str]],
    parameters: Mapping[str, Any],
    max_requeues: int,
    keys: str,
    endless: bool = False,
) -> list[Any]:
    """Submit commands as one array of jobs; return submitit's jobs.

    Args:
        folder: where submitit keeps its files, on a disk that the nodes see.
        parameters: of submitit's SlurmExecutor.
        keys: the section of the configuration that Slurm may refuse.
        endless: see `SlurmJob`.

    Raises:
        ConfigError: Slurm refuses them.
    """
    # Slow to import.
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    from .job import SlurmJob

    own = folder / secrets.token_hex(4)  # other commands may have jobs in this folder
    executor = submitit.SlurmExecutor(own, max_num_timeout=max_requeues)
    executor.update_parameters(**parameters)
    delay_s = parameters["signal_delay_s"]
    try:
        with _outside_jobs(), contextlib.redirect_stderr(io.StringIO()):  # submitit repeats the error there
            jobs: list[Any] = executor.submit_array([SlurmJob(command, delay_s, endless) for command in commands])
    except (FailedJobError, FailedSubmissionError) as error:
        shutil.rmtree(own, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()
        failed = error.__cause__
        said = str(error) or (failed.output if isinstance(failed, subprocess.CalledProcessError) else "")
        raise ConfigError(explain_refusal(said, keys)) from error
    return jobs


@contextlib.contextmanager
def _outside_jobs() -> Iterator[None]:
    """Hide the Slurm job around this process from what it starts."""
    hidden = {name: os.environ.pop(name) for name in find_job_variables()}
    try:
        yield
    finally:
        os.environ.update(hidden)
