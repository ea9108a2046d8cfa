"""Refuses a script that opens workers whenever it is imported: its workers import it as they start."""

import multiprocessing
import os

from paddock.envs.errors import PaddockError

UNGUARDED_EXIT_CODE = 76


class Unguarded(PaddockError):
    """The script opens workers when it is imported."""

    def __init__(self, text: str = "") -> None:
        problem = "the script opens its Pool whenever it is imported, which workers do, too"
        super().__init__(text or f'{problem}; open it below `if __name__ == "__main__":`')


def check_guarded() -> None:
    """Check that this is not a worker process that is importing its driver's script.

    Raises:
        Unguarded: it is. A Dask worker exits instead, and its driver raises the error once for all of them.
    """
    if is_beginning():
        if multiprocessing.current_process().name.startswith("Dask Worker"):
            os._exit(UNGUARDED_EXIT_CODE)
        raise Unguarded


def is_beginning() -> bool:
    """Return whether this process was spawned and has not received its task yet, as multiprocessing notes it."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))
