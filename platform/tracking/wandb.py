"""Weights & Biases: the mirror in the run, and below it what its process does."""

import contextlib
import itertools
import os
import secrets
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from ..runs.checkpoint import write_atomically
from ..runs.identity import algorithm_name
from ..runs.journal import is_final_evaluation
from ..runs.lazy_imports import wandb  # by the process alone
from .child import Inbox, MirrorProcess, first_line
from .mirrors import ProcessMirror, find_policy, find_videos, require_package

NAMED = ("project", "entity", "group", "job_type", "tags", "id", "config")  # as wandb.init calls them
BEST = "eval/return_mean"  # its greatest value is in the summary too
PLACES = 10  # W&B's own steps to an iteration: its row's, and further ones of rows that a run's end adds
GRACE_S = 15.0  # beyond init_timeout_s, of which wandb gives its service ten


@dataclass(kw_only=True, eq=False)
class Wandb(ProcessMirror):
    """A Weights & Biases run, over environment steps, fed row by row to a child process.

    Its own `_step` is ten times the iteration, and one more for each evaluation that the run's end adds.
    `online` without a key or a network becomes offline and says so. A resumed run folder continues the same W&B run:
    its id is kept in RUN/wandb/run_id, beside wandb's own files and `mirror.log`, which has what wandb printed.
    """

    name = "W&B"

    mode: Literal["online", "offline", "disabled"]
    project: str
    entity: str | None
    group: str | None
    job_type: str | None
    tags: Sequence[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode != "disabled":
            require_package("wandb", "pip install wandb")

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        if self.mode == "disabled":
            return
        folder = self.run_dir / "wandb"
        folder.mkdir(exist_ok=True)
        if not (folder / "run_id").exists():
            write_atomically(folder / "run_id", secrets.token_hex(6).encode())
        settings = self._describe()
        settings |= {
            "module": "wandb",
            "id": (folder / "run_id").read_text().strip(),
            "group": self.group or settings["sweep"],
            "job_type": self.job_type or algorithm_name(self.config),
            "tags": list(self.tags),
            "config": {**self.config, **({"commit": settings["commit"]} if settings["commit"] else {})},
        }
        # Not the service of another W&B user in this process; and copies of files go into the run's folder.
        environment = {"WANDB_DATA_DIR": str(folder.absolute() / "data"), **os.environ}
        environment.pop("WANDB_SERVICE", None)
        self._process = MirrorProcess(folder, settings, environment, say)

    def commands(self) -> list[str]:
        """Return the command that uploads what is still offline."""
        folder = self.run_dir / "wandb"
        sessions = sorted(folder.glob("offline-run-*"))
        listed = shlex.join(map(str, sessions)) if len(sessions) < 2 else f"{shlex.quote(str(folder))}/offline-run-*"
        return [f"wandb sync {listed}"] if sessions else []


def mirror(inbox: Inbox) -> None:
    """Feed a W&B run with the rows, and, at the end, the policy and the videos."""
    run = start(inbox)
    step, added = None, 0
    for row in itertools.chain.from_iterable(inbox.batches(rows=100)):
        # W&B ignores rows of a step that it has, as a resumed run writes them again, and merges rows of one step.
        added = added + 1 if is_final_evaluation(row) else 0
        step = PLACES * int(row["iteration"]) + added
        run.log(row, step=step)
    try:
        keep_files(run, Path(inbox.settings["run_dir"]), step)
    except Exception as error:  # a full disk, or a file that has gone; the rows are kept
        inbox.say(f"W&B goes without the run's files ({first_line(error)})")
    finish(run, inbox)


def start(inbox: Inbox) -> Any:
    """Open the run in the mode asked for, or offline where W&B cannot be reached."""
    reason = "as configured"
    if inbox.settings["mode"] == "online":
        with within(inbox.settings["init_timeout_s"] + GRACE_S):
            try:
                run = init("online", inbox.settings)
            except Exception as error:  # no key, a bad key, no network, a project that may not be written
                reason = first_line(error)
                with contextlib.suppress(Exception):  # of a service that was killed
                    wandb.teardown()  # it would hold the run's id
            else:
                inbox.say(f"W&B: {run.url}")
                return run
    run = init("offline", inbox.settings)
    inbox.say(f"W&B is offline ({reason.rstrip('.')}); upload later: {_sync(run)}")
    return run


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Kill W&B's service after a while: wandb waits for its start and its end without limit."""

    def kill() -> None:
        for child in psutil.Process().children():
            child.kill()

    timer = threading.Timer(seconds, kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def init(mode: Literal["online", "offline"], settings: dict[str, Any]) -> Any:
    """Open a W&B run with its configuration."""
    run = wandb.init(
        mode=mode,
        name=settings["run_name"],
        dir=settings["run_dir"],
        resume="allow",
        **{name: settings[name] for name in NAMED},
        settings=wandb.Settings(
            console="off",
            silent=True,  # no look-up of the user either, which init_timeout does not bound
            init_timeout=settings["init_timeout_s"],
            finish_timeout=settings["close_timeout_s"] / 2,
            finish_timeout_raises=True,
            program=settings["argv"][0],
            git_commit=settings["commit"],  # of the code, and not of the folder that the command was given in
            x_stats_pid=settings["pid"],  # the machine's use is measured on the run, not on this process
        ),
    )
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    run.define_metric(BEST, step_metric="step", summary="last,max")
    return run


def keep_files(run: Any, folder: Path, step: int | None) -> None:
    """Add the videos to the last row, and the policy as an artifact.

    Files of an offline run are kept beside its rows, as a resumed run replaces its checkpoints before an upload.
    """
    videos, policy = find_videos(folder), find_policy(folder)
    if videos and step is not None:
        run.log({f"video/{file.stem}": wandb.Video(str(file), format="mp4") for file in videos}, step=step)
    if policy:
        artifact = wandb.Artifact(f"policy-{run.id}", "model")
        kept = _policy_folder(run)
        kept.mkdir()
        for file in policy:
            shutil.copyfile(file, kept / file.name)
            artifact.add_file(str(kept / file.name), skip_cache=True, policy="immutable")
        run.log_artifact(artifact)


def finish(run: Any, inbox: Inbox) -> None:
    """End the run, or report what is still to be uploaded."""
    try:
        run.finish(exit_code=int(inbox.killed))
    except TimeoutError:
        inbox.say(f"W&B had no time to upload all; do it later: {_sync(run)}")
    else:
        if not run.offline:
            shutil.rmtree(_policy_folder(run), ignore_errors=True)
    wandb.teardown()


def _sync(run: Any) -> str:
    return shlex.join(["wandb", "sync", str(Path(run.dir).parent)])


def _policy_folder(run: Any) -> Path:
    return Path(run.dir).parent / "policy"
