"""What worker processes on this machine write to their errors, in a folder, and an echo of it in the log."""

import contextlib
import logging
import os
import time
from pathlib import Path

log = logging.getLogger(__name__)

PREFIX = "paddock-errors-"
LONGEST_LINE = 1 << 16  # bytes that wait for the end of their line
ENDED_S = 60.0  # a process that ended so long ago is not asked after any more


class Echo:
    """Passes on what workers on this machine write to their errors, and deletes the files of those that have ended."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._ended: dict[Path, float] = {}  # when a file's process was first found to have done so
        self._read: dict[Path, int] = {}  # bytes of each file
        self._begun: dict[Path, list[bytes]] = {}  # a line's, whose end has not come

    def __call__(self) -> None:
        """Log the lines that have come since the last call."""
        for path in self._folder.glob("*"):
            try:
                with open(path, "rb") as file:
                    file.seek(self._read.get(path, 0))
                    come = file.read()
            except OSError:  # somebody tidies up temporary files
                continue
            self._read[path] = self._read.get(path, 0) + len(come)
            begun = self._begun.setdefault(path, [])
            whole, newline, rest = come.rpartition(b"\n")
            if newline:
                whole = b"".join([*begun, whole])
                begun.clear()
            if rest:
                begun.append(rest)
            over = self._is_over(path)
            if over or (not newline and sum(map(len, begun)) > LONGEST_LINE):
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
