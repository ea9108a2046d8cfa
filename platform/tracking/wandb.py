"""Weights & Biases: the mirror in the run, and the code of its child process."""

import contextlib
import os
import secrets
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import psutil

from ..runs.checkpoint import Checkpoints, write_atomically
from ..runs.folder import read_json
from ..runs.identity import algorithm_name
from ..runs.journal import is_final_evaluation
from ..runs.lazy_imports import wandb  # used by the child process only
from ..runs.sweeps import sweep_name
from .child import Inbox, MirrorProcess, first_line
from .mirrors import RunMirror, Seconds, require_package

PASSED = ("project", "entity", "group", "job_type", "tags", "id", "config")  # arguments of wandb.init
BEST = "eval/return_mean"  # the summary includes its maximum
STEPS_PER_ITERATION = 10  # W&B steps per iteration, which leaves room for evaluation rows at a run's end
GRACE_S = 15.0  # after init_timeout_s; wandb's service takes up to ten seconds


@dataclass(kw_only=True, eq=False)
class Wandb(RunMirror):
    """Mirror to a Weights & Biases run over environment steps, written by a child process.

    W&B's `_step` is ten times the iteration, plus one for each evaluation added at the run's end. `online` falls back
    to offline without a key or a network. A resumed run continues the W&B run recorded in RUN/wandb/run_id; wandb's
    output is in RUN/wandb/mirror.log.
    """

    name = "W&B"

    mode: Literal["online", "offline", "disabled"]
    project: str
    entity: str | None
    group: str | None
    job_type: str | None
    tags: Sequence[str]
    init_timeout_s: Seconds
    _process: MirrorProcess | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode != "disabled":
            require_package("wandb", "pip install wandb")

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        """Start the child process."""
        if self.mode == "disabled":
            return
        folder = self.run_dir / "wandb"
        folder.mkdir(exist_ok=True)
        if not (folder / "run_id").exists():
            write_atomically(folder / "run_id", secrets.token_hex(6).encode())
        commit, sweep = read_json(self.run_dir / "provenance.json").get("commit"), sweep_name(self.run_dir)
        settings = {item.name: getattr(self, item.name) for item in fields(self) if item.init} | {
            "run_dir": str(self.run_dir.absolute()),
            "commit": commit,
            "pid": os.getpid(),
            "argv": sys.argv,
            "id": (folder / "run_id").read_text().strip(),
            "group": self.group or sweep,
            "job_type": self.job_type or algorithm_name(self.config),
            "tags": list(self.tags),
            "config": {**self.config, **({"commit": commit} if commit else {})},
        }
        # Use a separate W&B service, and keep copies of files in the run's folder.
        environment = {"WANDB_DATA_DIR": str(folder.absolute() / "data"), **os.environ}
        environment.pop("WANDB_SERVICE", None)
        self._process = MirrorProcess(folder, settings, environment, say)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Send a row to the process."""
        if self._process is not None:
            self._process.send(metrics)

    def close(self) -> None:
        """Wait until the process has written all rows."""
        if self._process is not None:
            self._process.close()

    def abandon(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()

    def commands(self) -> list[str]:
        """Return the command that uploads offline sessions."""
        folder = self.run_dir / "wandb"
        sessions = sorted(folder.glob("offline-run-*"))
        listed = shlex.join(map(str, sessions)) if len(sessions) < 2 else f"{shlex.quote(str(folder))}/offline-run-*"
        return [f"wandb sync {listed}"] if sessions else []


def mirror(inbox: Inbox) -> None:
    """Write the rows to a W&B run and, at the end, the policy and the videos."""
    run = start(inbox)
    step, added = None, 0
    for row in inbox.rows():
        # W&B ignores rows of known steps, such as those that a resumed run repeats, and merges rows of one step.
        added = added + 1 if is_final_evaluation(row) else 0
        step = STEPS_PER_ITERATION * int(row["iteration"]) + added
        run.log(row, step=step)
    try:
        keep_files(run, Path(inbox.settings["run_dir"]), step)
    except Exception as error:  # a full disk or a missing file; the rows are kept
        inbox.say(f"W&B did not store the run's files ({first_line(error)})")
    finish(run, inbox)


def start(inbox: Inbox) -> Any:
    """Open the run in the configured mode, or offline if W&B cannot be reached."""
    reason = "as configured"
    if inbox.settings["mode"] == "online":
        with within(inbox.settings["init_timeout_s"] + GRACE_S):
            try:
                run = init("online", inbox.settings)
            except Exception as error:  # a missing or bad key, no network, no permission
                reason = first_line(error)
                with contextlib.suppress(Exception):  # the service may have been killed
                    wandb.teardown()  # releases the run's id
            else:
                inbox.say(f"W&B: {run.url}")
                return run
    run = init("offline", inbox.settings)
    inbox.say(f"W&B is offline ({reason.rstrip('.')}); upload later: {_sync(run)}")
    return run


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Kill W&B's service after a timeout, since wandb waits for it without limit."""

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
        **{name: settings[name] for name in PASSED},
        settings=wandb.Settings(
            console="off",
            silent=True,  # also skips the user look-up, which has no timeout
            init_timeout=settings["init_timeout_s"],
            finish_timeout=settings["close_timeout_s"] / 2,
            finish_timeout_raises=True,
            program=settings["argv"][0],
            git_commit=settings["commit"],  # of the code, not of the working directory
            x_stats_pid=settings["pid"],  # measure the resource use of the run, not of this process
        ),
    )
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    run.define_metric(BEST, step_metric="step", summary="last,max")
    return run


def keep_files(run: Any, folder: Path, step: int | None) -> None:
    """Add the videos to the last row, and the policy as an artifact.

    Files of an offline run are copied, since a resumed run may replace its checkpoints before an upload.
    """
    videos, newest = sorted(folder.glob("*.mp4")), Checkpoints(folder / "checkpoints", keep=1).paths()[:1]
    if videos and step is not None:
        run.log({f"video/{file.stem}": wandb.Video(str(file), format="mp4") for file in videos}, step=step)
    if newest:
        artifact = wandb.Artifact(f"policy-{run.id}", "model")
        kept = _policy_folder(run)
        kept.mkdir()
        for file in (*newest, folder / "config.yaml"):
            shutil.copyfile(file, kept / file.name)
            artifact.add_file(str(kept / file.name), skip_cache=True, policy="immutable")
        run.log_artifact(artifact)


def finish(run: Any, inbox: Inbox) -> None:
    """End the run; on a timeout, print the command that uploads the rest."""
    try:
        run.finish(exit_code=int(inbox.killed))
    except TimeoutError:
        inbox.say(f"W&B did not finish uploading; upload later: {_sync(run)}")
    else:
        if not run.offline:
            shutil.rmtree(_policy_folder(run), ignore_errors=True)
    wandb.teardown()


def _sync(run: Any) -> str:
    return shlex.join(["wandb", "sync", str(Path(run.dir).parent)])


def _policy_folder(run: Any) -> Path:
    return Path(run.dir).parent / "policy"
