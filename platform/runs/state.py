"""Where runs stand: told from their folders, the locks on them, and Slurm's queue where they were submitted."""

import datetime
import fcntl
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from paddock.envs.errors import ConfigError, PaddockError

from .folder import FolderError, has_ended, holds_run, read_config, read_end, read_json
from .journal import JOURNALS, parse_row, to_number
from .loop import Budget, Progress
from .provenance import SNAPSHOT

State = Literal["pending", "requeued", "running", "done", "stopped", "failed", "lost", "unknown"]

ALIVE: tuple[State, ...] = ("pending", "requeued", "running", "unknown")
WRONG: tuple[State, ...] = ("stopped", "failed", "lost")  # ended short of the budget, and nobody goes on
WAITING = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")
RUNNING = ("CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
BOUNDS: tuple[str, ...] = tuple(item.name for item in fields(Budget))
TAIL_BYTES = 1 << 16
OUT_OF_REACH = re.compile("configuration source|slurm controller|slurm.conf|SlurmctldHost")  # what sbatch then says
JOB_ID = r"Submitted batch job (?P<job_id>\d+)"  # what sbatch says, among a site's own lines
OF_JOB = re.compile("SLURM_(?!CONF|CLUSTERS|JWT)|SLURMD_|SRUN_|SUBMITIT_")  # what variables of a Slurm job begin with
SKIPPED = ("srun:", "slurmstepd:", "submitit ")  # beginnings of lines that do not say why a run failed


@dataclass(frozen=True)
class Submission:
    """What is noted in a run's folder when it is submitted, as submission.json."""

    job: str  # Slurm's id: 12, or 12_0 in an array
    name: str  # of the job; another cluster, or the same after a new installation, gives ids again
    submitted: str  # ISO 8601
    command: str
    code: str | None  # the folder with the code as it was; None for an installed Paddock
    log: str
    ended: str | None = None  # when the run had ended before, as its done.json said then

    @property
    def array(self) -> str:
        """Slurm's id of all jobs that were submitted with it."""
        return self.job.partition("_")[0]


@dataclass(frozen=True)
class RunState:
    """How far one run has come, and whether somebody is at it."""

    run: Path
    state: State
    why: str  # in one line; may be empty
    metrics: Mapping[str, float]  # the last value of each
    progress: float | None  # of the budget that is nearest to its end, 0 to 1
    updated_s: float | None  # since the last row was written
    submission: Submission | None
    config: Mapping[str, Any]  # empty where there is none yet, or it is damaged


Queue = Mapping[str, tuple[str, str, str]]  # job -> its state, reason and name


def find_runs(*folders: Path) -> list[Path]:
    """The runs in folders, at any depth, or a folder itself if it is one; those that have only been submitted too.

    Links to runs are followed, and each run is there once.

    Raises:
        ConfigError: there is none in a folder, or no such folder, or it is closed to the user.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        if not os.path.isdir(folder):
            raise ConfigError(f"{folder} is not a folder; name a run, a multirun or a folder with some of them")
        runs = list(_walk(folder))
        if not runs:
            if not os.access(folder, os.R_OK | os.X_OK):
                raise ConfigError(f"{folder} is closed to you; have it opened, or name another")
            raise ConfigError(f"there is no run in {folder}; a run's folder holds config.yaml and metrics.jsonl")
        for run in sorted(runs, key=_place):
            found.setdefault(run.resolve(), run)
    return list(found.values())


def read_run_states(runs: Sequence[Path]) -> list[RunState]:
    """Where each run stands; Slurm is asked once, if one of them was submitted and has not ended by itself."""
    submissions, wrong = dict[Path, Submission | None](), dict[Path, str]()
    for run in runs:
        try:
            submissions[run] = read_submission(run)
        except FolderError as error:  # of one run, which hides no other
            submissions[run], wrong[run] = None, str(error)
    queue = ask_queue([submission.job for submission in submissions.values() if submission])
    run_states = []
    for run in runs:
        metrics, updated_s = last_metrics(run)
        state, why = _state(run, submissions[run], queue)
        why = wrong.get(run, why) if state == "lost" else why
        config = _read_config(run)
        progress = _progress(config, metrics)
        run_states.append(RunState(run, state, why, metrics, progress, updated_s, submissions[run], config))
    return run_states


def read_submission(run: Path) -> Submission | None:
    """How a run was submitted; None if it was started by hand.

    Raises:
        FolderError: the note lacks what is asked of it, as another version's may; what it has besides is left alone.
    """
    path = run / "submission.json"
    noted = read_json(path)
    if not noted:
        return None
    taken = {item.name: noted.get(item.name) for item in fields(Submission)}
    optional = [("code", None), ("ended", None)]
    wrong = [pair[0] for pair in taken.items() if not isinstance(pair[1], str) and pair not in optional]
    if wrong:
        remedy = (
            "look with the version of Paddock that submitted it, or delete it, and Slurm is not asked after the run"
        )
        raise FolderError(f"{path} does not say {', '.join(wrong)}; {remedy}")
    return Submission(**taken)  # type: ignore[arg-type]


def ask_queue(jobs: Sequence[str], timeout_s: float = 60.0) -> Queue | None:
    """What Slurm knows of some jobs: those it has forgotten are missing. None where it does not answer in time."""
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
    """The exit code of a job; None where Slurm has forgotten it, or does not answer in time."""
    try:
        command = ["scontrol", "--oneliner", "show", "job", job]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired):
        return None
    code = re.search(r"\bExitCode=(\d+):", answer.stdout)
    return int(code[1]) if code else None


def find_job_variables() -> list[str]:
    """Return the variables of the Slurm job that this process is in: one that it submits would take them for its own.

    What a user sets (SBATCH_ACCOUNT), and what says which Slurm is meant (SLURM_CONF), is left out.
    """
    return [name for name in os.environ if OF_JOB.match(name)] if "SLURM_JOB_ID" in os.environ else []


def explain_refusal(said: str, keys: str) -> str:
    """Say in a line why Slurm takes no job.

    Args:
        said: by sbatch.
        keys: the section of the configuration that it may refuse.
    """
    told = [re.sub(r"^(sbatch: )?((error|fatal): )?", "", line.strip()) for line in said.splitlines() if line.strip()]
    if OUT_OF_REACH.search(said):
        remedy = "submit where sinfo answers, or set SLURM_CONF to the cluster's slurm.conf"
        return f"Slurm is out of reach here ({told[-1]}); {remedy}"
    if "Socket timed out" in said:
        return f"Slurm may have the jobs, as it did not answer in time ({told[-1]}); see squeue before you submit again"
    return f"Slurm refuses the jobs: {'; '.join(told) or 'sbatch does not say why'}; mend {keys}, or see sinfo"


def log_tail(submission: Submission, lines: int) -> list[str]:
    """The last lines that a job printed, from all its sessions."""
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
        # Not what programs keep for themselves, nor the copy of the code beside the runs of a sweep.
        if entry.name.startswith(".") or os.path.exists(path / SNAPSHOT):
            continue
        if not entry.is_symlink():
            yield from _walk(path)
        elif _holds_run(path):  # and no farther, as links may lead back
            yield path


def _holds_run(folder: Path) -> bool:
    return holds_run(folder) or os.path.isfile(folder / "submission.json")


def _place(run: Path) -> tuple[bool, list[int | str]]:
    """Where a run stands among those of a folder: numbers in order, and links behind what they lead to."""
    return run.is_symlink(), [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(run))]


def _state(run: Path, submission: Submission | None, queue: Queue | None) -> tuple[State, str]:
    job_state, reason, name = ("", "", "")
    if submission is not None and queue is not None:
        job_state, reason, name = queue.get(submission.job, ("", "", ""))
        if name != submission.name:
            job_state, reason = "", ""
    ended = read_end(run)
    if ended is not None and has_ended(run) and not _goes_on(run, submission, job_state):
        return "done", ended
    if job_state in WAITING:
        begun = (run / "config.yaml").exists()
        return "requeued" if begun else "pending", reason.replace("None", "")
    if job_state in RUNNING or is_locked(run):
        return "running", ""
    if ended is not None:
        return ("failed", ended.removeprefix("failed: ")) if ended.startswith("failed: ") else ("stopped", ended)
    if submission is None:
        return "lost", "it was killed; the same command with run.dir= goes on"
    if queue is None:
        return "unknown", "squeue does not answer here"
    how = {"": "", "COMPLETED": "", "FAILED": ""}.get(job_state, f"{job_state}: ")
    said = [line.removeprefix("paddock: ") for line in log_tail(submission, 20) if not line.startswith(SKIPPED)]
    if not (run / "config.yaml").exists() and said:
        return "failed", how + said[-1]
    return "lost", how + (said[-1] if said else "its job never started")


def _goes_on(run: Path, submission: Submission | None, job_state: str) -> bool:
    """Whether somebody is at a run that has ended before, or is to be, as where its budget was raised."""
    if submission is None or job_state not in (*WAITING, *RUNNING):
        return is_locked(run)
    ended = read_json(run / "done.json").get("time")
    if "ended" in read_json(run / "submission.json"):
        # Not by which is later: a node's clock may be another than that of the machine that submits.
        return submission.ended is not None and submission.ended == ended
    try:
        return datetime.datetime.fromisoformat(str(ended)) <= datetime.datetime.fromisoformat(submission.submitted)
    except (ValueError, TypeError):  # damaged, or of somebody who left the zone out
        return False


def is_locked(run: Path) -> bool:
    """Whether a process is at the run in a folder."""
    return is_held(run / "lock")


def is_held(path: Path) -> bool:
    """Whether a process holds the lock that a file is; not where there is no such file."""
    try:
        with open(path) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def last_metrics(run: Path) -> tuple[dict[str, float], float | None]:
    """The last value of each metric, NaN where it was no number, and how long ago the last row was written.

    Of a run that has not ended, metrics that are far from the end of its journals are left out.
    """
    rows = [read_json(run / "done.json").get("metrics")]
    for journal in reversed(JOURNALS):  # metrics.jsonl is written first, and may be a row ahead
        # Not the first one, cut by the reading, nor the last, which is just being written, nor a damaged one.
        rows += [parse_row(f"{line}\n".encode()) for line in tail(run / journal)]
    metrics = {key: _to_plain(row[key]) for row in rows if isinstance(row, dict) for key in row}
    try:
        return metrics, max(0.0, time.time() - (run / "metrics.jsonl").stat().st_mtime)
    except OSError:
        return metrics, None


def _to_plain(value: Any) -> float:
    """The value, a whole number as it is; NaN if it is no number."""
    number = to_number(value)
    return value if value == number else number


def read_progress(run: Path) -> Progress:
    """How far a run has come by its numbers alone, without any checkpoint."""
    metrics, _ = last_metrics(run)
    return Progress(metrics.get("system/seconds", 0.0), metrics)


def _read_config(run: Path) -> dict[str, Any]:
    try:
        return read_config(run)
    except FolderError:
        return {}


def _progress(config: Mapping[str, Any], metrics: Mapping[str, float]) -> float | None:
    try:
        section = config["budget"]
        given = {"return_" if name == "return" else name: value for name, value in section.items()}
        budget = Budget(**dict.fromkeys(BOUNDS) | given)
    except (PaddockError, AttributeError, KeyError, TypeError):  # of another version, or of another program
        return None
    return budget.share(metrics, metrics.get("system/seconds", 0))


def tail(path: Path) -> list[str]:
    """The lines at the end of a file that may be long, blank ones left out; none where it is missing."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()]
