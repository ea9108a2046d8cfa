"""The run folder: one run's own, locked while it runs, and readable without this program.

config.yaml        the composed configuration     metrics.jsonl   what was learned, the same on every machine
provenance.json    command, versions, machine     system.jsonl    how it went: seconds, steps/s, retries
code.diff          edits not yet committed        checkpoints/    NumPy archives, the newest few
log.txt            messages                       done.json       why and when it ended
events.jsonl       births, transfers and the like, of algorithms that tell them
initial.npz        the policy that it began with, where init_from named one
replay/            files of algorithms that keep any, which checkpoints name
submission.json    job, command and code, if submitted to Slurm; slurm.log: what its job printed
trial.json         which trial of a sweep it is, if it is one; output.log: what it printed as one of several
"""

import contextlib
import fcntl
import json
import logging
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import yaml

from paddock.algos.protocol import TakesPolicy
from paddock.envs.errors import IN_USE, NO_ROOM, ConfigError, PaddockError, nearest, resolve
from paddock.envs.process import keep_from_forks

from .checkpoint import FULL, storing, write_atomically
from .identity import changed_keys, changed_processors
from .provenance import find_source, now, write_provenance

log = logging.getLogger(__name__)

# All that a run may have which has been submitted, or was killed at once.
BEGUN = (
    *("lock", ".config.yaml.tmp", "submission.json", ".submission.json.tmp", "slurm.log", "workers"),
    *("trial.json", ".trial.json.tmp", "output.log", ".stop"),
)
# One of which a run's folder has from the first moment, and one of other settings has not.
BESIDE = ("lock", "provenance.json", "metrics.jsonl", "system.jsonl", "done.json")
# The same values as the loader in Python, seven times as fast.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
INITIAL = "initial.npz"
# What a folder says of where the run in it is from.
ORIGIN = ("provenance.json", "code.diff", "wandb/run_id", "mlflow/run_id")
GLANCE_S = 0.2  # who only looks whether a run is alive holds its lock for less


class FolderError(PaddockError):
    """The run folder cannot be made, used or read."""


class FolderFull(FolderError):
    """The disk of the run folder is full."""

    exit_code = NO_ROOM


class FolderInUse(FolderError):
    """Another process is at the run in the folder."""

    exit_code = IN_USE


class FolderTaken(FolderInUse):
    """Another process made the folder that was to be a new run's; there are other names."""


class Beginning(Protocol):
    """What a run begins with, and its folder keeps: `keep` writes it there, and `facts` say where it is from."""

    @property
    def facts(self) -> Mapping[str, Any]: ...
    def keep(self, path: Path) -> None: ...


