"""Draw the learning curves of runs, one colour for those that differ in nothing but the seed; of POET, its history too.

python -m paddock.plot RUN... out=FILE.png
"""

import io
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import NDArray

from envs.errors import ConfigError, nearest, require

from .command import Readers, check_output, parse, run_command, write_output
from .folder import computation, read_config, short_name
from .lineage import read_history
from .plot_poet import PICTURES
from .results import Columns, read_columns

log = logging.getLogger(__name__)


GUIDE = """\
Draw the learning curves of runs, and the history of the niches of POET; runs may still be going on.

    python -m paddock.plot RUN... [key=value ...]

    RUN...                    run folders; those that differ in nothing but the seed get one colour: each a thin
                              line, and a bold one for their mean as far as all of them have come
    show=picture,picture      else curves; and for one run of POET all of these, unless out=, x= or y= is given:
                              curves:    metrics over time, of any number of runs; the others are of one run of POET
                              lineage:   the tree of niches, how difficult they are, and which agents moved where
                              grounds:   what the niches look like, for families that have a ground
                              transfers: how often agents were taken over, from niche to niche
                              annecs:    novel environments that were created and solved
    out=FILE.png              the picture, also .pdf or .svg, if it is one; else RUN/lineage.png and so on for one run,
                              curves.png for several
    x=step                    of curves: step: environment steps; iteration; minutes: of computing, over all sittings
    y=group/name,group/name   of curves: metrics, as metrics.jsonl and system.jsonl name them; those of one name, or of
                              numbered ones such as score/0,score/3, share a panel; else eval/return_mean, with
                              train/return_mean where that leaves it readable
"""


def _split(text: str) -> list[str]:
    return list(dict.fromkeys(text.strip("[]").replace(" ", "").split(",")))


READERS: Readers = {
    "show": (_split, "names of pictures, with commas between"),
    "out": (Path, "a file *.png, *.pdf or *.svg"),
    "x": (str, "step, iteration or minutes"),
    "y": (_split, "names of metrics, with commas between"),
}
FORMATS = (".png", ".pdf", ".svg")
X_AXES = {  # name -> metric, its unit, label
    "step": ("step", 1, "environment steps"),
    "iteration": ("iteration", 1, "iteration"),
    "minutes": ("system/seconds", 60, "computing time (minutes)"),
}
CURVES = "curves"  # the picture that any run has
EVALUATION, TRAINING = "eval/return_mean", "train/return_mean"
SPOKEN = {EVALUATION: "evaluation", TRAINING: "training", "return_mean": "mean return of an episode"}
FEW_POINTS = 30  # up to so many are marked

Line = tuple[NDArray[np.float64], NDArray[np.float64]]  # x [n] rising, y [n], both finite


@dataclass(frozen=True, eq=False)
class Run:
    """One run's configuration and numbers."""

    path: Path
    config: dict[str, Any]
    columns: Columns

    @property
    def settings(self) -> dict[str, Any]:
        """What it computes, the seed excepted."""
        return {key: value for key, value in computation(self.config).items() if key != "seed"}


def main() -> int:
    """The command `paddock.plot`; see `run_command` for the exit codes."""
    return run_command(GUIDE, _command)


def plot(runs: Sequence[Path], out: Path, *, x: str = "step", y: Sequence[str] | None = None) -> None:
    """Draw metrics of runs into a file.

    Args:
        runs: their folders, which are only read.
        out: a PNG, PDF or SVG; written whole or not at all.
        x: step, iteration or minutes.
        y: names of metrics; None for the return.

    Raises:
        PaddockError: a run or a metric is unknown, nothing has been logged yet, or the file cannot be written.
    """
    read = _read(runs)
    check_output("out", out, FORMATS)
    _write(draw(read, x, y), out)


