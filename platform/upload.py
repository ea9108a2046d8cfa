"""Upload finished runs to a tracker, for example after track=none or a server failure.

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
Upload runs to a tracker from their folders: metrics, configuration, newest checkpoint and videos.

    python -m paddock.upload RUN... [key=value ...]

    RUN...                 the runs' folders; they must not be running
    track=wandb            wandb, mlflow or tensorboard; default: the run's own tracker
    key=value              any key of conf/track, such as mode=offline, project=walkers or
                           tracking_uri=http://127.0.0.1:5000; default: as in the run

An upload continues the W&B or MLflow run recorded in the folder, or creates a new one.
"""
CLOSE_TIMEOUT_S = 600  # default close_timeout_s, since no run waits for it


class UploadFailed(PaddockError):
    """The mirror failed; the run's folder is unchanged."""


def main() -> int:
    """Run the command `paddock.upload`."""
    return run_command(HELP, _command)


def upload(run: Path, mirror: Mirror, say: Callable[[str], None]) -> int:
    """Send all rows of a run to a mirror; return their number.

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
    """Yield the rows as they were tracked, with NaN for null."""
    system = {row["iteration"]: row for row in journal.read_rows(run / "system.jsonl", strict=True)}
    for row in journal.read_rows(run / "metrics.jsonl", strict=True):
        both = {**row, **system.pop(row["iteration"], {})}  # rows added at a run's end repeat the iteration
        yield {key: math.nan if value is None else value for key, value in both.items()}


def _command(arguments: Sequence[str]) -> None:
    options = _read_options()
    keys = {key for sections in options.values() for section in sections.values() for key in section}
    value = (_read_value, "a value as in conf/track")
    readers: Readers = {"track": (str, ", ".join(options)), **dict.fromkeys(sorted(keys - {"_target_"}), value)}
    runs, values = parse("upload", arguments, readers)
    require(bool(runs), "no RUN given; usage: python -m paddock.upload RUN... (see --help)")
    track = values.pop("track", None)
    require(track is None or track in options, f"track={track} is not an option; {nearest(str(track), options)}")
    jobs = [(run, mirror) for run in runs for mirror in _mirrors_of(run, options.get(track), values)]
    for run, mirror in jobs:
        count = upload(run, mirror, print)
        print(f"uploaded {count} rows of {run} to {mirror.name}")


def _read_options() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the mirror sections of each option of conf/track, by name."""
    known = {path.stem: yaml.safe_load(path.read_text()) for path in (CONF / "track").glob("*.yaml")}
    return {name: sections for name, sections in sorted(known.items()) if sections and "defaults" not in sections}


def _mirrors_of(run: Path, chosen: Mapping[str, Any] | None, values: Mapping[str, Any]) -> list[Mirror]:
    """Build the chosen mirrors of a run, by default its own."""
    config = read_config(run)
    add_start_folder_to_path(run)
    check_usable(run, config)
    require(any(True for _ in read_rows(run)), f"{run} has no iterations yet; wait for one")
    tracked = config.get("track") or {}
    if chosen is None and not tracked:
        raise ConfigError(f"{run} has no tracker; choose track=wandb, mlflow or tensorboard")
    sections = {
        name: {**section, **tracked.get(name, {}), "close_timeout_s": CLOSE_TIMEOUT_S, **values}
        for name, section in (tracked if chosen is None else chosen).items()
    }
    return build_mirrors({**config, "track": sections}, run)


def _read_value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(text) from error


if __name__ == "__main__":
    sys.exit(main())
