"""Repeat a run from its folder alone, and say whether the metrics are the same.

python -m paddock.rerun RUN
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from paddock.envs.errors import nearest, require

from . import CONF
from .config.command import Readers, display_path, parse, run_command
from .config.compose import compose_sections
from .config.experiment import assemble
from .runs.folder import INITIAL, check_format, read_config, read_json
from .runs.journal import describe_changes, read_rows
from .runs.provenance import find_source
from .runs.trust import add_start_folder_to_path
from .session import run_session

HELP = """\
Repeat a run from its folder alone, as far as it has come, and compare the metrics, byte by byte.

    python -m paddock.rerun RUN [key=value ...]

    RUN                 the run's folder, which is only read; the run may still be going on
    out=FOLDER          where it is repeated; else RUN with -rerun behind it; the same command goes on there
    iterations=100      repeat no more than so many, whole number >= 1
    compute=local       compute elsewhere, with the defaults of conf/compute: the numbers do not depend on it

Exit code 0 if the metrics are the same, 1 if they are not.
"""
READERS: Readers = {
    "out": (Path, "a folder"),
    "iterations": (int, "a whole number >= 1"),
    "compute": (str, "serial, local, dask or slurm"),
}
JOURNALS = ("metrics.jsonl", "events.jsonl")


@dataclass(frozen=True)
class Difference:
    """Where two runs part."""

    journal: str
    iteration: int | None  # None: one of them lacks the line
    what: str  # the keys that differ, with both values


def main() -> int:
    """The command `paddock.rerun`; see `run_command` for the exit codes, of which 1 is another one."""
    return run_command(HELP, lambda arguments: 0 if _command(arguments) else 1)


def rerun(run: Path, out: Path, iterations: int, compute: str | None = None) -> Difference | None:
    """Repeat so many iterations of a run in another folder.

    Returns:
        The first difference; None where there is none.

    Raises:
        PaddockError: the run cannot be repeated here, or has not come so far.
    """
    run, out = run.absolute(), out.absolute()  # environments may change the working directory
    config = read_config(run)
    check_format(run)
    add_start_folder_to_path(run)
    config |= {
        "budget": {"iterations": iterations, "steps": config["budget"]["steps"], "minutes": None, "return": None},
        "run": {"root": "runs", "name": None, "dir": str(out)},
        "track": {},
        # With what it began with, whatever has become of the run that it was from.
        "init_from": str(run / INITIAL) if (run / INITIAL).exists() else None,
        "resume": None,
        "dry_run": False,
    }
    if compute is not None:
        known = [option.stem for option in (CONF / "compute").glob("*.yaml")]
        require(compute in known, f"compute={compute} is not an option; {nearest(compute, known)}")
        config["compute"] = compose_sections(["compute"], [f"compute={compute}"])["compute"]
    remedy = "comparing its rows; delete it to repeat the run"
    outcome, _ = run_session(assemble(OmegaConf.create(config)), remedy=remedy, repeats=run)
    if outcome.signal is not None:
        raise SystemExit(128 + outcome.signal)
    return compare(run, out, iterations)


def compare(run: Path, other: Path, iterations: int) -> Difference | None:
    """The first difference of two runs within so many iterations; None where all lines are the same bytes.

    The evaluations of a run's end are left out: one of the runs may not have come to its end there.
    """
    for journal in JOURNALS:
        ours, theirs = (list(_rows(folder / journal, iterations)) for folder in (run, other))
        for one, two in zip(ours, theirs, strict=False):
            if json.dumps(one) != json.dumps(two):  # the bytes of the lines
                return Difference(journal, one["iteration"], describe_changes(one, two))
        if len(ours) != len(theirs):
            return Difference(journal, None, f"{len(ours)} lines were {len(theirs)} the second time")
    return None


def explain(run: Path, other: Path) -> list[str]:
    """What was not the same around two runs: code, packages, processor."""
    old, new = (read_json(folder / "provenance.json") for folder in (run, other))
    if not old:
        return [f"{run / 'provenance.json'} is missing or damaged, so what was not the same around them is not known"]
    around = [{key: of.get(key) for key in ("commit", "python", "cpu")} for of in (old, new)]
    packages = [of.get("packages", {}) for of in (old, new)]
    changes = {"": describe_changes(*around), "packages: ": describe_changes(*packages) if packages[0] else ""}
    found = [f"{head}{changed}" for head, changed in changes.items() if changed]
    if (run / "code.diff").exists() or find_source(Path(__file__).resolve().parent)[1]:
        found.append("code: with edits that were not committed, see code.diff")
    return found


def _command(arguments: Sequence[str]) -> bool:
    runs, options = parse("rerun", arguments, READERS)
    require(len(runs) == 1, f"rerun repeats one RUN, and {len(runs)} are given; write python -m paddock.rerun RUN")
    run = runs[0]
    read_config(run)
    come = max((row["iteration"] for row in _rows(run / "metrics.jsonl", sys.maxsize)), default=0)
    require(come > 0, f"{run} has no iteration yet; wait for one")
    iterations = options.get("iterations", come)
    require(1 <= iterations <= come, f"iterations={iterations} must be from 1 to {come}, as far as {run} has come")
    named = f"{run.resolve().name}-rerun"
    beside = run.with_name(named) if run.name not in ("", "..") else Path(display_path(run.resolve().with_name(named)))
    out = options.get("out", beside)
    require(out.resolve() != run.resolve(), f"out={out} is the run itself; choose another folder")
    found = rerun(run, out, iterations, options.get("compute"))
    if found is None:
        print(f"identical: the metrics of {iterations} iterations in {run} and {out} are the same bytes")
        return True
    where = "" if found.iteration is None else f" from iteration {found.iteration} on"
    print(f"different{where}, in {found.journal}: {found.what}")
    for line in explain(run, out):
        print(f"  {line}")
    return False


def _rows(path: Path, iterations: int) -> Iterator[dict[str, Any]]:
    """The rows of a journal up to an iteration, without those that the end of a run adds."""
    last = 0
    for row in read_rows(path, strict=True):
        if row["iteration"] > iterations or (row["iteration"] == last and path.name == "metrics.jsonl"):
            return
        last = row["iteration"]
        yield row


if __name__ == "__main__":
    sys.exit(main())
