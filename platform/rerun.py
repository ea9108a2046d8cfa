"""Repeat a run from its folder, and compare the metrics.

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
from .evaluation.load import add_start_folder_to_path
from .runs.folder import INITIAL, read_config, read_json
from .runs.journal import describe_changes, read_rows
from .runs.provenance import find_source
from .session import run_session

READERS: Readers = {
    "out": (Path, "a folder"),
    "iterations": (int, "an integer >= 1"),
    "compute": (str, "serial, local, dask or slurm"),
}
JOURNALS = ("metrics.jsonl", "events.jsonl")


@dataclass(frozen=True)
class Difference:
    """First difference between two runs."""

    journal: str
    iteration: int | None  # None if one run lacks the line
    what: str  # the differing keys with both values


def main() -> int:
    """Run the command `paddock.rerun`; return 1 if the metrics differ."""
    return run_command("rerun", lambda arguments: 0 if _command(arguments) else 1)


def rerun(run: Path, out: Path, iterations: int, compute: str | None = None) -> Difference | None:
    """Repeat the first iterations of a run in another folder.

    Returns:
        The first difference, or None.
    """
    run, out = run.absolute(), out.absolute()  # environments may change the working directory
    config = read_config(run)
    add_start_folder_to_path(run)
    config |= {
        "budget": {"iterations": iterations, "steps": config["budget"]["steps"], "minutes": None, "return": None},
        "run": {"root": "runs", "name": None, "dir": str(out)},
        "track": {},
        # The initial policy is kept in the run's folder, since its source may have changed.
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
    """Return the first difference of two runs within some iterations, or None.

    Evaluations added at a run's end are ignored, since one of the runs may not have ended there.
    """
    for journal in JOURNALS:
        ours, theirs = (list(_rows(folder / journal, iterations)) for folder in (run, other))
        for one, two in zip(ours, theirs, strict=False):
            if json.dumps(one) != json.dumps(two):  # the bytes of the lines
                return Difference(journal, one["iteration"], describe_changes(one, two))
        if len(ours) != len(theirs):
            return Difference(journal, None, f"{len(ours)} lines, {len(theirs)} in the repetition")
    return None


def explain(run: Path, other: Path) -> list[str]:
    """List the differences in code, packages and processor between two runs."""
    old, new = (read_json(folder / "provenance.json") for folder in (run, other))
    if not old:
        return [f"{run / 'provenance.json'} is missing or damaged, so code and packages cannot be compared"]
    basics = [{key: of.get(key) for key in ("commit", "python", "cpu")} for of in (old, new)]
    packages = [of.get("packages", {}) for of in (old, new)]
    changes = {"": describe_changes(*basics), "packages: ": describe_changes(*packages) if packages[0] else ""}
    found = [f"{head}{changed}" for head, changed in changes.items() if changed]
    if (run / "code.diff").exists() or find_source(Path(__file__).resolve().parent)[1]:
        found.append("code: uncommitted edits, see code.diff")
    return found


def _command(arguments: Sequence[str]) -> bool:
    runs, options = parse("rerun", arguments, READERS)
    require(len(runs) == 1, f"rerun takes one RUN, got {len(runs)}; usage: python -m paddock.rerun RUN")
    run = runs[0]
    read_config(run)
    last = max((row["iteration"] for row in _rows(run / "metrics.jsonl", sys.maxsize)), default=0)
    require(last > 0, f"{run} has no iterations yet; wait for one")
    iterations = options.get("iterations", last)
    require(1 <= iterations <= last, f"iterations={iterations} must be between 1 and {last}, the last of {run}")
    name = f"{run.resolve().name}-rerun"
    sibling = run.with_name(name) if run.name not in ("", "..") else Path(display_path(run.resolve().with_name(name)))
    out = options.get("out", sibling)
    require(out.resolve() != run.resolve(), f"out={out} is the run itself; choose another folder")
    found = rerun(run, out, iterations, options.get("compute"))
    if found is None:
        print(f"identical: {iterations} iterations of {run} and {out} have the same metrics")
        return True
    where = "" if found.iteration is None else f" from iteration {found.iteration} on"
    print(f"different{where}, in {found.journal}: {found.what}")
    for line in explain(run, out):
        print(f"  {line}")
    return False


def _rows(path: Path, iterations: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a journal up to an iteration, without those added at a run's end."""
    last = 0
    for row in read_rows(path, strict=True):
        if row["iteration"] > iterations or (row["iteration"] == last and path.name == "metrics.jsonl"):
            return
        last = row["iteration"]
        yield row


if __name__ == "__main__":
    sys.exit(main())
