"""Disk space of a replay, checked before a run begins, and errors of its files."""

import shutil
from pathlib import Path

from paddock.envs.errors import DISK_FULL, PaddockError
from paddock.envs.machine import format_bytes

SHARE = 8  # of what is kept, that a file of a replay has at most, if that is more than a few rows


class ReplayError(PaddockError):
    """Missing or damaged file of a replay, or one that the disk refuses."""


class ReplayRefused(ReplayError):
    """Failed write of a replay: the disk is full, or gone."""

    exit_code = DISK_FULL


def check_disk(
    folder: Path, capacity: int, step_bytes: int, kept: int, file_bytes: int, taken: int, members: int
) -> None:
    """Compare what a replay takes when it is full with what there is.

    Args:
        capacity: steps.
        kept: steps that are there already.
        file_bytes: of the file that it will have beyond its capacity, as old steps are dropped by whole files.
        taken: bytes of the disk that all else of the run has yet to take.
        members: of a population that have such a replay each.

    Raises:
        ReplayError: the disk has less left.
    """
    there = [path for path in (folder, *folder.absolute().parents) if path.exists()]
    free = max(shutil.disk_usage(there[0]).free - taken, 0) // members
    if (capacity - kept) * step_bytes + file_bytes > free:
        what = f"algo.buffer_size={capacity} takes {format_bytes(capacity * step_bytes)} in {folder}"
        # Files of a small one are smaller, too.
        fits = max(free - file_bytes, free * SHARE // (SHARE + 1)) // step_bytes + kept
        left = f"where {format_bytes(free)} are left" + (f" for each of {members} members" if members > 1 else "")
        left += f" beside {format_bytes(taken)} of checkpoints and others" if taken else ""
        raise ReplayError(f"{what}, {left}; take at most {fits}, or another run.dir=")
