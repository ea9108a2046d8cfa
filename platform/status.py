"""Show the state and progress of runs, from their folders and Slurm's queue.

python -m paddock.status DIR [DIR ...]
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from paddock.envs.errors import require

from .config.command import parse, run_command
from .runs.results import find_sweeps
from .runs.state import WRONG, find_runs, read_run_states
from .runs.table import print_table

SHOWN = 10  # output lines of a job that failed before its run started


def main() -> int:
    """Run the command `paddock.status`; return 1 if a run ended before its budget."""
    return run_command("status", _status)


def _status(arguments: Sequence[str]) -> None:
    given, _ = parse("paddock.status", arguments, {})
    # The shell expands runs/* to files too.
    folders = [folder for folder in dict.fromkeys(given) if not os.path.isfile(folder)] or given
    require(bool(folders), "no folder given; usage: python -m paddock.status DIR...")
    run_states = read_run_states(find_runs(*folders))
    within = folders[0] if len(folders) == 1 else Path(os.path.commonpath([folder.absolute() for folder in folders]))
    print_table(within, run_states, SHOWN)
    for sweep in dict.fromkeys(sweep for folder in folders for sweep in find_sweeps(folder)):
        from .sweep.summary import describe_progress  # slow to import

        print(describe_progress(sweep, run_states))
    over, busy = set[Path](), set[Path]()  # parents of unfinished runs, and of runs that are active
    for run_state in run_states:
        if run_state.state in ("stopped", "lost"):
            over.update(run_state.run.absolute().parents)
        elif run_state.state in ("pending", "requeued", "running", "unknown"):
            busy.update(run_state.run.absolute().parents)
    short = over - busy
    if short:
        from .sweep.claim import print_resume_commands  # slow to import

        print_resume_commands(sorted(short, reverse=True))
    if any(run_state.state in WRONG for run_state in run_states):
        sys.stdout.flush()
        raise SystemExit(1)


if __name__ == "__main__":
    sys.exit(main())
