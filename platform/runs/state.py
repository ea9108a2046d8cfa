"""States of runs, read from their folders, the locks on them, and Slurm's queue."""

import fcntl
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from paddock.algos.common.disk import tail
from paddock.envs.errors import ConfigError, PaddockError

from .folder import FolderError, has_ended, holds_run, read_config, read_end, read_json
from .journal import JOURNALS, parse_row, to_number
from .loop import Budget, Progress
from .provenance import SNAPSHOT

State = Literal["pending", "requeued", "running", "done", "stopped", "failed", "lost", "unknown"]

ALIVE: tuple[State, ...] = ("pending", "requeued", "running", "unknown")
WRONG: tuple[State, ...] = ("stopped", "failed", "lost")  # ended before the budget
WAITING = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")
RUNNING = ("CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
BOUNDS: tuple[str, ...] = tuple(item.name for item in fields(Budget))
OUT_OF_REACH = re.compile("configuration source|slurm controller|slurm.conf|SlurmctldHost")  # in messages of sbatch
JOB_ID = r"Submitted batch job (?P<job_id>\d+)"  # in sbatch's output
OF_JOB = re.compile("SLURM_(?!CONF|CLUSTERS|JWT)|SLURMD_|SRUN_|SUBMITIT_")  # prefixes of a Slurm job's variables
SKIPPED = ("srun:", "slurmstepd:", "submitit ")  # prefixes of log lines that do not explain a failure


@dataclass(frozen=True)
class Submission:
    """Content of submission.json in the folder of a submitted run."""

    job: str  # Slurm's id: 12, or 12_0 in an array
    name: str  # of the job; another cluster may use the same ids
    submitted: str  # ISO 8601
    command: str
    code: str | None  # folder of the code snapshot; None for an installed Paddock
    log: str
    ended: str | None = None  # time in the done.json found at submission

    @property
    def array(self) -> str:
        """Slurm's id of the job's array."""
        return self.job.partition("_")[0]


@dataclass(frozen=True)
class RunState:
    """State and progress of one run."""

    run: Path
    state: State
    why: str  # one-line reason; may be empty
    metrics: Mapping[str, float]  # last value of each
    progress: float | None  # spent share of the nearest budget limit, 0 to 1
    updated_s: float | None  # seconds since the last row was written
    submission: Submission | None
    config: Mapping[str, Any]  # empty if missing or damaged


Queue = Mapping[str, tuple[str, str, str]]  # job -> its state, reason and name


def find_runs(*folders: Path) -> list[Path]:
    """Find the runs below folders at any depth, including submitted ones; links to runs are followed."""
    found: dict[Path, Path] = {}
    for folder in folders:
        if not os.path.isdir(folder):
            raise ConfigError(f"{folder} is not a folder; pass a run, a multirun or a folder that contains runs")
        runs = list(_walk(folder))
        if not runs:
            if not os.access(folder, os.R_OK | os.X_OK):
                raise ConfigError(f"{folder}: permission denied")
            raise ConfigError(f"no run in {folder}; a run folder holds config.yaml and metrics.jsonl")
        for run in sorted(runs, key=_place):
            found.setdefault(run.resolve(), run)
    return list(found.values())


def read_run_states(runs: Sequence[Path]) -> list[RunState]:
    """Read the state of each run, with one query of Slurm for all submitted ones."""
    submissions = {run: read_submission(run) for run in runs}
    queue = ask_queue([submission.job for submission in submissions.values() if submission])
    run_states = []
    for run, submission in submissions.items():
        metrics, updated_s = last_metrics(run)
        state, why = _state(run, submission, queue)
        config = read_config_if_any(run)
        progress = _progress(config, metrics)
        run_states.append(RunState(run, state, why, metrics, progress, updated_s, submission, config))
    return run_states


def read_submission(run: Path) -> Submission | None:
    """Read a run's submission; None if it was not submitted."""
    noted = read_json(run / "submission.json")
    values = {item.name: noted.get(item.name) for item in fields(Submission)}
    return Submission(**values) if values["job"] else None  # type: ignore[arg-type]


def ask_queue(jobs: Sequence[str], timeout_s: float = 60.0) -> Queue | None:
    """Query Slurm for the state of jobs; unknown jobs are missing, and None means that Slurm does not answer."""
    if not jobs:
        return {}
    ids = ",".join(dict.fromkeys(job.partition("_")[0] for job in jobs))
    command = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r|%j", f"--jobs={ids}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0:
        return {} if "Invalid job id" in answer.stderr else None
    rows = [line.split("|", 3) for line in answer.stdout.splitlines()]
    return {row[0]: (row[1], row[2], row[3]) for row in rows if len(row) == 4}


def ask_exit_code(job: str, timeout_s: float = 60.0) -> int | None:
    """Query Slurm for the exit code of a job; return None if it is unknown or Slurm does not answer."""
    try:
        command = ["scontrol", "--oneliner", "show", "job", job]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired):
        return None
    code = re.search(r"\bExitCode=(\d+):", answer.stdout)
    return int(code[1]) if code else None


def find_job_variables() -> list[str]:
    """Return the variables of the enclosing Slurm job, which a job submitted from here must not inherit.

    Variables set by users (SBATCH_ACCOUNT) or naming the cluster (SLURM_CONF) are left out.
    """
    return [name for name in os.environ if OF_JOB.match(name)] if "SLURM_JOB_ID" in os.environ else []


