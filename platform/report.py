"""HTML report on runs, multiruns and sweeps: scores, learning curves, speed, videos and commands.

python -m paddock.report DIR... out=FILE.html
"""

import datetime
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from paddock.envs.errors import PaddockError, require

from .config.command import Readers, check_output, parse, run_command, write_output
from .reports.data import ReportData, choose_metric, gather, group
from .reports.page import Section, Text, render
from .reports.sections.groups import compare
from .reports.sections.runs import list_commands, list_runs, show_histories, show_speed, show_videos
from .reports.sections.sweep import describe

READERS: Readers = {
    "out": (Path, "a file *.html"),
    "score": (str, "the name of a metric"),
}
MAX_NAMES = 12  # of runs in a note


def main() -> int:
    """Run the command `paddock.report`."""
    return run_command("report", _command)


def report(folders: Sequence[Path], score: str | None = None, base: Path | None = None) -> bytes:
    """Return the report on some folders, which are only read.

    Args:
        folders: runs, multiruns, sweeps, or folders that contain them.
        score: the compared metric; None for the return.
        base: the folder in which the page will lie, to which its links are relative; None for the working directory.

    Returns:
        HTML in UTF-8.

    Raises:
        PaddockError: a folder holds neither runs nor sweeps, or no run has the metric.
    """
    data = gather(folders)
    compared = [entry for entry in data.entries if not entry.in_sweep]
    metric = choose_metric([entry.run for entry in data.entries], score)
    groups = group(compared, metric)
    title = ", ".join(_name(folder, data.root) for folder in folders)
    sections = [
        *compare(groups),
        *(_sweep(folder, _name(folder, data.root), k) for k, folder in enumerate(data.sweeps)),
        show_speed(groups),
        *show_histories(compared),
        show_videos(data.entries),
        list_runs(data.entries, metric, base or Path.cwd()),
        list_commands(data.entries),
    ]
    return render(title, _describe(data), sections)


def _name(folder: Path, root: Path) -> str:
    relative = os.path.relpath(folder, root)
    return root.name if relative == os.curdir else relative


def _describe(data: ReportData) -> list[str]:
    counts = Counter(entry.state for entry in data.entries)
    listed = ", ".join(f"{count} {state}" for state, count in counts.items())
    now = datetime.datetime.now().astimezone()
    sentences = [f"{listed or 'no run yet'}; written {now:%Y-%m-%d %H:%M %Z}"]
    for wrong, names in data.notes.items():
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        sentences.append(f"{wrong}: {', '.join(names[:MAX_NAMES])}{more}")
    return sentences


def _sweep(folder: Path, name: str, k: int) -> Section:
    try:
        return describe(folder, name, k)
    except PaddockError as error:
        return Section(f"Sweep: {name}", "", [Text(str(error))])


def _command(arguments: Sequence[str]) -> None:
    given, options = parse("report", arguments, READERS)
    require(bool(given), "no DIR given; usage: python -m paddock.report DIR... out=FILE.html")
    folders = list({folder.resolve(): folder for folder in given}.values())
    out = options.get("out", (folders[0] if len(folders) == 1 else Path()) / "report.html")
    # Reading reports a missing folder.
    if "out" in options or os.path.isdir(out.parent):
        check_output("out", out, (".html",))
    write_output("out", out, report(folders, options.get("score"), out.parent))
    print(out)


if __name__ == "__main__":
    sys.exit(main())