class RunFolder:
    """A run's folder, from the moment it is this process's own until `release`.

    Attributes:
        replaced: what was otherwise in a run there that had come to nothing, with old and new values; mostly nothing.
    """

    replaced: Sequence[str] = ()

    def __init__(self, path: Path, lock: IO[str], made: Sequence[Path]) -> None:
        self.path = path
        self._lock = lock
        self._made = made  # folders that were made for it, the deepest first
        self._begun = False

    @classmethod
    def open(cls, path: Path, config: Mapping[str, Any], *, new: bool = False) -> "RunFolder":
        """Take the folder's lock, making the folder where there is none; nothing else is written before `begin`.

        Whatever is read of the run after this stays as it was read.

        Args:
            new: the folder is to be made here.

        Raises:
            FolderError: it cannot be written, or holds something else; FolderInUse: another process is at it.
            FolderTaken: it is not new.
            ConfigError: it holds a run of another configuration, which has come to something; the keys are named.
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
        except FolderInUse:
            raise
        except FolderError:
            folder.release()
            raise
        try:
            # Whoever held the lock until now may have begun another run here, or removed the folder.
            check_usable(path, config, locked=True)
            if os.fstat(lock.fileno()).st_nlink == 0:
                raise FolderError(f"run.dir={path} was just removed by another process; give the command again")
            folder.replaced = find_replaced(path, config)
            for name in ORIGIN if folder.replaced else ():
                (path / name).unlink(missing_ok=True)
        except BaseException:
            folder.release()
            raise
        return folder

    @property
    def ended(self) -> str | None:
        """Why the run ended by itself, as noted by `finish`; None where it has not, was stopped, or failed."""
        return read_end(self.path) if has_ended(self.path) else None

    def begin(
        self,
        config: Mapping[str, Any],
        command: str | None = None,
        beside: Mapping[str, Any] | None = None,
        origin: Beginning | None = None,
    ) -> None:
        """Describe the run in its folder, or as it goes on.

        Args:
            command: that starts it again, where this process's own is another one.
            beside: what else its provenance says, where there is any: the niche that it is on, versions of packages at
                servers of its environments, by address, and the run that it repeats.
            origin: the policy that it begins with, where that is another run's.

        Raises:
            FolderError: it cannot be written.
        """
        self._begun = True
        path = self.path
        try:
            # First what makes the folder a run's: a process killed from here on leaves one that can be gone on with.
            write_atomically(path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False).encode())
            if origin is not None:  # before it is said where that is from, which may have another one later
                origin.keep(path)
            if not (path / "provenance.json").exists():
                commit, diff = find_source(Path(__file__).resolve().parent)
                if diff:
                    write_atomically(path / "code.diff", diff.encode(errors="surrogateescape"))
                unknown = commit is not None and diff is None
                if unknown:
                    log.warning("git does not say what is edited in the code; %s keeps its commit alone", path)
                said = {"init_from": origin and dict(origin.facts), **(beside or {}), "diff": unknown and "unknown"}
                write_provenance(path, commit, command, {key: value for key, value in said.items() if value})
            (path / "done.json").unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(path, error) from error

    def finish(self, reason: str, metrics: Mapping[str, float]) -> None:
        """Note why and when the run ended, and its last metrics; as in its journals, null where one was no number.

        Raises:
            StorageError: the disk is full or gone.
        """
        done = {"reason": reason, "time": now(), "metrics": finite(metrics)}
        with storing(self.path / "done.json"):
            write_atomically(self.path / "done.json", json.dumps(done, indent=2).encode())

    def release(self) -> None:
        """Let other processes use the folder; one that was made and never begun goes again."""
        if not self._begun:
            with contextlib.suppress(OSError):
                lock = self.path / "lock"
                # It may be another's by now, if somebody removed the folder and made it again.
                if self._made and os.path.samestat(os.fstat(self._lock.fileno()), lock.stat()):
                    lock.unlink()
                    for folder in self._made:
                        folder.rmdir()
        self._lock.close()


def check_usable(path: Path, config: Mapping[str, Any], *, locked: bool = False, new: bool = False) -> None:
    """Raise what `RunFolder.open` would, as far as it can be known without leaving a trace.

    Args:
        locked: this process holds the lock.
        new: there is to be no such folder yet.
    """
    if new:
        try:
            check_usable(path, config)
        except PaddockError as error:
            if path.exists():
                raise _taken(path) from error
            raise
        if path.exists():
            raise _taken(path)
        return
    remedy = "choose another with run.dir="
    try:
        if path.exists() and not path.is_dir():
            raise FolderError(f"run.dir={path} is a file; {remedy}")
        if (path / "config.yaml").exists():
            _check_same(path, config)
        elif path.is_dir() and any(child.name not in BEGUN for child in path.iterdir()):
            raise FolderError(f"run.dir={path} is not empty and holds no run; choose an empty or a new folder")
        with tempfile.TemporaryFile(dir=next(parent for parent in (path, *path.absolute().parents) if parent.exists())):
            pass
        if not locked and (path / "lock").exists():
            with open(path / "lock", "a") as lock:
                _lock(lock, path)
    except OSError as error:
        raise unwritable(path, error) from error


def find_replaced(path: Path, config: Mapping[str, Any]) -> Sequence[str]:
    """Return in which keys a run of this configuration differs from one in the folder that it may take the place of.

    That one has come to nothing: no row, whole or not, no checkpoint, and no last metrics.
    """
    changed = _find_changes(path, config) if (path / "config.yaml").exists() else ()
    return () if _is_kept(path, changed) else changed


def read_end(path: Path) -> str | None:
    """Why a run ended, as its `done.json` says; None while it has not."""
    reason = read_json(path / "done.json").get("reason")
    return None if reason is None else str(reason)


def has_ended(path: Path) -> bool:
    """Whether a run came to its own end: it was neither stopped by a signal nor failed, and has not gone on since."""
    reason = read_end(path)
    return reason is not None and not reason.startswith(("failed: ", "SIG"))


def holds_run(folder: Path) -> bool:
    """Whether a folder is a run's, and not another program's that has a configuration too.

    Asked so, what a folder that is closed to the user holds is not there, and hides no other run.
    """
    return os.path.isfile(folder / "config.yaml") and (
        any(os.path.exists(folder / name) for name in BESIDE) or any((folder / "checkpoints").glob("*.npz"))
    )


def read_config(path: Path, sections: Sequence[str] = ("algo", "env")) -> dict[str, Any]:
    """The configuration of the run in a folder.

    Args:
        sections: which it must have.

    Raises:
        FolderError: there is no run, or its configuration is damaged or of another program.
    """
    try:
        config = yaml.load((path / "config.yaml").read_text(), LOADER)
        if not isinstance(config, dict):
            raise FolderError(f"{path / 'config.yaml'} is damaged: it holds no mapping")
        for section in sections:
            if not isinstance(config.get(section), dict):  # settings of another program, mostly
                raise FolderError(
                    f"{path / 'config.yaml'} is of no run: it has no section {section}; name a run's folder"
                )
        return config
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FolderError(f"{path / 'config.yaml'} is damaged ({error})") from error
    except OSError as error:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise FolderError(f"{path / 'config.yaml'} cannot be read ({error.strerror})") from error
        inside, beside = ([str(run.parent) for run in of.glob("*/config.yaml")] for of in (path, path.parent))
        if inside:
            hint = f"it holds runs; name one, such as {min(inside)}"
        else:
            hint = nearest(str(path), beside) if beside else "a run folder holds config.yaml"
        raise FolderError(f"{path} is not a run folder; {hint}") from error


def finite(value: Any) -> Any:
    """Return plain data with None for NaN and infinity, which strict JSON has not."""
    if isinstance(value, float):  # first, as most are
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a file; empty where there is none, or it is damaged: a run's folder is whole without it."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def import_from_where_it_began(run: Path) -> None:
    """Let modules be imported from the folder that a run was started in, after all others."""
    began = read_json(run / "provenance.json").get("folder")
    if isinstance(began, str) and Path(began).is_dir() and began not in sys.path:
        sys.path.append(began)


def unwritable(path: Path, error: OSError) -> FolderError:
    """Return what to raise where a run's folder cannot be made or written."""
    remedy = "make room, or choose another with run.dir=" if error.errno in FULL else "choose another with run.dir="
    kind = FolderFull if error.errno in FULL else FolderError
    return kind(f"run.dir={path} cannot be written ({error.strerror}); {remedy}")


