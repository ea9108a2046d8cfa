"""Check of a replay's disk space before a run starts, and errors of its files."""

import shutil
from pathlib import Path

from paddock.envs.errors import DISK_FULL, PaddockError
from paddock.envs.machine import format_bytes

SHARE = 8  # a file holds at most 1/SHARE of the replay, unless that is only a few rows


class ReplayError(PaddockError):
    """A replay file is missing or damaged, or cannot be written."""


class ReplayRefused(ReplayError):
    """A replay file cannot be written, for example because the disk is full."""

    exit_code = DISK_FULL


def check_disk(
    folder: Path, capacity: int, step_bytes: int, kept: int, file_bytes: int, taken: int, members: int
) -> None:
    """Raise ReplayError if a full replay exceeds the free disk space.

    `kept` of `capacity` steps are stored already. `file_bytes` are those of the one file beyond the capacity, since old
    steps are dropped by whole files, and `taken` those that the rest of the run will still need. `members` of a
    population have such a replay.
    """
    there = [path for path in (folder, *folder.absolute().parents) if path.exists()]
    free = max(shutil.disk_usage(there[0]).free - taken, 0) // members
    if (capacity - kept) * step_bytes + file_bytes > free:
        what = f"algo.buffer_size={capacity} needs {format_bytes(capacity * step_bytes)} in {folder}"
        # A smaller replay has smaller files.
        fits = max(free - file_bytes, free * SHARE // (SHARE + 1)) // step_bytes + kept
        left = f"where {format_bytes(free)} are free" + (f" for each of {members} members" if members > 1 else "")
        left += f" besides {format_bytes(taken)} for checkpoints and other files" if taken else ""
        raise ReplayError(f"{what}, {left}; use at most {fits}, or another run.dir=")
