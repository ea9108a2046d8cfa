"""What goes wrong with a replay's files."""

from envs.errors import PaddockError


class ReplayError(PaddockError):
    """A file of a replay is missing or damaged, or the disk refuses one."""
