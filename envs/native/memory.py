"""Whether there is memory for so many native environments, asked before any of it is taken."""

from pathlib import Path

from paddock.envs.errors import require
from paddock.envs.native.library import describe
from paddock.envs.native.originals import CourseSettings
from paddock.envs.native.settings import NativeTask

BOOKKEEPING = 256  # bytes an environment: its generator, and its numbers in the caller's arrays
POINT = 24  # bytes of ground: a point, and its share of boxes


def check_memory(task: NativeTask, num_envs: int) -> None:
    """Raise ConfigError if so many environments need more memory than is free."""
    need, free = needed(task, num_envs), available()
    remedy = f"take {num_envs * free // need} or fewer"
    require(
        need <= free,
        f"num_envs={num_envs} of {task.source.id} need {need / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} GiB "
        f"are free; {remedy}",
    )


def needed(task: NativeTask, num_envs: int) -> int:
    """Bytes that so many environments take, about."""
    shape = describe(task.name)
    groups = -(-num_envs // shape.lanes)
    length = task.settings.length if isinstance(task.settings, CourseSettings) else 0
    row = BOOKKEEPING + 2 * (shape.row_bytes or 4 * shape.observations) + 8 * shape.actions
    return groups * shape.group_bytes + num_envs * (task.source.seats * row + POINT * length)


def available() -> int:
    """Bytes of memory that are free, or as good as free; without bound where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 2**63
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 2**63)
