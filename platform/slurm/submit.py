"""Submit the runs of a sweep to Slurm: `--multirun ... hydra/launcher=slurm`.

Unlike Hydra's submitit launcher, it does not wait for the jobs, and a job that reaches its time limit is resumed.
"""

import dataclasses
import datetime
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from paddock.envs.errors import ConfigError, require

from .. import ROOT
from ..config.command import display_path
from ..runs.checkpoint import write_atomically
from ..runs.folder import free_path, read_json
from ..runs.state import Submission
from ..sweep.launchers import SweepLauncher
from ..sweep.placement import Plan
from .options import Resources
from .queue import require_slurm, submit_commands
from .snapshot import find_tree
from .submitted import NO_ANSWER, Queued, find_active_job

PARALLEL = 16  # default number of runs of a sweep in the queue


class SlurmLauncher(SweepLauncher):
    """Hydra launcher of Slurm job arrays; each job is one run, which resumes when requeued."""

    keys, verb = Resources, "submit"

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Check the keys, Slurm, and the size of the code before anything is written."""
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        if not config.dry_run:
            require_slurm()
        require(config.resume is None, "resume=last is for local runs; set hydra.sweep.dir= to resume a sweep")
        code = free_path(self._sweep / "code")  # jobs of an earlier submission may use others
        trees = [find_tree(ROOT, "paddock.py", self._sweep), find_tree(Path.cwd(), ".", self._sweep)]
        tops = {tree.top: tree for tree in trees if tree is not None}
        self._code, self._copied = code, False
        self._copies = {code / str(number) / tree.top.name: tree for number, tree in enumerate(tops.values())}

    def _run(self, plans: Sequence[Plan]) -> None:
        _check_unclaimed(plans)
        try:
            submissions = self.submit(plans)
        except OSError as error:
            remedy = "choose another folder with hydra.sweep.dir="
            raise ConfigError(f"{display_path(self._sweep)} cannot be written ({error.strerror}); {remedy}") from error
        for plan, submission in zip(plans, submissions, strict=True):
            print(f"job {submission.job}: {display_path(plan.run)}")
        kept = (
            f"a snapshot of the code, {display_path(self._code)}" if self._copies else "the code in place (not in git)"
        )
        print(f"{len(submissions)} submitted, running {kept}; you may close this terminal")
        print(f"  python -m paddock.status {shlex.quote(display_path(self._sweep))}")
        print(f"  scancel {submissions[0].array}")

    def open(self) -> "SlurmTarget":
        """Return Slurm's queue as a launch target, for sweeps that choose runs one at a time."""
        return SlurmTarget(self, self._keys.max_parallel or PARALLEL)

    def submit(self, plans: Sequence[Plan]) -> Sequence[Submission]:
        """Submit jobs as one array.

        Raises:
            ConfigError: Slurm rejects them.
            OSError: the sweep's folder cannot be written.
        """
        name = f"paddock-{self._sweep.name}"
        given = self._keys.parameters(name, len(plans), self._environment())
        commands = [plan.command for plan in plans]
        ends = [read_json(plan.run / "done.json").get("time") for plan in plans]
        try:
            if not self._copied:
                for copy, tree in self._copies.items():
                    tree.copy(copy)
            jobs = submit_commands(self._sweep / ".submitit", commands, given, self._keys.max_requeues)
        except BaseException:
            if self._copies and not self._copied:  # otherwise earlier jobs use the copy
                shutil.rmtree(self._code, ignore_errors=True)
            raise
        self._copied = True
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        code = str(self._code) if self._copies else None
        submissions = [
            Submission(str(job.job_id), name, now, shlex.join(plan.command), code, str(job.paths.stdout), ended)
            for plan, job, ended in zip(plans, jobs, ends, strict=True)
        ]
        try:
            for plan, submission in zip(plans, submissions, strict=True):
                _note(plan.run, submission)
        except BaseException:  # without a note the jobs could not be found
            subprocess.run(["scancel", submissions[0].array], capture_output=True)
            raise
        return submissions

    def copy_of(self, path: Path) -> Path | None:
        """Return a path in the code snapshot; None if it is not copied."""
        copies = (copy / path.relative_to(tree.top) for copy, tree in self._copies.items() if tree.holds(path))
        return next(copies, None)

    def _environment(self) -> list[str]:
        """Return shell lines that make Python import code from the snapshot."""
        entries = []
        for entry in (ROOT, *(Path(entry).absolute() for entry in sys.path)):
            copy = self.copy_of(entry)
            if copy is not None or entry == Path.cwd():
                entries.append(str(copy or entry))
        path = shlex.quote(":".join(dict.fromkeys(entries)))
        # Without the safe path, the working directory would come first.
        return [*[f"export PYTHONPATH={path}${{PYTHONPATH:+:$PYTHONPATH}}"] * bool(entries), "export PYTHONSAFEPATH=1"]


class SlurmTarget:
    """Launch target that is Slurm's queue."""

    stays = True

    def __init__(self, launcher: SlurmLauncher, slots: int) -> None:
        self._launcher = launcher
        self.slots = slots

    def start(self, plan: Plan) -> "Queued | None":
        """Submit a run unless it has a job in the queue; return None if Slurm does not answer."""
        alive = find_active_job(plan.run)
        if alive is None:
            self._launcher.submit([plan])
        return None if alive is not None and alive[1] == NO_ANSWER else Queued(plan.run)

    def close(self) -> None:
        """Keep the jobs in the queue."""


def _check_unclaimed(plans: Sequence[Plan]) -> None:
    for plan in plans:
        alive = find_active_job(plan.run)
        if alive is not None:
            remedy = f"wait for it, or scancel {alive[0]}"
            raise ConfigError(f"{plan.run} is already submitted as job {alive[0]} ({alive[1]}); {remedy}")


def _note(run: Path, submission: Submission) -> None:
    run.mkdir(parents=True, exist_ok=True)
    write_atomically(run / "submission.json", json.dumps(dataclasses.asdict(submission), indent=2).encode())
    log = run / "slurm.log"
    log.unlink(missing_ok=True)
    log.symlink_to(os.path.relpath(submission.log, run))
