"""Upload finished runs to a tracker, for example if a run used track=none or the tracker failed.

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

CLOSE_TIMEOUT_S = 600  # default of close_timeout_s; long, because no training waits for the upload


class UploadFailed(PaddockError):
    """Uploading to a mirror failed; the run folder is unchanged."""


def main() -> int:
    """Run the command-line interface of `paddock.upload`."""
    return run_command("upload", _command)


def upload(run: Path, mirror: Mirror, report: Callable[[str], None]) -> int:
    """Upload all rows of a run to a mirror and return the number of rows.

    Raises:
        FolderError: a journal cannot be read.
        UploadFailed: the mirror raised an error.
    """
    count = 0
    try:
        mirror.open(0, report)
        for row in read_rows(run):
            mirror.log(row)
            count += 1
        mirror.close()
    except BaseException as error:
        mirror.abandon()
        if isinstance(error, OSError | RuntimeError):
            raise UploadFailed(f"{run}: {mirror.name} failed ({error}); check the tracker and retry") from error
        raise
    return count


def read_rows(run: Path) -> Iterator[dict[str, float]]:
    """Yield the rows of a run as they were logged, with NaN for null."""
    system = {row["iteration"]: row for row in journal.read_rows(run / "system.jsonl", strict=True)}
    for row in journal.read_rows(run / "metrics.jsonl", strict=True):
        merged = {**row, **system.pop(row["iteration"], {})}  # rows added at the end of a run may repeat an iteration
        yield {key: math.nan if value is None else value for key, value in merged.items()}


def _command(arguments: Sequence[str]) -> None:
    options = _read_options()
    keys = {key for sections in options.values() for section in sections.values() for key in section}
    value = (_read_value, "a value of a key in conf/track")
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
    options = {path.stem: yaml.safe_load(path.read_text()) for path in (CONF / "track").glob("*.yaml")}
    return {name: sections for name, sections in sorted(options.items()) if sections and "defaults" not in sections}


def _mirrors_of(run: Path, chosen: Mapping[str, Any] | None, values: Mapping[str, Any]) -> list[Mirror]:
    config = read_config(run)
    add_start_folder_to_path(run)
    check_usable(run, config)
    require(any(True for _ in read_rows(run)), f"{run} has no iterations yet; wait for the first one")
    tracked = config.get("track") or {}
    if chosen is None and not tracked:
        raise ConfigError(f"{run} has no tracker; choose track=wandb or tensorboard")
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
