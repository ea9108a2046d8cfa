"""Plot learning curves of runs, with one colour per group of seeds, and histories of single runs.

python -m paddock.plot DIR... out=FILE.png
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.envs.errors import ConfigError, PaddockError, nearest, require

from .config.command import Readers, check_output, parse, read_names, run_command, write_output
from .reports.curves import EVALUATION, EXPLAINED, TRAINING, X_AXES, draw_group, label_x, read_line
from .reports.data import (
    ReportedRun,
    find_repeats,
    group_by_seed,
    label_groups,
    read_settings,
    sort_groups,
)
from .reports.drawing import COLORS, GREY, encode_picture, new_figure, open_axes
from .reports.histories import HISTORIES, read_pictures
from .runs.results import read_columns
from .runs.state import find_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

log = logging.getLogger(__name__)


HELP = """\
Plot learning curves of runs, and histories of POET niches and PBT members; runs may still be running.

    python -m paddock.plot DIR... [key=value ...]

    DIR...                    runs, multiruns, sweeps, or folders that contain them; runs that differ only in the seed
                              form a group with one colour: a thin line per run, and a bold line for the interquartile
                              mean with its 95 % interval; at most the best ten groups are shown
    show=picture,picture      default: curves; for one POET or PBT run, or with matches, all pictures available unless
                              out=, x= or y= is given:
                              curves:    metrics over time, for any number of runs; the others need a single run
                              lineage:   POET: tree of niches, difficulty and transfers; PBT: exploits and ancestry
                              grounds:   POET: terrain of the niches
                              annecs:    POET: novel environments created and solved
                              elo:       ratings in matches.json (paddock.evaluate RUN matrix=RUN/matches.json)
                              points:    points of each player against each other, from the same file
                              schedule:  PBT: hyperparameters of all members, and the schedule of the final leader
    out=FILE.png              output file (.png, .pdf or .svg) of a single picture; default: DIR/curves.png etc. for one
                              DIR, curves.png for several
    x=step                    x axis of curves: step (environment steps), iteration, or minutes (over all sessions)
    y=group/name,group/name   metrics of curves, as in metrics.jsonl and system.jsonl; metrics of the same name, or
                              numbered ones such as score/0,score/3, share a panel; default: eval/return_mean, and
                              train/return_mean if readable
