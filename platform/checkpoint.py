"""Checkpoints: written whole or not at all, checked when read, the last few kept.

One file each, a NumPy archive: the arrays by their path in the state, and the plain data as JSON under `plain`.
Readable without this program: `numpy.load(path)`.
"""

import io
import json
import logging
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from envs.errors import PaddockError

log = logging.getLogger(__name__)

State = dict[str, Any]


class CheckpointError(PaddockError):
    """A checkpoint cannot be read, or does not fit what it is to be loaded into."""


class Checkpoints:
    """The checkpoints of one run, in one folder, named by iteration."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep

    def save(self, iteration: int, state: State) -> Path:
        """Write a checkpoint that is on the disk when this returns, and drop the oldest beyond those kept."""
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{iteration:08d}.npz"
        write_atomically(path, _pack(state))
        for old in self.paths()[self._keep :]:
            old.unlink(missing_ok=True)
        return path

    def paths(self) -> list[Path]:
        """The checkpoints there are, newest first."""
        return sorted(self._folder.glob("[0-9]*.npz"), reverse=True)

    def load(self) -> State | None:
        """The newest checkpoint that can be read; None where there is none.

        Raises:
            CheckpointError: there are checkpoints, and all of them are damaged.
        """
        damaged: list[CheckpointError] = []
        for path in self.paths():
            try:
                state = read(path)
            except CheckpointError as error:
                damaged.append(error)
                continue
            for damage in damaged:
                log.warning("%s; going on from %s", damage, path)
            return state
        if damaged:
            remedy = f"delete {self._folder} to start again"
            raise CheckpointError(f"{damaged[0]}; none of {len(damaged)} is whole: {remedy}")
        return None


def read(path: Path) -> State:
    """The state in a checkpoint file.

    Raises:
        CheckpointError: the file is damaged: cut off, or its checksums do not match.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if name != "plain"}
            plain = json.loads(str(archive["plain"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged ({type(error).__name__}: {error})") from error
    return _unpack(plain, arrays)


def check_fits(state: Mapping[str, Any], expected: Mapping[str, Any], path: str = "") -> None:
    """Compare a state with one of the same making.

    Raises:
        CheckpointError: a leaf is missing, unknown, or of another shape; it is named with both shapes.
    """
    for name in sorted(set(state) | set(expected)):
        leaf = f"{path}{name}"
        if name not in state or name not in expected:
            where = "the checkpoint lacks" if name not in state else "only the checkpoint has"
            raise CheckpointError(f"{where} '{leaf}'; it was written by another version of the algorithm")
        got, want = state[name], expected[name]
        if isinstance(want, Mapping) and isinstance(got, Mapping):
            check_fits(got, want, f"{leaf}.")
        elif isinstance(want, np.ndarray) and np.shape(got) != want.shape:
            # An array that begins without rows grows as the run goes on.
            if want.ndim and not want.shape[0] and np.shape(got)[1:] == want.shape[1:]:
                continue
            raise CheckpointError(f"'{leaf}' has shape {np.shape(got)} in the checkpoint and {want.shape} in this run")


def write_atomically(path: Path, content: bytes) -> None:
    """Put content at path so that a reader, or a crash at any moment, meets the old file or the new one whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _pack(state: State) -> bytes:
    arrays = dict(_arrays(state, ""))
    arrays["plain"] = np.array(json.dumps(_plain(state)))
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _arrays(state: Mapping[str, Any], path: str) -> Iterator[tuple[str, np.ndarray]]:
    for name, value in state.items():
        if isinstance(value, Mapping):
            yield from _arrays(value, f"{path}{name}.")
        elif isinstance(value, np.ndarray):
            yield f"{path}{name}", value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return {"__array__": True}
    return value.item() if isinstance(value, np.generic) else value


def _unpack(plain: Any, arrays: Mapping[str, np.ndarray], path: str = "") -> Any:
    if not isinstance(plain, dict):
        return plain
    if plain.get("__array__") is True:
        return arrays[path[:-1]]
    return {name: _unpack(item, arrays, f"{path}{name}.") for name, item in plain.items()}
