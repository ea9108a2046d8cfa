"""File-system helpers: syncing to disk, reading the end of a file, and temporary folders that are always removed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

TAIL_BYTES = 1 << 16


def sync(path: Path) -> None:
    """Flush a file to disk, or a folder's entries, without which a new file may be lost in a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tail(path: Path) -> list[str]:
    """Read the last non-blank lines of a file; none if it is missing."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()]


@contextlib.contextmanager
def open_temporary(prefix: str) -> Iterator[str]:
    """Open a temporary folder with this prefix; also remove those that killed processes left."""
    for stale in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _locked(stale):
            if stale.stat().st_uid == os.geteuid():
                shutil.rmtree(stale)
    # Rename the folder once it is locked, so that no other process takes it for stale.
    new = Path(tempfile.mkdtemp(prefix=f".{prefix}"))
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a file system without locks, where stale folders are kept
            stack.enter_context(_locked(new))
        folder = new.rename(new.with_name(new.name.lstrip(".")))
        try:
            yield str(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder until this process ends; raise OSError if it is locked, or the file system has no locks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
