"""Commands put into Slurm's queue, as jobs that are put there again when they meet their time limit."""

import contextlib
import io
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from paddock.envs.errors import ConfigError, nearest

from ..runs.state import JOB_ID, explain_refusal, find_job_variables

ANSWER_S = 10.0  # sbatch that has not answered by then is not waited for


def check_options(options: Mapping[str, Any], keys: str) -> None:
    """Have sbatch read options that it may not know; where it is not here, or has no configuration, all pass.

    Args:
        options: further parameters, as submitit names them.
        keys: the section of the configuration that they are of.

    Raises:
        ConfigError: it does not know one, or not so.
    """
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        refusal = re.search(r"^sbatch: (.*option.*)", _ask_sbatch(flag if value is True else f"{flag}={value}")[1])
        if refusal:
            known = re.findall(r"--([a-z][\w-]+)", _ask_sbatch()[0])
            hint = "" if flag[2:] in known else f"; {nearest(flag[2:], known)}"
            raise ConfigError(f"{keys}.additional.{name}: sbatch says {refusal[1]}{hint}")


def _ask_sbatch(*words: str) -> tuple[str, str]:
    """What sbatch prints of its options, after it has read these, or what it has against them."""
    try:
        command = ["sbatch", *words, "--help"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    return (answer.stdout, "") if answer.returncode == 0 else ("", answer.stderr)


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

    # Of its own, so that where Slurm refuses these, nothing goes that jobs of another command have there.
    own = folder / secrets.token_hex(4)
    # Not in a subclass: it makes an executor of its own class for an array.
    taken: list[str] = []
    read = partial(_read_job_id, taken=taken)
    submitit.SlurmExecutor._get_job_id_from_submission_command = staticmethod(read)  # type: ignore[method-assign]
    executor = submitit.SlurmExecutor(own, max_num_timeout=max_requeues)
    executor.update_parameters(**parameters)
    delay_s = parameters["signal_delay_s"]
    try:
        with _outside_jobs(), contextlib.redirect_stderr(io.StringIO()):  # where submitit repeats the error
            jobs: list[Any] = executor.submit_array([SlurmJob(command, delay_s, endless) for command in commands])
    except (FailedJobError, FailedSubmissionError) as error:
        shutil.rmtree(own, ignore_errors=True)
        with contextlib.suppress(OSError):  # something else is in it
            folder.rmdir()
        failed = error.__cause__
        said = str(error) or (failed.output if isinstance(failed, subprocess.CalledProcessError) else "")
        raise ConfigError(explain_refusal(said, keys)) from error
    except BaseException:  # a full disk, Ctrl-C: nobody would know of them
        if taken:
            subprocess.run(["scancel", *taken], capture_output=True)
        raise
    return jobs


@contextlib.contextmanager
def _outside_jobs() -> Iterator[None]:
    """Have what this process starts know of no Slurm job that it is in."""
    hidden = {name: os.environ.pop(name) for name in find_job_variables()}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _read_job_id(said: str, taken: list[str]) -> str:
    """The id of a job that was submitted, where submitit would take a number in a site's banner for it.

    Args:
        taken: it is added here.
    """
    from submitit.core.utils import FailedSubmissionError

    found = re.search(JOB_ID, said)
    if found is None:
        raise FailedSubmissionError(f"sbatch names no job: {said}")
    taken.append(found["job_id"])
    return taken[-1]
