"""Make a mirror of a run from its folder alone: after track=none, a server that was away, or for another tracker.

python -m paddock.upload RUN... track=wandb
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from paddock.envs.errors import ConfigError, PaddockError, nearest, require

from . import CONF
from .config.command import Readers, parse, run_command
from .config.experiment import build_mirrors
from .runs import journal
from .runs.folder import check_usable, read_config
from .runs.trust import add_start_folder_to_path
from .tracking.tracker import Mirror

HELP = """\
Make a mirror of runs from their folders alone: metrics.jsonl, system.jsonl, config.yaml, the newest checkpoint, films.

    python -m paddock.upload RUN... [key=value ...]

    RUN...                 the runs' folders; none of them may be running
    track=wandb            wandb, mlflow or tensorboard; else what the run was tracked with
    key=value              any key that conf/track explains, such as mode=offline, project=walkers or
                           tracking_uri=http://127.0.0.1:5000; else as the run had it, or as it is there

A run that W&B or MLflow knows from its folder is added to, where it lacks rows, and any other becomes a new one there.
"""
PATIENCE_S = 600  # close_timeout_s, unless it is given: here nothing waits but the user


class UploadFailed(PaddockError):
    """The mirror failed; the run's folder is as it was."""


def main() -> int:
    """The command `paddock.upload`; see `run_command` for the exit codes."""
    return run_command(HELP, _command)


def upload(run: Path, mirror: Mirror, say: Callable[[str], None]) -> int:
    """Give a mirror all rows of a run; returns how many.

    Raises:
        FolderError: a journal cannot be read.
        UploadFailed: the mirror failed.
    """
    count = 0
    try:
        mirror.open(0, say)
        for row in read_rows(run):
            mirror.log(row)
            count += 1
        mirror.close()
    except BaseException as error:
        mirror.abandon()
        if isinstance(error, OSError | RuntimeError):
            raise UploadFailed(f"{run}: {mirror.name} failed ({error})") from error
        raise
    return count


def read_rows(run: Path) -> Iterator[dict[str, float]]:
    """The rows as they were tracked; NaN where a journal has null.

    Raises:
        FolderError: a journal cannot be read.
    """
    system = {row["iteration"]: row for row in journal.read_rows(run / "system.jsonl", strict=True)}
    for row in journal.read_rows(run / "metrics.jsonl", strict=True):
        both = {**row, **system.pop(row["iteration"], {})}  # a run's end may repeat the last iteration
        yield {key: math.nan if value is None else value for key, value in both.items()}


def _command(arguments: Sequence[str]) -> None:
    options = _read_options()
    keys = {key for sections in options.values() for section in sections.values() for key in section}
    value = (_read_value, "a value as in conf/track")
    readers: Readers = {"track": (str, ", ".join(options)), **dict.fromkeys(sorted(keys - {"_target_"}), value)}
    runs, values = parse("upload", arguments, readers)
    require(bool(runs), "name a RUN to upload; write python -m paddock.upload RUN...; see --help")
    track = values.pop("track", None)
    require(track is None or track in options, f"track={track} is not an option; {nearest(str(track), options)}")
    jobs = [(run, mirror) for run in runs for mirror in _mirrors_of(run, options.get(track), values)]
    for run, mirror in jobs:
        count = upload(run, mirror, print)
        print(f"{mirror.name} was given {run}: {count} rows")


def _read_options() -> dict[str, dict[str, dict[str, Any]]]:
    """The mirrors of each option of conf/track that has any of its own: their sections by their names."""
    known = {path.stem: yaml.safe_load(path.read_text()) for path in (CONF / "track").glob("*.yaml")}
    return {name: sections for name, sections in sorted(known.items()) if sections and "defaults" not in sections}


def _mirrors_of(run: Path, chosen: Mapping[str, Any] | None, values: Mapping[str, Any]) -> list[Mirror]:
    """The mirrors to be made of a run: those that were chosen, or else its own."""
    config = read_config(run)
    add_start_folder_to_path(run)
    check_usable(run, config)
    require(any(True for _ in read_rows(run)), f"{run} has no iteration yet; wait for one")
    own = config.get("track") or {}
    if chosen is None and not own:
        raise ConfigError(f"{run} was tracked nowhere else; choose with track=wandb, mlflow or tensorboard")
    sections = {
        name: {**section, **own.get(name, {}), "close_timeout_s": PATIENCE_S, **values}
        for name, section in (own if chosen is None else chosen).items()
    }
    return build_mirrors({**config, "track": sections}, run)


def _read_value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(text) from error


if __name__ == "__main__":
    sys.exit(main())
