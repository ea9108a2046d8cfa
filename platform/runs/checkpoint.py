"""Checkpoints: written whole or not at all, checked when read, the last few kept.

One file each, a NumPy archive: the arrays by their path in the state, and the plain data as JSON under `plain`.
Readable without this program: `numpy.load(path)`.

What `state_dict()` may hold, and `load_state_dict()` is given again equal in value and type: None, bool, int, float,
str, NumPy arrays and scalars of these, and lists, tuples and mappings of such data at any depth, mappings with keys of
str, int, bool, float or None. Mappings become dicts. Anything else is refused when it is saved.

What is too large for that may lie in files of its own, in one folder: a state names those that it needs in a list, the
value of a key `attachments` anywhere in it, by their paths there. A file that no checkpoint names any more is deleted.
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
from paddock.envs.errors import NO_ROOM, PaddockError

log = logging.getLogger(__name__)

State = dict[str, Any]

FULL = (errno.ENOSPC, errno.EDQUOT)
PLAIN = "plain"  # in the archive: the state as JSON, with names of arrays in their place


class CheckpointError(PaddockError):
    """A checkpoint cannot be read, or does not fit what it is to be loaded into."""


class StateMismatch(CheckpointError):
    """A state has other leaves, or of other shapes, than what it is to be loaded into."""


class StorageError(PaddockError):
    """The disk refuses what a run has to write: it is full, or gone."""

    exit_code = NO_ROOM


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn what the disk says while a file is written into a StorageError, which says what to do."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        remedy = "make room" if error.errno in FULL else "mend that"
        said = f"{path} cannot be written ({why}); {remedy}, and the same command with run.dir= goes on"
        raise StorageError(said) from error


class Checkpoints:
    """The checkpoints of one run, in one folder, named by iteration."""

    def __init__(self, folder: Path, keep: int, files: Path | None = None) -> None:
        """Touch no file.

        Args:
            files: the folder of the files that states name, and of no others.
        """
        self._folder = folder
        self._keep = keep
        self._files = files

    def save(self, iteration: int, state: State) -> Path:
        """Write a checkpoint that is on the disk when this returns, and drop the oldest beyond those kept.

        Raises:
            CheckpointError: the state holds what cannot be kept; its leaf is named.
            StorageError: the disk is full or gone; those saved before are whole.
        """
        path = self._folder / f"{iteration:08d}.npz"
        content = _pack(state)
        with storing(path):
            if not self._folder.exists():
                self._folder.mkdir()
                sync(self._folder.parent)  # else it may not be found again after a power loss
            for stale in self._folder.glob(".*.tmp"):  # of writers that were killed
                stale.unlink(missing_ok=True)
            write_atomically(path, content)
            # One of a later iteration could not be read when this run went on: it would push out those that can be.
            older = [other for other in self.paths() if int(other.stem) <= iteration]
            for other in self.paths():
                if other not in older[: self._keep]:
                    other.unlink(missing_ok=True)
            self._sweep()
        return path

    @property
    def lacking(self) -> int:
        """How many have yet to be written until there are no more at once: those kept, and one while it is written."""
        return max(self._keep - len(self.paths()), 0) + 1

    def paths(self) -> list[Path]:
        """The checkpoints there are, newest first; a copy kept beside them, as 00000009-best.npz, is none."""
        paths = [path for path in self._folder.glob("*.npz") if path.stem.isdecimal()]
        return sorted(paths, key=lambda path: int(path.stem), reverse=True)

    @property
    def newest(self) -> int | None:
        """The iteration that the newest is of; None where there is none."""
        paths = self.paths()
        return int(paths[0].stem) if paths else None

    def _sweep(self) -> None:
        """Delete the files that no checkpoint names; none while a checkpoint cannot be read."""
        if self._files is None or not self._files.exists():
            return
        try:
            named = {name for path in self.paths() for name in read_attachments(path)}
        except CheckpointError as error:
            log.warning("%s; no file in %s is deleted until it is gone", error, self._files)
            return
        for file in sorted(self._files.rglob("*"), reverse=True):  # what is in a folder before the folder
            if file.is_dir():
                with contextlib.suppress(OSError):  # it is not empty
                    file.rmdir()
            elif file.relative_to(self._files).as_posix() not in named:
                file.unlink(missing_ok=True)

    def load(self) -> State | None:
        """The newest checkpoint that can be read; None where there is none.

        Raises:
            CheckpointError: there are checkpoints, and all of them are damaged, or the newest cannot be read at all.
        """
        damaged: list[CheckpointError] = []
        for path in self.paths():
            try:
                state = read(path)
            except CheckpointError as error:
                # What the disk will not give now may be whole, and newer than the others.
                if isinstance(error.__cause__, OSError) and error.__cause__.errno not in (None, errno.ENOENT):
                    raise
                damaged.append(error)
                continue
            for damage in damaged:
                log.warning("%s; going on from %s", damage, path)
            return state
        if damaged:
            remedy = f"delete {self._folder} to start again"
            raise CheckpointError(f"{damaged[0]}; none of {len(damaged)} is whole: {remedy}")
        return None


def write(path: Path, state: State) -> None:
    """Write a file that `read` gives again, of what a checkpoint may hold.

    Raises:
        CheckpointError: the state holds what cannot be kept; its leaf is named.
        StorageError: the disk is full or gone.
    """
    content = _pack(state)
    with storing(path):
        write_atomically(path, content)


def measure(state: State) -> int:
    """Return the bytes of a checkpoint of a state."""
    return len(_pack(state))


def read(path: Path) -> State:
    """The state in a checkpoint file.

    Raises:
        CheckpointError: the file is damaged: cut off, or its checksums do not match.
    """
    with _reading(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != PLAIN}
        plain = json.loads(str(archive[PLAIN]))
    return _decode(plain, arrays)


def read_attachments(path: Path) -> list[str]:
    """The names of the files that the state in a checkpoint file needs; no array is read.

    Raises:
        CheckpointError: the file is damaged.
    """
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
            yield archive
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, RuntimeError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged ({type(error).__name__}: {error})") from error


def check_fits(state: Mapping[str, Any], expected: Mapping[str, Any], path: str = "") -> None:
    """Compare a state with one of the same making.

    Raises:
        StateMismatch: a leaf is missing, unknown, or of another shape; it is named with both shapes.
    """
    for name in sorted(set(state) | set(expected), key=str):
        leaf = f"{path}{name}"
        if name not in state or name not in expected:
            where = "the checkpoint lacks" if name not in state else "only the checkpoint has"
            raise StateMismatch(f"{where} '{leaf}'; it was written by another version of the algorithm")
        got, want = state[name], expected[name]
        if isinstance(want, Mapping) and isinstance(got, Mapping):
            # One that begins empty, or whose keys are no names, grows and shrinks as the run goes on.
            if want and all(type(key) is str for key in want):
                check_fits(got, want, f"{leaf}.")
        elif isinstance(want, np.ndarray) and np.shape(got) != want.shape:
            # An array that begins without rows grows as the run goes on.
            if want.ndim and not want.shape[0] and np.shape(got)[1:] == want.shape[1:]:
                continue
            raise StateMismatch(f"'{leaf}' has shape {np.shape(got)} in the checkpoint and {want.shape} in this run")


def write_atomically(path: Path, content: bytes, *, alone: bool = True) -> None:
    """Put content at path so that a reader, or a crash at any moment, meets the old file or the new one whole.

    Args:
        alone: nobody else writes it meanwhile, so that the next writer overwrites what a killed one left.
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
    # By hand, as `numpy.savez` takes the names of arrays for those of its own arguments.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {**arrays, PLAIN: np.array(plain)}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()


def _encode(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return the JSON of a value; its arrays are added to `arrays`, by their paths."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        return {"__scalar__": [value.dtype.str, value.item()]}
    if type(value) is np.ndarray and not value.dtype.hasobject:
        name = re.sub(r"[^\w.'-]", "_", path)
        # Two paths may be spelled alike: {"a.b": x, "a": {"b": y}}.
        while name in arrays or name == PLAIN or name.endswith(".npy"):
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
    allowed = "None, numbers, text, arrays of numbers, and lists, tuples and mappings of them"
    raise CheckpointError(f"state_dict(): '{path}' holds a {what}, which no checkpoint keeps; allowed: {allowed}")


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