def explain_refusal(output: str, keys: str) -> str:
    """Explain sbatch's output in one line; `keys` names the section of the configuration to check."""
    reasons = [
        re.sub(r"^(sbatch: )?((error|fatal): )?", "", line.strip()) for line in output.splitlines() if line.strip()
    ]
    if OUT_OF_REACH.search(output):
        remedy = "submit where sinfo answers, or set SLURM_CONF to the cluster's slurm.conf"
        return f"Slurm cannot be reached from here ({reasons[-1]}); {remedy}"
    if "Socket timed out" in output:
        return f"Slurm timed out and may have accepted the jobs ({reasons[-1]}); check squeue before submitting again"
    return f"Slurm rejected the jobs: {'; '.join(reasons) or 'sbatch gave no reason'}; check {keys} and sinfo"


def log_tail(submission: Submission, lines: int) -> list[str]:
    """Return the last lines that a job printed."""
    return tail(Path(submission.log))[-lines:] if lines else []


def _walk(folder: Path) -> Iterator[Path]:
    if _holds_run(folder):
        yield folder
        return
    try:
        inner = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False) or entry.is_symlink()]
    except OSError:
        return
    for entry in inner:
        path = folder / entry.name
        # Code snapshots lie beside the runs of a sweep.
        if entry.name.startswith(".") or os.path.exists(path / SNAPSHOT):
            continue
        if not entry.is_symlink():
            yield from _walk(path)
        elif _holds_run(path):
            yield path


def _holds_run(folder: Path) -> bool:
    return holds_run(folder) or os.path.isfile(folder / "submission.json")


def _place(run: Path) -> tuple[bool, list[int | str]]:
    """Return a sort key that orders numbers by value, and links last."""
    return run.is_symlink(), [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(run))]


def _state(run: Path, submission: Submission | None, queue: Queue | None) -> tuple[State, str]:
    job_state, reason, name = ("", "", "")
    if submission is not None and queue is not None:
        job_state, reason, name = queue.get(submission.job, ("", "", ""))
        if name != submission.name:
            job_state, reason = "", ""
    ended = read_end(run)
    waits_or_runs = job_state in (*WAITING, *RUNNING)
    # The job may have written the done.json, or be about to resume a run that had ended earlier.
    resumes = waits_or_runs and submission and submission.ended == read_json(run / "done.json").get("time")
    if ended is not None and has_ended(run) and not (resumes if waits_or_runs else is_locked(run)):
        return "done", ended
    if job_state in WAITING:
        begun = (run / "config.yaml").exists()
        return "requeued" if begun else "pending", reason.replace("None", "")
    if job_state in RUNNING or is_locked(run):
        return "running", ""
    if ended is not None:
        return ("failed", ended.removeprefix("failed: ")) if ended.startswith("failed: ") else ("stopped", ended)
    if submission is None:
        return "lost", "killed; resume it with the same command and run.dir="
    if queue is None:
        return "unknown", "squeue does not respond here"
    how = {"": "", "COMPLETED": "", "FAILED": ""}.get(job_state, f"{job_state}: ")
    output = [line.removeprefix("paddock: ") for line in log_tail(submission, 20) if not line.startswith(SKIPPED)]
    if not (run / "config.yaml").exists() and output:
        return "failed", how + output[-1]
    return "lost", how + (output[-1] if output else "its job never started")


def is_locked(run: Path) -> bool:
    """Return whether a process is running the run in a folder."""
    return is_held(run / "lock")


def is_held(path: Path) -> bool:
    """Return whether a process holds a lock on a file."""
    try:
        with open(path) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def last_metrics(run: Path) -> tuple[dict[str, float], float | None]:
    """Return the last value of each metric, and the seconds since the last row was written.

    Only the end of the journals is read. Values that are not numbers become NaN.
    """
    rows = [read_json(run / "done.json").get("metrics")]
    for journal in reversed(JOURNALS):  # metrics.jsonl is written first, and may be a row ahead
        rows += [parse_row(f"{line}\n".encode()) for line in tail(run / journal)]
    values = {key: row[key] for row in rows if isinstance(row, dict) for key in row}
    numbers = {key: to_number(value) for key, value in values.items()}
    metrics = {key: values[key] if values[key] == number else number for key, number in numbers.items()}
    try:
        return metrics, max(0.0, time.time() - (run / "metrics.jsonl").stat().st_mtime)
    except OSError:
        return metrics, None


def read_progress(run: Path) -> Progress:
    """Return a run's progress according to its journals."""
    metrics, _ = last_metrics(run)
    return Progress(metrics.get("system/seconds", 0.0), metrics)


def read_config_if_any(run: Path) -> dict[str, Any]:
    """Read the configuration of a run; return an empty one if it is missing or damaged."""
    try:
        return read_config(run)
    except FolderError:
        return {}


def _progress(config: Mapping[str, Any], metrics: Mapping[str, float]) -> float | None:
    try:
        section = config["budget"]
        given = {"return_" if name == "return" else name: value for name, value in section.items()}
        budget = Budget(**dict.fromkeys(BOUNDS) | given)
    except (PaddockError, AttributeError, KeyError, TypeError):  # written by another program
        return None
    return budget.share(metrics, metrics.get("system/seconds", 0))