def draw(runs: Sequence[Run], x: str = "step", y: Sequence[str] | None = None) -> Figure:
    """The picture of `plot`, as a figure that belongs to no window."""
    require(x in X_AXES, f"x={x} is not an axis; allowed: {', '.join(X_AXES)}")
    begun = [run for run in runs if run.columns]
    require(bool(begun), f"no run has metrics yet ({', '.join(str(run.path) for run in runs)}); wait for an iteration")
    groups = group_by_seed(begun)
    known = {name for run in begun for name in run.columns}
    panels: dict[str, list[str]] = {}
    for metric in _default_metrics(groups) if y is None else dict.fromkeys(y):
        require(metric in known, f"y={metric} is not a metric of these runs; {nearest(metric, known)}")
        group, _, name = metric.rpartition("/")
        panels.setdefault(group if name.isdigit() else name, []).append(metric)

    figure = Figure(figsize=(8, 1.5 + 3 * len(panels)), layout="constrained")
    missing = {run.path: None for run in runs if run not in begun}
    axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for ax, (name, shown) in zip(axes, panels.items(), strict=True):
        left_out = _draw_panel(ax, groups, x, shown)
        require(bool(ax.lines), f"no number of {' and '.join(shown)} has been logged yet; wait, or choose another y=")
        missing |= {run.path: None for run in left_out}
        ax.set_ylabel(SPOKEN.get(name, shown[0] if len(shown) == 1 else name))
    axes[0].set_title(_title(groups))
    axes[-1].set_xlabel(X_AXES[x][2])
    if x == "step":
        axes[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
    elif x == "iteration":
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    for path in missing:
        log.warning("%s is not in all of the picture: it has no such numbers yet", path)
    return figure


def group_by_seed(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that compute the same but for the seed, in groups labelled by what tells them apart."""
    groups: list[list[Run]] = []
    for run in runs:
        same = next((group for group in groups if group[0].settings == run.settings), None)
        if same is None:
            groups.append([run])
        else:
            same.append(run)
    return dict(zip(_labels([group[0] for group in groups]), groups, strict=True))


def mean_line(lines: Sequence[Line]) -> Line:
    """The mean of lines over the range that all of them cover; empty where there is none."""
    low, high = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    points = np.unique(np.concatenate([x for x, _ in lines]))
    points = points[(points >= low) & (points <= high)]
    return points, np.mean([np.interp(points, x, y) for x, y in lines], axis=0)


def _draw_panel(ax: Axes, groups: Mapping[str, list[Run]], x: str, metrics: Sequence[str]) -> list[Run]:
    """Draw one line for each run and metric, and their means; returns the runs that lack numbers."""
    missing: list[Run] = []
    series = [(label, group, metric) for label, group in groups.items() for metric in metrics]
    for k, (label, group, metric) in enumerate(series):
        every = [(run, _line(run, x, metric)) for run in group]
        lines = [line for _, line in every if len(line[0])]
        missing += [run for run, line in every if not len(line[0])]
        if not lines:
            continue
        parts = [label] * (len(groups) > 1) + [SPOKEN.get(metric, metric)] * (len(metrics) > 1 or len(groups) == 1)
        # What comes first lies on top.
        style: dict[str, Any] = {"color": f"C{k % 10}", "zorder": 3 - k / len(series)}
        xs, ys = lines[0]
        if len(lines) > 1:
            parts[-1] += f" (mean of {len(lines)} seeds)"
            for line in lines:
                ax.plot(*line, linewidth=0.8, alpha=0.45, marker=_marker(line[0]), markersize=2, **style)
            xs, ys = mean_line(lines)
        # The points of a mean line are those of all its seeds: no measurements of its own, so no marks.
        marker = _marker(xs) if len(lines) == 1 or len(xs) == 1 else None
        ax.plot(xs, ys, linewidth=2, marker=marker, markersize=4, **style)
        ax.lines[-1].set_label(", ".join(parts))
    ax.grid(color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.margins(x=0.02)
    if len(series) > 1 or len(ax.lines) > 1:
        ax.legend(frameon=False, fontsize="small")
    return missing


def _line(run: Run, x: str, metric: str) -> Line:
    name, unit, _ = X_AXES[x]
    nothing = np.full(len(run.columns["step"]), np.nan)
    xs, ys = run.columns.get(name, nothing) / unit, run.columns.get(metric, nothing)
    finite = np.isfinite(xs) & np.isfinite(ys)
    return xs[finite], ys[finite]


def _marker(xs: NDArray[np.float64]) -> str | None:
    return "o" if len(xs) <= FEW_POINTS else None


def _default_metrics(groups: Mapping[str, list[Run]]) -> list[str]:
    known = [{name for run in group for name in run.columns} for group in groups.values()]
    if not all(EVALUATION in names for names in known):
        return [TRAINING]
    return [EVALUATION, TRAINING] if len(groups) == 1 and TRAINING in known[0] else [EVALUATION]


def _labels(runs: Sequence[Run]) -> list[str]:
    """What tells runs apart: algorithm and environment, or up to three keys, or else the names of their folders."""
    keys = {key for run in runs for key in run.settings}
    differing = sorted(key for key in keys if len({repr(run.settings.get(key)) for run in runs}) > 1)
    subject = [key for key in ("algo.name", "env.id") if key in differing]
    for chosen in (subject, differing):
        if 0 < len(chosen) <= 3:
            labels = [", ".join(_setting(key, run.settings.get(key)) for key in chosen) for run in runs]
            if len(set(labels)) == len(runs):
                return labels
    return [str(run.path) for run in runs]


def _read(runs: Iterable[Path]) -> list[Run]:
    return [Run(run, read_config(run), read_columns(run)) for run in runs]


def _setting(key: str, value: Any) -> str:
    if key == "env.id":
        return short_name(str(value))
    if key == "env._target_":
        return str(value).rpartition(".")[2]
    return str(value) if key == "algo.name" else f"{key.rpartition('.')[2]}={value}"


def _env_key(runs: Sequence[Run]) -> str:
    """Where an environment has its name: families, which have no id, are called by their class."""
    return "env.id" if all("env.id" in run.settings for run in runs) else "env._target_"


def _title(groups: Mapping[str, list[Run]]) -> str:
    runs = [run for group in groups.values() for run in group]
    names = [{_setting(key, run.settings.get(key, "")) for run in runs} for key in ("algo.name", _env_key(runs))]
    subject = " on ".join(name for choice in names if len(choice) == 1 for name in choice if name) or "learning curves"
    if len(groups) > 1:
        return subject
    seeds = [str(run.config.get("seed")) for run in runs]
    listed = ", ".join(seeds) if len(seeds) <= 8 else str(len(seeds))
    return f"{subject}, seed{'s' if len(seeds) > 1 else ''} {listed}"


def _command(arguments: Sequence[str]) -> None:
    given, options = parse("plot", arguments, READERS)
    require(bool(given), "plot needs a RUN; write python -m paddock.plot RUN... out=FILE.png")
    runs = list({run.resolve(): run for run in given}.values())
    shown, out = options.pop("show", None), options.pop("out", None)
    _check_choice(runs, shown, out, options)
    # Where nothing says what to draw, it is all there is; what there is not yet is then no mistake.
    open_choice = shown is None and out is None and not options and len(runs) == 1
    asked = shown or [CURVES]
    read = _read(runs)
    history = read_history(runs[0], read[0].config, read[0].columns) if open_choice or asked != [CURVES] else None
    require(
        history is not None or asked == [CURVES],
        f"show={','.join(asked)}: {runs[0] / 'events.jsonl'} tells of no niche; wait for the first iteration of "
        f"algo=poet, or choose show={CURVES}, which any run has",
    )
    names = [CURVES, *PICTURES] if open_choice and history is not None else asked
    files = {name: out or (runs[0] if len(runs) == 1 else Path()) / f"{name}.png" for name in names}
    figures: dict[Path, Figure] = {}
    for name, file in files.items():
        check_output("out", file, FORMATS)
        try:
            if name == CURVES:
                figures[file] = draw(read, **options)
            elif history is not None:
                figures[file] = PICTURES[name](history, _title({"": read}))
        except ConfigError as error:
            if name in asked:
                raise
            log.warning("%s is left out: %s", file, error)
    for file, figure in figures.items():
        _write(figure, file)
        print(file)


def _check_choice(runs: Sequence[Path], shown: Sequence[str] | None, out: Path | None, curves: Iterable[str]) -> None:
    """Check which pictures were asked for (None: it was not said), and keys that are of the curves."""
    known = (CURVES, *PICTURES)
    for name in shown or ():
        require(name in known, f"show={name} is not a picture; {nearest(name, known)}")
    names = list(shown or [CURVES])
    listed = f"show={','.join(names)}"
    require(
        len(runs) == 1 or names == [CURVES],
        f"{listed}: {len(runs)} runs were given, and this is of one; give one RUN, or choose show={CURVES}",
    )
    require(out is None or len(names) == 1, f"out={out} is one file, and {listed} are {len(names)}; leave out= away")
    for key in curves:
        require(CURVES in names, f"{key}= is of curves, and {listed} has none; leave {key}= away, or add {CURVES}")


def _write(figure: Figure, out: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=out.suffix[1:], dpi=150)
    write_output("out", out, buffer.getvalue())


if __name__ == "__main__":
    sys.exit(main())
