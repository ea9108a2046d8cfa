"""Check that a script does not open workers on import, since its workers import it when they start."""

import multiprocessing
import os

from paddock.envs.errors import PaddockError

UNGUARDED_EXIT_CODE = 76


class Unguarded(PaddockError):
    """The script opens workers when it is imported."""

    def __init__(self, text: str = "") -> None:
        problem = "the script opens its Pool when it is imported, which its workers do, too"
        super().__init__(text or f'{problem}; open it below `if __name__ == "__main__":`')


def check_guarded() -> None:
    """Raise Unguarded if this process is a worker importing its driver's script; a Dask worker exits instead."""
    if is_bootstrapping():
        if multiprocessing.current_process().name.startswith("Dask Worker"):
            os._exit(UNGUARDED_EXIT_CODE)
        raise Unguarded


def is_bootstrapping() -> bool:
    """Return whether this process was spawned by multiprocessing and is still in its bootstrapping phase."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))
