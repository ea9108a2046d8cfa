"""What a replay takes of the disk and of memory, said before the first step, and what goes wrong with its files."""

import logging
import shutil
from pathlib import Path

from envs.errors import NO_ROOM, PaddockError
from envs.machine import memory_bytes, spell

log = logging.getLogger(__name__)


class ReplayError(PaddockError):
    """A file of a replay is missing or damaged, or the disk refuses one."""


class ReplayRefused(ReplayError):
    """The disk refuses what a replay has to write: it is full, or gone."""

    exit_code = NO_ROOM


def check_disk(folder: Path, capacity: int, step_bytes: int, kept: int, taken: int) -> None:
    """Compare what a replay takes when it is full with what there is.

    Args:
        capacity: steps.
        kept: steps that are there already.
        taken: bytes of the disk that other replays of the run have yet to take.

    Raises:
        ReplayError: the disk has less left.
    """
    there = [path for path in (folder, *folder.absolute().parents) if path.exists()]
    free, nbytes = max(shutil.disk_usage(there[0]).free - taken, 0), capacity * step_bytes
    if nbytes - kept * step_bytes > free:
        what = f"capacity={capacity} takes {spell(nbytes)} in {folder}"
        fits = free // step_bytes + kept
        raise ReplayError(f"{what}, where {spell(free)} are left; take at most {fits}, or another run.dir=")
    if nbytes > memory_bytes():
        sizes = spell(nbytes), spell(memory_bytes())
        log.warning("replay takes %s and this machine has %s of memory: draws will wait for the disk", *sizes)