def _taken(path: Path) -> FolderTaken:
    return FolderTaken(f"run.dir={path} was just made by another process; give the command again")


def _lock(file: IO[str], path: Path) -> None:
    """Take the lock that closing the file gives back."""
    deadline = time.monotonic() + GLANCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                file.close()
                said = f"run.dir={path} is in use by another process; wait for it or choose another"
                raise FolderInUse(said) from error
            time.sleep(0.01)
        except OSError as error:  # of a file system without locks, as some clusters mount theirs
            remedy = "choose one on another disk with run.dir=, or have this one mounted with locks"
            raise FolderError(f"run.dir={path} cannot be locked ({error.strerror}); {remedy}") from error


def _check_same(path: Path, config: Mapping[str, Any]) -> None:
    changed = _find_changes(path, config)
    if not changed or not _is_kept(path, changed):
        return
    remedy = "use the run's own values, or another run.dir="
    same_task = not changed[0].startswith(("algo was ", "env was "))
    if same_task and any(path.glob("checkpoints/*.npz")) and _takes_policy(config):
        remedy += f", where init_from={path} begins with its policy"
    raise ConfigError(f"run.dir={path} holds a run of another configuration: {', '.join(changed)}; {remedy}")


def _find_changes(path: Path, config: Mapping[str, Any]) -> list[str]:
    old = read_config(path)
    moved = changed_processors(old, config)
    return [change for change in changed_keys(old, config) if change not in moved]


def _is_kept(path: Path, changed: Sequence[str]) -> bool:
    """Return whether the run in a folder has what one with these changes must not take the place of."""
    come = any(journal.stat().st_size for journal in path.glob("*.jsonl")) or any(path.glob("checkpoints/*"))
    # The policy that it began with may be kept nowhere else.
    other_policy = (path / INITIAL).exists() and any(change.startswith("init_from was ") for change in changed)
    return come or other_policy or bool(read_json(path / "done.json").get("metrics"))


def _takes_policy(config: Mapping[str, Any]) -> bool:
    """Return whether runs of an algorithm may begin with the policy of another."""
    return isinstance(resolve(config["algo"]["_target_"], "algo._target_"), TakesPolicy)
