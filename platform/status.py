"""Say where runs stand: a line for each, from their folders and, for submitted ones, from Slurm's queue.

python -m paddock.status DIR [DIR ...]
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from paddock.envs.errors import require

from .config.command import Readers, parse, run_command
from .runs.state import WRONG, find_runs, read_run_states
from .runs.table import print_table

HELP = """\
Say where runs stand, while they go on or afterwards; exit code 1 if one has failed, stopped or got lost.

    python -m paddock.status DIR [DIR ...] [key=value ...]

    DIR        a run's folder, a multirun's, or any folder with some of them
    log=10     lines of its job's output to show for a run that failed before it began

Runs of a sweep have a column `with`: in what they differ. States:

    pending    submitted to Slurm, and not begun       running    somebody is at it
    requeued   begun, and waiting to go on             done       its budget is spent
    stopped    by a signal, and nobody goes on         failed     by an error
    lost       not finished, and nobody is at it       unknown    submitted, but squeue does not answer here
"""
READERS: Readers = {"log": (int, "a whole number of lines")}


def main() -> int:
    """The command; exit codes: 0 all is well, 1 a run has ended short of its budget, 2 bad input."""
    return run_command(HELP, _status)


def _status(arguments: Sequence[str]) -> None:
    given, values = parse("paddock.status", arguments, READERS)
    # A shell that spells out runs/* names files as well.
    folders = [folder for folder in dict.fromkeys(given) if not os.path.isfile(folder)] or given
    require(bool(folders), "no folder is given; see --help")
    lines = values.get("log", 10)
    require(lines >= 0, f"log={lines} must not be negative; 0 shows none")
    run_states = read_run_states(find_runs(*folders))
    within = folders[0] if len(folders) == 1 else Path(os.path.commonpath([folder.absolute() for folder in folders]))
    print_table(within, run_states, lines)
    over, busy = set[Path](), set[Path]()  # folders above runs that ended too early, and above some that will go on
    for run_state in run_states:
        if run_state.state in ("stopped", "lost"):
            over.update(run_state.run.absolute().parents)
        elif run_state.state in ("pending", "requeued", "running", "unknown"):
            busy.update(run_state.run.absolute().parents)
    short = over - busy
    if short:
        from .sweep.claim import print_resume_commands  # Hydra is slow to import, and most runs are fine

        print_resume_commands(sorted(short, reverse=True))
    if any(run_state.state in WRONG for run_state in run_states):
        sys.stdout.flush()
        raise SystemExit(1)


if __name__ == "__main__":
    sys.exit(main())
