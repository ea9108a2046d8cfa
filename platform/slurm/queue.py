"""Commands put into Slurm's queue, as jobs that are put there again when they meet their time limit."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envs.errors import ConfigError


def submit_commands(
    folder: Path,
    commands: Sequence[Sequence[str]],
    parameters: Mapping[str, Any],
    max_requeues: int,
    keys: str,
    endless: bool = False,
) -> list[Any]:
    """Submit commands as one array of jobs; return them as submitit has them.

    Args:
        folder: where submitit keeps its files, on a disk that the nodes see.
        parameters: of submitit's SlurmExecutor.
        keys: the section of the configuration that Slurm may refuse.
        endless: whether a command that ends by itself, once it was told to, is to begin again.

    Raises:
        ConfigError: Slurm refuses them.
    """
    # These take a tenth of a second that no other command has to wait.
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    from .job import SlurmJob

    executor = submitit.SlurmExecutor(folder, max_num_timeout=max_requeues)
    executor.update_parameters(**parameters)
    delay_s = parameters["signal_delay_s"]
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # where submitit repeats the error
            jobs: list[Any] = executor.submit_array([SlurmJob(command, delay_s, endless) for command in commands])
    except (FailedJobError, FailedSubmissionError) as error:
        said = "; ".join(line.removeprefix("sbatch: error: ") for line in str(error).splitlines())
        raise ConfigError(f"Slurm refuses the jobs: {said}; mend {keys}, or see sinfo") from error
    return jobs
