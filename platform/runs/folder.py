"""Run folder: locked while the run is active, and readable without Paddock.

config.yaml        the composed configuration     metrics.jsonl   metrics, the same on every machine
provenance.json    command, versions, machine     system.jsonl    seconds, steps/s, retries
code.diff          uncommitted edits              checkpoints/    NumPy archives, the newest few
log.txt            messages                       done.json       why and when it ended
events.jsonl       events, such as births         replay/         files that checkpoints list
initial.npz        policy given by init_from
submission.json    job, command and code if submitted to Slurm; slurm.log: output of the job
trial.json         number and state of a sweep's trial; output.log: output of a run in a sweep
"""

import contextlib
import fcntl
import itertools
import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import yaml

from paddock.envs.errors import DISK_FULL, IN_USE, ConfigError, PaddockError, closest
from paddock.envs.process import keep_from_forks

from .checkpoint import FULL, State, storing, write, write_atomically
from .identity import changed_keys, changed_processors
from .provenance import find_source, now, write_provenance

log = logging.getLogger(__name__)

# Files that a submitted run, or one killed at its start, may have left.
BEGUN = (
    *("lock", ".config.yaml.tmp", "submission.json", ".submission.json.tmp", "slurm.log", "workers"),
    *("trial.json", ".trial.json.tmp", "output.log", ".stop"),
)
# A run folder has one of these besides config.yaml.
BESIDE = ("lock", "provenance.json", "metrics.jsonl", "system.jsonl", "done.json")
# Seven times as fast as the Python loader.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
INITIAL = "initial.npz"
MAX_CHANGES = 6  # named in a message
MAX_RUNS = 5  # named in a message
LOCK_RETRY_S = 0.2  # `paddock.status` holds a lock for less


class FolderError(PaddockError):
    """A run folder cannot be created, used or read."""


class FolderInUse(FolderError):
    """Another process uses the folder."""

    exit_code = IN_USE


class FolderTaken(FolderInUse):
    """Another process created the folder of a new run; choose another name."""


class RunFolder:
    """Run folder locked by this process until `release`."""

    def __init__(self, path: Path, lock: IO[str], made: Sequence[Path]) -> None:
        """Keep the lock of a folder; use `open`."""
        self.path = path
        self._lock = lock
        self._made = made  # folders created for it, deepest first
        self._begun = False

    @classmethod
    def open(cls, path: Path, config: Mapping[str, Any], *, new: bool = False) -> "RunFolder":
        """Create the folder if necessary and lock it; nothing else is written before `begin`.

        Args:
            path: the folder.
            config: the run's configuration, compared with the one in the folder.
            new: the folder must not exist yet.

        Raises:
            FolderError: the folder cannot be written, or holds other files.
            FolderInUse: another process uses it.
            FolderTaken: it must be new, and another process created it.
            ConfigError: it holds a run with another configuration.
        """
        check_usable(path, config, new=new)
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        try:
            path.mkdir(parents=True, exist_ok=not new)
            lock = keep_from_forks(open(path / "lock", "a"))  # noqa: SIM115
        except FileExistsError as error:
            raise (_taken(path) if new else unwritable(path, error)) from error
        except OSError as error:
            raise unwritable(path, error) from error
        folder = cls(path, lock, made)
        try:
            _lock(lock, path)
            check_usable(path, config, locked=True)  # another process may have used it until now
        except FolderInUse:
            raise
        except BaseException:
            folder.release()
            raise
        return folder

    @property
    def ended(self) -> str | None:
        """Reason why the run ended by itself; None if it is unfinished, was stopped, or failed."""
        return read_end(self.path) if has_ended(self.path) else None

    def begin(
        self,
        config: Mapping[str, Any],
        command: str | None = None,
        extra: Mapping[str, Any] | None = None,
        initial: State | None = None,
    ) -> None:
        """Write the configuration and, for a new run, its provenance.

        Args:
            config: the run's configuration.
            command: recorded instead of this process's own.
            extra: further provenance: the niche, the packages of servers, the repeated run.
            initial: policy and facts of the run that `init_from` names.

        Raises:
            FolderError: a file cannot be written.
        """
        path, resumes = self.path, _has_results(self.path)
        self._begun = True
        try:
            write_atomically(path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False).encode())
            if initial is not None:
                write(path / INITIAL, initial)
            if not resumes or not (path / "provenance.json").exists():
                commit, diff = find_source(Path(__file__).resolve().parent)
                for name in ("code.diff", "wandb/run_id"):  # of an earlier run without results
                    (path / name).unlink(missing_ok=True)
                if diff:
                    write_atomically(path / "code.diff", diff.encode(errors="surrogateescape"))
                unknown = commit is not None and diff is None
                if unknown:
                    log.warning("git cannot list uncommitted edits; %s records the commit only", path)
                facts = {"init_from": initial and initial["facts"], **(extra or {}), "diff": unknown and "unknown"}
                write_provenance(path, commit, command, {key: value for key, value in facts.items() if value})
            (path / "done.json").unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(path, error) from error

    def finish(self, reason: str, metrics: Mapping[str, float]) -> None:
        """Record the reason and time of the end, and the last metrics."""
        done = {"reason": reason, "time": now(), "metrics": finite(metrics)}
        with storing(self.path / "done.json"):
            write_atomically(self.path / "done.json", json.dumps(done, indent=2).encode())

    def release(self) -> None:
        """Unlock the folder; remove it if it was created for a run that never began."""
        if not self._begun and self._made:
            with contextlib.suppress(OSError):
                (self.path / "lock").unlink()
                for folder in self._made:
                    folder.rmdir()
        self._lock.close()


