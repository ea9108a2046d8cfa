"""Checkpoints: written atomically, verified when read, and limited to the newest few.

A checkpoint is a NumPy archive, readable by `numpy.load(path)`: the state's arrays by their paths, the rest of the state
as JSON under `plain`, and the format version under `format`.

`state_dict()` may hold None, bool, int, float, str, NumPy arrays and scalars of these, and lists, tuples and mappings of
such data at any depth; keys of mappings are str, int, bool, float or None. Values and types are restored exactly, except
that mappings become dicts. Other data raises an error when saved.

Larger data may be kept in files of one folder: a state lists the files it needs under a key `attachments` at any depth,
by their paths in the folder. Files that no checkpoint lists are deleted.
"""

import collections
import contextlib
import errno
import io
import json
import logging
import os
import re
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from paddock.algos.common.disk import sync
from paddock.envs.errors import DISK_FULL, PaddockError

log = logging.getLogger(__name__)

State = dict[str, Any]

FORMAT = 4  # of checkpoints and run folders; raised when older runs cannot be resumed
FULL = (errno.ENOSPC, errno.EDQUOT)
PLAIN = "plain"  # archive entry: the state as JSON, with names instead of arrays
VERSION = "format"


class CheckpointError(PaddockError):
    """A checkpoint cannot be read or does not fit the algorithm."""


class FormatError(CheckpointError):
    """A checkpoint has another format version."""


class StateMismatch(CheckpointError):
    """A state has other entries or shapes than the algorithm."""


class StorageError(PaddockError):
    """A file of a run cannot be written, for example on a full disk."""

    exit_code = DISK_FULL


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Convert an OSError into a StorageError that names the remedy."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        remedy = "free disk space" if error.errno in FULL else "fix this"
        what = f"{path} cannot be written ({why})"
        raise StorageError(f"{what}; {remedy}, then resume with the same command and run.dir=") from error


class Checkpoints:
    """Checkpoints of one run in one folder, named by iteration."""

    def __init__(self, folder: Path, keep: int, files: Path | None = None) -> None:
        """Set the folders, without reading or writing; `files` is the folder of attachments and holds nothing else."""
        self._folder = folder
        self._keep = keep
        self._files = files

    def save(self, iteration: int, state: State) -> Path:
        """Write a checkpoint and delete the oldest ones beyond `keep`.

        Raises:
            CheckpointError: the state holds unsupported data.
            StorageError: writing fails; earlier checkpoints are intact.
        """
        path = self._folder / f"{iteration:08d}.npz"
        content = _pack(state)
        with storing(path):
            if not self._folder.exists():
                self._folder.mkdir()
                sync(self._folder.parent)
            for stale in self._folder.glob(".*.tmp"):  # of writers that were killed
                stale.unlink(missing_ok=True)
            write_atomically(path, content)
            # Checkpoints of later iterations were damaged when this run resumed.
            older = [other for other in self.paths() if int(other.stem) <= iteration]
            for other in self.paths():
                if other not in older[: self._keep]:
                    other.unlink(missing_ok=True)
            self._sweep()
        return path

    @property
    def lacking(self) -> int:
        """Maximum number of further checkpoints on disk: up to `keep`, and one more while it is written."""
        return max(self._keep - len(self.paths()), 0) + 1

    def paths(self) -> list[Path]:
        """Return the checkpoints, newest first, without other files such as 00000009-best.npz."""
        paths = [path for path in self._folder.glob("*.npz") if path.stem.isdecimal()]
        return sorted(paths, key=lambda path: int(path.stem), reverse=True)

    @property
    def newest(self) -> int | None:
        """Iteration of the newest checkpoint, or None."""
        paths = self.paths()
        return int(paths[0].stem) if paths else None

    def _sweep(self) -> None:
        """Delete the attachments that no checkpoint lists, unless a checkpoint cannot be read."""
        if self._files is None or not self._files.exists():
            return
        try:
            named = {name for path in self.paths() for name in read_attachments(path)}
        except CheckpointError as error:
            log.warning("%s; files in %s are kept until it is removed", error, self._files)
            return
        for file in sorted(self._files.rglob("*"), reverse=True):  # the content of a folder before the folder
            if file.is_dir():
                with contextlib.suppress(OSError):  # not empty
                    file.rmdir()
            elif file.relative_to(self._files).as_posix() not in named:
                file.unlink(missing_ok=True)

    def load(self) -> State | None:
        """Read the newest undamaged checkpoint; return None if there is no checkpoint.

        Raises:
            CheckpointError: all checkpoints are damaged, or reading fails.
            FormatError: the newest one has another format version.
        """
        damaged: list[CheckpointError] = []
        for path in self.paths():
            try:
                state = read(path)
            except FormatError:
                raise
            except CheckpointError as error:
                if isinstance(error.__cause__, OSError) and error.__cause__.errno not in (None, errno.ENOENT):
                    raise
                damaged.append(error)
                continue
            for damage in damaged:
                log.warning("%s; resuming from %s", damage, path)
            return state
        if damaged:
            end = self._folder.parent / "done.json"
            remedy = f"delete {self._folder}{f' and {end}' if end.exists() else ''} to start again"
            raise CheckpointError(f"{damaged[0]}; all {len(damaged)} checkpoints are damaged; {remedy}")
        return None


