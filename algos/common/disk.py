"""What is on the disk after a power loss, ends of files, and temporary folders that no kill leaves for ever."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

TAIL_BYTES = 1 << 16


def sync(path: Path) -> None:
    """Put a file's content on the disk, or the names in a folder: without them a new file is not found again."""
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
    """A temporary folder whose name begins so; what killed processes left of theirs goes, too."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _locked(left):
            if left.stat().st_uid == os.geteuid():
                shutil.rmtree(left)
    # Takes its name when it is locked, so that nobody else sees it without an owner.
    new = Path(tempfile.mkdtemp(prefix=f".{prefix}"))
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # of a file system without locks, where what others left stays, too
            stack.enter_context(_locked(new))
        folder = new.rename(new.with_name(new.name.lstrip(".")))
        try:
            yield str(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Own a folder as long as this process lives.

    Raises:
        OSError: another process does, or the file system has no locks.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