def check_usable(path: Path, config: Mapping[str, Any], *, locked: bool = False, new: bool = False) -> None:
    """Raise the errors of `RunFolder.open` without creating or locking the folder; `locked`: already locked."""
    remedy = "choose another with run.dir="
    try:
        if new and path.exists():
            raise _taken(path)
        if path.exists() and not path.is_dir():
            raise FolderError(f"run.dir={path} is a file; {remedy}")
        if (path / "config.yaml").exists():
            if _has_results(path):
                _check_same(path, config)
        elif path.is_dir() and any(child.name not in BEGUN for child in path.iterdir()):
            raise FolderError(f"run.dir={path} is not empty and contains no run; choose an empty or a new folder")
        check_writable(path)
        if not locked and (path / "lock").exists():
            with open(path / "lock", "a") as lock:
                _lock(lock, path)
    except OSError as error:
        raise unwritable(path, error) from error


def check_writable(path: Path) -> Path:
    """Return the lowest folder of a path that exists; raise OSError unless files can be created in it."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    with tempfile.TemporaryFile(dir=there):
        return there


def free_path(path: Path) -> Path:
    """Return an unused path: this one, or the first free one with a number appended, from 2."""
    numbered = (path.with_name(f"{path.name}-{n}") for n in itertools.count(2))
    return next(one for one in itertools.chain([path], numbered) if not one.exists())


def read_end(path: Path) -> str | None:
    """Return the reason why a run ended, or None."""
    reason = read_json(path / "done.json").get("reason")
    return None if reason is None else str(reason)


def has_ended(path: Path) -> bool:
    """Return whether a run finished, and was neither stopped by a signal nor failed."""
    reason = read_end(path)
    return reason is not None and not reason.startswith(("failed: ", "SIG"))


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a run, and not just any config.yaml; False if it cannot be read."""
    return os.path.isfile(folder / "config.yaml") and (
        any(os.path.exists(folder / name) for name in BESIDE) or any((folder / "checkpoints").glob("*.npz"))
    )


def read_config(path: Path, sections: Sequence[str] = ("algo", "env")) -> dict[str, Any]:
    """Read the configuration of the run in a folder; raise FolderError without a run that has the sections."""
    try:
        config = yaml.load((path / "config.yaml").read_text(), LOADER)
        if not isinstance(config, dict):
            raise FolderError(f"{path / 'config.yaml'} is damaged: it holds no mapping")
        for section in sections:
            if not isinstance(config.get(section), dict):  # usually written by another program
                what = f"{path / 'config.yaml'} does not belong to a run: it has no section {section}"
                raise FolderError(f"{what}; use a run folder")
        return config
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FolderError(f"{path / 'config.yaml'} is damaged ({error})") from error
    except OSError as error:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise FolderError(f"{path / 'config.yaml'} cannot be read ({error.strerror})") from error
        found = (folder.glob("*/config.yaml") for folder in (path, path.parent))
        inside, siblings = ([str(one.parent) for one in some if holds_run(one.parent)] for some in found)
        what = f"{path} is not a run folder" if path.exists() else f"no such run: {path}"
        if inside:
            hint = f"it contains runs; use one, such as {min(inside)}"
        elif siblings:
            near = closest(str(path), siblings)
            newest = sorted(siblings, reverse=True)[:MAX_RUNS]
            hint = f"did you mean {near!r}?" if near else f"runs here: {', '.join(newest)}"
        else:
            hint = "a run folder holds config.yaml"
        raise FolderError(f"{what}; {hint}") from error


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which strict JSON lacks, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def read_json(path: Path) -> dict[str, Any]:
    """Read a mapping from a JSON file; return an empty one if it is missing or damaged."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def unwritable(path: Path, error: OSError) -> FolderError:
    """Return the error for a run folder that cannot be created or written."""
    remedy = ("free disk space or " if error.errno in FULL else "") + "choose another with run.dir="
    failed = FolderError(f"run.dir={path} cannot be written ({error.strerror}); {remedy}")
    failed.exit_code = DISK_FULL if error.errno in FULL else failed.exit_code
    return failed


def _taken(path: Path) -> FolderTaken:
    return FolderTaken(f"run.dir={path} was just created by another process; run the command again")


def _lock(file: IO[str], path: Path) -> None:
    deadline = time.monotonic() + LOCK_RETRY_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                file.close()
                remedy = "wait for it or choose another"
                raise FolderInUse(f"run.dir={path} is in use by another process; {remedy}") from error
            time.sleep(0.01)
        except OSError as error:  # a file system without locks, as on some clusters
            remedy = "choose a folder on another disk with run.dir=, or mount this one with locks"
            raise FolderError(f"run.dir={path} cannot be locked ({error.strerror}); {remedy}") from error


def _check_same(path: Path, config: Mapping[str, Any]) -> None:
    old = read_config(path)
    moved = changed_processors(old, config)
    changed = [change for change in changed_keys(old, config) if change not in moved]
    if not changed:
        return
    remedy = "use the run's values, or another"
    if len(changed) > MAX_CHANGES:  # usually another algorithm, whose _target_ comes first
        changed[MAX_CHANGES:] = [f"and {len(changed) - MAX_CHANGES} more"]
        remedy = "to resume, repeat the command in its provenance.json, or use another"
    remedy += f" run.dir= (init_from={path} starts from its policy)"
    raise ConfigError(f"run.dir={path} holds a run with another configuration: {', '.join(changed)}; {remedy}")


def _has_results(path: Path) -> bool:
    """Return whether the run has rows, checkpoints or an initial policy, which must not be overwritten."""
    rows = any(journal.stat().st_size for journal in path.glob("*.jsonl"))
    return rows or any(path.glob("checkpoints/*")) or (path / INITIAL).exists()