"""


READERS: Readers = {
    "show": (read_names, "comma-separated names of pictures"),
    "out": (Path, "a file *.png, *.pdf or *.svg"),
    "x": (str, "step, iteration or minutes"),
    "y": (read_names, "comma-separated names of metrics"),
}
FORMATS = (".png", ".pdf", ".svg")
CURVES = "curves"  # available for any run
LABELS = {EVALUATION: "evaluation", TRAINING: "training", "return_mean": "mean return of an episode"}
MAX_GROUPS = 10  # in a picture
MAX_INSIDE = 4  # legend entries inside the axes


KNOWN = [CURVES, *dict.fromkeys(name for history in HISTORIES for name in history.pictures)]


def main() -> int:
    """Run the command `paddock.plot`."""
    return run_command(HELP, _command)


def draw(runs: Sequence[ReportedRun], x: str = "step", y: Sequence[str] | None = None) -> Figure:
    """Plot metrics of runs into a new figure.

    Args:
        runs: the runs.
        x: step, iteration or minutes.
        y: names of metrics; None for the return.

    Raises:
        ConfigError: a metric is unknown, or nothing has been logged yet.
    """
    require(x in X_AXES, f"x={x} is not an axis; allowed: {', '.join(X_AXES)}")
    begun = [run for run in runs if run.columns]
    require(bool(begun), f"no run has metrics yet ({', '.join(str(run.path) for run in runs)}); wait for an iteration")
    repeats = find_repeats(begun)
    for repeat, other in repeats.items():
        log.warning("%s is skipped: it repeats the settings and seed of %s", repeat.path, other.path)
    every = group_by_seed([run for run in begun if run not in repeats])
    metrics = _default_metrics(every) if y is None else list(dict.fromkeys(y))
    best = sort_groups(every, metrics[0])[:MAX_GROUPS]
    groups = list(zip(label_groups(best), best, strict=True))
    known = {name for run in begun for name in run.columns}
    panels: dict[str, list[str]] = {}
    for metric in metrics:
        require(metric in known, f"y={metric} is not a metric of these runs; {nearest(metric, known)}")
        group, _, name = metric.rpartition("/")
        panels.setdefault(group if name.isdecimal() else name, []).append(metric)

    below = -(-len(groups) // 2) if len(groups) > MAX_INSIDE and len(panels) == 1 else 0  # legend rows
    figure = new_figure(8, 1.5 + 3 * len(panels) + 0.2 * below)
    missing = {run.path: None for run in runs if run not in begun}
    axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for ax, (name, shown) in zip(axes, panels.items(), strict=True):
        named, left_out = _draw_panel(ax, groups, x, shown)
        require(bool(ax.lines), f"no value of {' and '.join(shown)} has been logged yet; wait, or choose another y=")
        missing |= {run.path: None for run in left_out}
        ax.set_ylabel(LABELS.get(name, shown[0] if len(shown) == 1 else name), parse_math=False)
        if not below and len(groups) * len(shown) > 1:
            _name_lines(ax, named)
    if below:
        _name_lines(figure, named, loc="outside lower center", ncols=2)
    cut = f": the best {MAX_GROUPS} of {len(every)} groups" if len(every) > MAX_GROUPS else ""
    several = any(len(group) > 1 for group in best)
    axes[0].set_title(_title(best) + cut, pad=20 if several else None)
    if several:
        place: dict[str, Any] = {"ha": "center", "va": "bottom", "transform": axes[0].transAxes, "color": GREY}
        axes[0].text(0.5, 1.02, EXPLAINED, fontsize="x-small", **place)
    label_x(axes[-1], x)
    for path in missing:
        log.warning("%s lacks some of these metrics and is missing from the picture", path)
    return figure


def _draw_panel(
    ax: Axes, groups: Sequence[tuple[str, list[ReportedRun]]], x: str, metrics: Sequence[str]
) -> tuple[list[Line2D], list[ReportedRun]]:
    """Plot each metric of each group; return the legend entries, and the runs without values."""
    named: list[Line2D] = []
    missing: list[ReportedRun] = []
    series = [(label, group, metric) for label, group in groups for metric in metrics]
    for k, (label, group, metric) in enumerate(series):
        every = [(run, read_line(run.columns, x, metric)) for run in group]
        lines = [line for _, line in every if len(line[0])]
        missing += [run for run, line in every if not len(line[0])]
        if not lines:
            continue
        words = [label] * (len(groups) > 1) + [LABELS.get(metric, metric)] * (len(metrics) > 1 or len(groups) == 1)
        seeds = f" ({len(lines)} seeds)" if len(lines) > 1 else ""
        color = GREY if metric == TRAINING and EVALUATION in metrics else COLORS[k % len(COLORS)]
        # The first line lies on top.
        named.append(draw_group(ax, lines, color, ", ".join(words) + seeds, zorder=3 - k / len(series)))
    open_axes(ax)
    return named, missing


def _name_lines(place: Axes | Figure, lines: Sequence[Line2D], **how: Any) -> None:
    """Add a legend without parsing `$` and `_` in names."""
    names = [str(line.get_label()) for line in lines]
    for text in place.legend(lines, names, frameon=False, fontsize="small", **how).get_texts():
        text.set_parse_math(False)


def _default_metrics(groups: Sequence[list[ReportedRun]]) -> list[str]:
    known = [{name for run in group for name in run.columns} for group in groups]
    if not all(EVALUATION in names for names in known):
        return [TRAINING]
    return [EVALUATION, TRAINING] if len(groups) == 1 and TRAINING in known[0] else [EVALUATION]


def _read(folders: Iterable[Path]) -> list[ReportedRun]:
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
    return list(read.values())


def _title(groups: Sequence[list[ReportedRun]]) -> str:
    runs = [run for group in groups for run in group]
    names = [{str(run.settings.get("algo.name", "")) for run in runs}, {run.env for run in runs}]
    subject = " on ".join(name for choice in names if len(choice) == 1 for name in choice if name) or "learning curves"
    if len(groups) > 1:
        return subject
    seeds = [str(run.config.get("seed")) for run in runs]
    listed = ", ".join(seeds) if len(seeds) <= 8 else str(len(seeds))
    return f"{subject}, seed{'s' if len(seeds) > 1 else ''} {listed}"


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
    require(bool(read), f"no run in {', '.join(map(str, folders))} can be read; see paddock.status")
    pictures: dict[str, Callable[[str], Figure]] = {CURVES: lambda title: draw(read, **options)}
    pictures |= read_pictures(read[0])[1] if len(read) == 1 else {}
    for name in asked:
        here = f"{name} is not a picture of {', '.join(map(str, folders))}; allowed: {', '.join(pictures)}"
        require(name in pictures, f"{listed}: {here}; other pictures need a single POET or PBT run, or matches.json")
    figures: dict[Path, Figure] = {}
    for name in pictures if shown is None and out is None and not options else asked:
        file = out or (folders[0] if len(folders) == 1 else Path()) / f"{name}.png"
        check_output("out", file, FORMATS)
        try:
            figures[file] = pictures[name](_title([read]))
        except ConfigError as error:  # a picture not requested by name has no data yet
            if name in asked:
                raise
            log.warning("%s is skipped: %s", file, error)
    for file, figure in figures.items():
        write_output("out", file, encode_picture(figure, file.suffix))
        print(file)


if __name__ == "__main__":
    sys.exit(main())