def write(path: Path, state: State) -> None:
    """Write a state to a file; raise CheckpointError for unsupported data, StorageError if writing fails."""
    content = _pack(state)
    with storing(path):
        write_atomically(path, content)


def measure(state: State) -> int:
    """Return the size of a state's checkpoint in bytes."""
    return len(_pack(state))


def read(path: Path) -> State:
    """Read the state in a checkpoint file.

    Raises:
        CheckpointError: the file is truncated, or its checksums do not match.
        FormatError: it has another format version.
    """
    with _reading(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name not in (PLAIN, VERSION)}
        plain = json.loads(str(archive[PLAIN]))
    return _decode(plain, arrays)


def read_attachments(path: Path) -> list[str]:
    """Return the attachments that a checkpoint lists, without reading its arrays."""
    with _reading(path) as archive:
        plain = json.loads(str(archive[PLAIN]))
    return list(_attachments(_decode(plain, collections.defaultdict(lambda: np.zeros(0)))))


def _attachments(state: Any) -> Iterator[str]:
    if isinstance(state, list | tuple):
        for item in state:
            yield from _attachments(item)
    elif isinstance(state, Mapping):
        for name, item in state.items():
            yield from item if name == "attachments" else _attachments(item)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            version = int(archive[VERSION]) if VERSION in archive.files else 0
            if version != FORMAT:
                what = f"{path} has format version {version}, but this Paddock reads version {FORMAT}"
                raise FormatError(f"{what}; use the Paddock that wrote it (provenance.json)")
            yield archive
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, RuntimeError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged ({type(error).__name__}: {error})") from error


def check_fits(state: Mapping[str, Any], expected: Mapping[str, Any], path: str = "") -> None:
    """Raise StateMismatch unless a state has the entries and shapes of the algorithm's current one."""
    for name in sorted(set(state) | set(expected), key=str):
        leaf = f"{path}{name}"
        if name not in state or name not in expected:
            where = "the checkpoint lacks" if name not in state else "only the checkpoint has"
            raise StateMismatch(f"{where} '{leaf}'; it was written by another version of the algorithm")
        got, want = state[name], expected[name]
        if isinstance(want, Mapping) and isinstance(got, Mapping):
            # A mapping that starts empty, or has keys other than names, may change during a run.
            if want and all(type(key) is str for key in want):
                check_fits(got, want, f"{leaf}.")
        elif isinstance(want, np.ndarray) and np.shape(got) != want.shape:
            # An array that starts without rows grows during a run.
            if want.ndim and not want.shape[0] and np.shape(got)[1:] == want.shape[1:]:
                continue
            raise StateMismatch(f"'{leaf}' has shape {np.shape(got)} in the checkpoint and {want.shape} in this run")


def write_atomically(path: Path, content: bytes, *, alone: bool = True) -> None:
    """Replace a file so that readers find either the old or the new content, even after a crash.

    `alone` is False if other processes may write the file at the same time.
    """
    name = path.name if alone else f"{path.name}.{secrets.token_hex(4)}"
    temporary = path.with_name(f".{name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def _pack(state: State) -> bytes:
    arrays: dict[str, np.ndarray] = {}
    plain = json.dumps(_encode(state, "", arrays))
    buffer = io.BytesIO()
    # `numpy.savez` would take some names for its own arguments.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {**arrays, PLAIN: np.array(plain), VERSION: np.array(FORMAT)}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()


def _encode(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        return {"__scalar__": [value.dtype.str, value.item()]}
    if type(value) is np.ndarray and not value.dtype.hasobject:
        name = re.sub(r"[^\w.'-]", "_", path)
        # Two paths may be equal: {"a.b": x, "a": {"b": y}}.
        while name in arrays or name in (PLAIN, VERSION) or name.endswith(".npy"):
            name += "'"
        arrays[name] = value
        return {"__array__": name}
    if isinstance(value, list | tuple):
        items = [_encode(item, _join(path, k), arrays) for k, item in enumerate(value)]
        return items if type(value) is list else {"__tuple__": items} if type(value) is tuple else _refuse(value, path)
    if isinstance(value, Mapping):
        keys = list(value)
        if any(key is not None and type(key) not in (bool, int, float, str) for key in keys):
            _refuse(value, path)
        pairs = [[key, _encode(item, _join(path, key), arrays)] for key, item in value.items()]
        simple = all(type(key) is str and not key.startswith("__") for key in keys)
        return dict(pairs) if simple else {"__mapping__": pairs}
    return _refuse(value, path)


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _refuse(value: Any, path: str) -> NoReturn:
    what = f"{value.dtype}" if isinstance(value, np.ndarray | np.generic) else type(value).__name__
    allowed = "None, numbers, strings, arrays of numbers, and lists, tuples and mappings of them"
    raise CheckpointError(
        f"state_dict(): '{path}' holds a {what}, which checkpoints do not support; allowed: {allowed}"
    )


def _decode(plain: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(plain, list):
        return [_decode(item, arrays) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1:
        [(kind, content)] = plain.items()
        if kind == "__array__":
            return arrays[content]
        if kind == "__scalar__":
            return np.dtype(content[0]).type(content[1])
        if kind == "__tuple__":
            return tuple(_decode(content, arrays))
        if kind == "__mapping__":
            return {key: _decode(item, arrays) for key, item in content}
    return {name: _decode(item, arrays) for name, item in plain.items()}
