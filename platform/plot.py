"""Plot learning curves of runs, with one colour per group of seeds, and histories of single runs.

python -m paddock.plot DIR... out=FILE.png
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.envs.errors import ConfigError, PaddockError, nearest, require

from .config.command import Readers, check_output, parse, read_names, run_command, write_output
from .reports.curves import tabulate
from .reports.data import ReportedRun, read_settings
from .reports.drawing import encode_picture
from .reports.histories import HISTORIES, read_pictures
from .reports.plots.learning_curves import collect, draw, name_runs
from .runs.results import read_columns
from .runs.state import find_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)


def read_size(text: str) -> tuple[float, float]:
    """Parse WIDTHxHEIGHT in inches."""
    width, height = map(float, text.split("x"))
    if not (2 <= width <= 40 and 2 <= height <= 40):
        raise ValueError(text)
    return width, height


READERS: Readers = {
    "show": (read_names, "comma-separated names of pictures"),
    "out": (Path, "a file *.png, *.pdf, *.svg or *.csv"),
    "x": (str, "step, iteration or minutes"),
    "y": (read_names, "comma-separated names of metrics"),
    "label": (read_names, "comma-separated names of groups"),
    "smooth": (int, "a number of points"),
    "title": (str, "text"),
    "size": (read_size, "WIDTHxHEIGHT in inches, such as 3.5x2.5, each from 2 to 40"),
}
FORMATS = (".png", ".pdf", ".svg")
CURVES = "curves"  # available for any run
KNOWN = [CURVES, *dict.fromkeys(name for history in HISTORIES for name in history.pictures)]


def main() -> int:
    """Run the command `paddock.plot`."""
    return run_command("plot", _command)


def plot(*folders: str | os.PathLike[str], **options: Any) -> Figure:
    """Plot learning curves into a new figure, as `python -m paddock.plot` does.

    Args:
        folders: runs, multiruns, sweeps, or folders that contain them.
        options: `x`, `y`, `label`, `smooth`, `title` and `size` as on the command line; `y` and `label` are lists of
            names, `size` is (width, height) in inches.

    Raises:
        PaddockError: a folder holds no run, a metric is unknown, or the number of labels is wrong.
    """
    return draw(_read([Path(folder) for folder in folders]), **options)


def _read(folders: Sequence[Path]) -> list[ReportedRun]:
    """Read runs; those that cannot be read are skipped with a warning, unless named directly."""
    read: dict[Path, ReportedRun] = {}
    for folder in folders:
        for path in find_runs(folder):
            try:
                read.setdefault(path.resolve(), ReportedRun(path, read_settings(path), read_columns(path)))
            except PaddockError as error:
                if path == folder:
                    raise
                log.warning("%s is skipped: %s", path, error)
    require(bool(read), f"no run in {', '.join(map(str, folders))} can be read; see paddock.status")
    return list(read.values())


def _command(arguments: Sequence[str]) -> None:
    given, options = parse("plot", arguments, READERS)
    require(bool(given), "no DIR given; usage: python -m paddock.plot DIR... out=FILE.png")
    folders = list({folder.resolve(): folder for folder in given}.values())
    shown, out = options.pop("show", None), options.pop("out", None)
    asked = shown or [CURVES]
    for name in asked:
        require(name in KNOWN, f"show={name} is not a picture; {nearest(name, KNOWN)}")
    listed = f"show={','.join(asked)}"
    require(
        out is None or len(asked) == 1,
        f"out= writes one file but {len(asked)} pictures were requested ({listed}); drop out=",
    )
    require(
        not options or CURVES in asked,
        f"{'= and '.join(options)}= applies only to show=curves; drop it or add curves to {listed}",
    )
    read = _read(folders)
    if out is not None and out.suffix == ".csv" and asked == [CURVES]:
        check_output("out", out, [".csv"])
        without = {key: value for key, value in options.items() if key not in ("title", "size")}
        write_output("out", out, tabulate(collect(read, **without)[0]).encode())
        return print(out)
    pictures: dict[str, Callable[[str], Figure]] = {CURVES: lambda title: draw(read, **options)}
    pictures |= read_pictures(read[0])[1] if len(read) == 1 else {}
    for name in asked:
        here = f"{name} is not a picture of {', '.join(map(str, folders))}; allowed: {', '.join(pictures)}"
        require(name in pictures, f"{listed}: {here}; other pictures need a single run that has them")
    figures: dict[Path, Figure] = {}
    for name in pictures if shown is None and out is None and not options else asked:
        file = out or (folders[0] if len(folders) == 1 else Path()) / f"{name}.png"
        check_output("out", file, FORMATS)
        try:
            figures[file] = pictures[name](name_runs([read]))
        except ConfigError as error:  # a picture not requested by name has no data yet
            if name in asked:
                raise
            log.warning("%s is skipped: %s", file, error)
    for file, figure in figures.items():
        write_output("out", file, encode_picture(figure, file.suffix))
        print(file)


if __name__ == "__main__":
    sys.exit(main())
