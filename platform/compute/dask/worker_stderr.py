"""What worker processes on this machine write to their errors, in a folder, and an echo of it in the log."""

import contextlib
import ctypes
import logging
import os
import sys
import threading
import time
from pathlib import Path

from paddock.algos.pool.exit_report import TAIL_BYTES

log = logging.getLogger(__name__)

PREFIX = "paddock-errors-"
PIECE = 1 << 18  # bytes of all files that are told at once: the pool's loop waits meanwhile
LEAST_PIECE = 1 << 12  # bytes of each
MOST_BEHIND = 1 << 22  # bytes that wait to be told; of more all but the last PIECE are left out
LONGEST_LINE = 1 << 16  # bytes that wait for the end of their line
PUNCH_HOLE = 3  # fallocate's FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
ENDED_S = 60.0  # a process that ended so long ago is not asked after any more
_c = ctypes.CDLL(None)


class Echo:
    """Passes on what workers on this machine write to their errors, and deletes the files of those that have ended."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._ended: dict[Path, float] = {}  # when a file's process was first found to have done so
        self._read: dict[Path, int] = {}  # bytes of each file
        self._begun: dict[Path, list[bytes]] = {}  # a line's, whose end has not come
        self._looking = threading.Lock()

    def __call__(self) -> None:
        """Log the lines that have come since the last call, as far as there are not too many for one."""
        self._look(PIECE)

    def catch_up(self) -> None:
        """Log all that has come, lines without an end too, but for what is left out in any case."""
        self._look(None)

    def _look(self, room: int | None) -> None:
        with self._looking:
            paths = list(self._folder.glob("*"))
            for path in paths:
                most = MOST_BEHIND if room is None else max(room // len(paths), LEAST_PIECE)
                self._tell(path, most, last=room is None)

    def _tell(self, path: Path, most: int, *, last: bool) -> None:
        """Log lines of a file, of at most so many bytes; the last time also one that has no end."""
        try:
            with open(path, "r+b") as file:
                begin = self._read.get(path, 0)
                behind = file.seek(0, os.SEEK_END) - begin
                left_out = behind - min(PIECE, most) if behind > MOST_BEHIND else 0
                file.seek(begin + left_out)
                if left_out:  # also the rest of a line, which would be told as a whole one
                    left_out += len(file.readline(LONGEST_LINE)) + sum(map(len, self._begun.pop(path, ())))
                come = file.read(most)
                self._read[path] = file.tell()
                more = len(come) == most
                if come:
                    _free(file.fileno(), self._read[path] - TAIL_BYTES)
        except OSError:  # somebody tidies up temporary files
            return
        if left_out:
            log.info("worker process %s: (it writes too much; %d bytes are left out here)", path.name, left_out)
        begun = self._begun.setdefault(path, [])
        whole, newline, rest = come.rpartition(b"\n")
        if newline:
            whole = b"".join([*begun, whole])
            begun.clear()
        if rest:
            begun.append(rest)
        over = not more and self._is_over(path)
        if over or last or (not newline and sum(map(len, begun)) > LONGEST_LINE):
            whole = b"".join([whole, newline, *begun])
            begun.clear()
        for line in whole.decode(errors="replace").splitlines():
            if line.strip():
                log.info("worker process %s: %s", path.name, line)
        if over:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                for kept in (self._read, self._begun, self._ended):
                    kept.pop(path, None)

    def _is_over(self, path: Path) -> bool:
        """Return whether the process that a file is named by ended so long ago that nobody reads its last lines."""
        try:
            os.kill(int(path.name), 0)
        except ProcessLookupError:
            return time.monotonic() - self._ended.setdefault(path, time.monotonic()) >= ENDED_S
        except (PermissionError, ValueError):  # somebody else's by now, or no worker's
            pass
        self._ended.pop(path, None)
        return False


def _free(file: int, end: int) -> None:
    """Free the disk of what a file has before some byte, once it is much and where the system can.

    The rest stays where it is. To truncate the file would lose what its process writes meanwhile.
    """
    if end > MOST_BEHIND and sys.platform == "linux":
        _c.fallocate(file, PUNCH_HOLE, ctypes.c_int64(0), ctypes.c_int64(end))
