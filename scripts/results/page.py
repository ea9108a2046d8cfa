"""Write docs/scores.md and its pictures from notebooks/results, matrix.yaml and the published scores.

    python scripts/results/page.py [check=true]

check=true writes nothing, and fails if the page is not what would be written.
"""

import hashlib
import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

from paddock.config.command import parse, print_error, read_flag, write_output  # noqa: E402
from paddock.envs.errors import PaddockError, require  # noqa: E402
from paddock.reports.comparison import REFERENCES, TaskResult, read_references, read_results  # noqa: E402
from paddock.reports.curves import draw_group, label_x  # noqa: E402
from paddock.reports.drawing import COLORS, encode_picture, new_figure, open_axes  # noqa: E402
from paddock.reports.statistics import interquartile_mean, interval  # noqa: E402
from scripts.results.run import Row, read_matrix  # noqa: E402

PAGE = ROOT / "docs" / "scores.md"
TITLES = {
    "classic": "Classic control and Box2D",
    "minigrid": "MiniGrid",
    "minatar": "MinAtar",
    "memory": "Memory",
    "robots": "MuJoCo robots",
}
HEAD = """# Scores

Scores of the recipes, over ten seeds where available, next to published scores.

```bash
python scripts/results/run.py rows=sac_pendulum   # train and evaluate the seeds of a row, then store their scores
python scripts/results/page.py                    # write this page from the stored scores
```

A seed's score is the mean return of its final policy over 100 episodes with seeds that training does not use. Actions
are deterministic, except on MiniGrid, where they are sampled, as in the published evaluations. IQM is the interquartile
mean of the seeds' scores, with its 95 % bootstrap interval (2,000 resamples). A published score counts as *reached* if
it is at most the upper end of this interval, and as *missed* otherwise. Rows have the published number of steps and the
seeds from 1 on. All seeds are shown, and a missed row is not repeated with other seeds. The recipes of `ppo_swimmer`
(discount), `ppo_positions` (normalization), `ppo_lunarlander_continuous` (value coefficient) and `ppo_unlock`
(normalization and value coefficient) were corrected once, and all their seeds were run again. In the figures, the bold
line is the IQM of the deterministic evaluations during training, and the band is its 95 % interval; thin lines are
seeds. Dashed lines are published scores, drawn up to their number of steps.
"""
PANEL_IN = (2.7, 2.2)
COLUMNS = 4  # of panels


@dataclass(frozen=True, eq=False)
class Played:
    """Row with stored results."""

    row: Row
    result: TaskResult
    stored: dict[str, Any]  # commands, returns and provenance of its runs

    @property
    def scores(self) -> NDArray[np.float64]:
        """Return the score of each seed."""
        return np.array([np.mean(run["returns"]) for run in self.stored["runs"]])

    @property
    def steps(self) -> int:
        """Return the planned number of environment steps."""
        return int(self.stored["steps"])

    def references(self) -> Iterable[tuple[str, float]]:
        """Yield the name of each table with a published score of this task, and the score."""
        for name in self.row.published:
            yield name, read_references(name)[self.result.task].mean


def main(arguments: Sequence[str]) -> int:
    """Write the page, or check it; return 1 if it is stale, and 2 for bad input."""
    try:
        others, options = parse("page.py", arguments, {"check": (read_flag, "true or false")})
        require(not others, f"{' '.join(map(str, others))}: write key=value")
        rows = read_matrix().values()
        played = [read_row(row) for row in rows if row.file.exists()]
        text = render(played, [row for row in rows if not row.file.exists()])
        pictures = {picture(family): [entry for entry in played if entry.row.family == family] for family in TITLES}
        pictures = {file: shown for file, shown in pictures.items() if shown}
        if options.get("check"):
            fresh = PAGE.exists() and PAGE.read_text() == text and all(file.exists() for file in pictures)
            print(f"{PAGE.name} is {'up to date' if fresh else 'stale; run python scripts/results/page.py'}")
            return 0 if fresh else 1
        for file, shown in pictures.items():
            write_output("picture", file, draw(shown))
        write_output("page", PAGE, text.encode())
        return 0
    except PaddockError as error:
        return print_error(error, 2)


def read_row(row: Row) -> Played:
    """Read the stored results of a row."""
    [result] = read_results(row.file)
    return Played(row, result, json.loads(row.file.read_text())["row"])


def picture(family: str) -> Path:
    """Return the file of a family's curves."""
    return PAGE.parent / "images" / f"scores_{family}.png"


def render(played: Sequence[Played], missing: Sequence[Row]) -> str:
    """Return the page."""
    blocks = [HEAD]
    for family, title in TITLES.items():
        shown = [entry for entry in played if entry.row.family == family]
        blocks.append(f"## {title}\n")
        if shown:
            alt = f"Evaluation return over environment steps: {title}"
            blocks += [f"![{alt}](images/{picture(family).name})\n", tabulate(shown)]
        absent = [f"`{row.name}`" for row in missing if row.family == family]
        blocks += [textwrap.fill(f"Not run yet: {', '.join(absent)}.", 120) + "\n"] * bool(absent)
    blocks += [
        "## Commands\n",
        "One seed of each row, with the median wall time on a shared core, which other processes lengthen:\n",
    ]
    lines = [f"{entry.stored['command']} seed=1  # {minutes(entry)}" for entry in played]
    blocks += ["```text", *lines, *(f"python -m platform {row.run} seed=1" for row in missing), "```\n"]
    blocks += ["## Sources\n", *sources(played), "", *provenance(played)]
    digest = hashlib.sha256(b"".join(entry.row.file.read_bytes() for entry in played)).hexdigest()[:16]
    return "\n".join([*blocks, "", f"<!-- results: {digest} -->", ""])


def tabulate(played: Sequence[Played]) -> str:
    """Return the table of a family."""
    lines = ["| | steps | seeds | IQM [95 %] | worst, best seed | published |", "|---|---|---|---|---|---|"]
    for entry in played:
        scores, (low, high) = entry.scores, interval(entry.scores[:, None])
        center = number(float(interquartile_mean(scores[:, None])))
        center += f" [{number(float(low))}, {number(float(high))}]" if len(scores) > 1 else ""
        cells = [
            f"`{entry.row.name}`, {entry.result.task}",
            f"{entry.steps:,}",
            str(len(scores)),
            center,
            f"{number(scores.min())}, {number(scores.max())}",
            "; ".join(published(entry, name, mean, float(high)) for name, mean in entry.references()) or "none",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def published(entry: Played, name: str, mean: float, high: float) -> str:
    """Return a published score, whether it is reached, and our best evaluations if it is a best evaluation."""
    verdict = "" if np.isnan(high) else ", reached" if mean <= high else ", missed"
    best = ""
    if "best evaluation" in read_references(name)[entry.result.task].source:
        values = np.array([max(seed.values) for seed in entry.result.seeds])
        best = f" (best evaluation during training; ours {number(float(interquartile_mean(values[:, None])))})"
    return f"{number(mean)} [{name}](#sources){best}{verdict}"


def number(value: float) -> str:
    """Format a score with about four digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.4f}"


def minutes(entry: Played) -> str:
    """Return the median computing time of a seed."""
    return f"{np.median([run['minutes'] for run in entry.stored['runs']]):.1f} min"


def sources(played: Sequence[Played]) -> list[str]:
    """Return a list item for each table of published scores."""
    tables = yaml.safe_load(REFERENCES.read_text())
    names = dict.fromkeys(name for entry in played for name in entry.row.published)
    return [f"- `{name}`: [{tables[name]['source']}]({tables[name]['url']})" for name in names]


def provenance(played: Sequence[Played]) -> list[str]:
    """Return a line for each combination of commit, processor and versions."""
    rows: dict[str, list[str]] = {}
    for entry in played:
        commits = sorted({str(run["commit"])[:8] for run in entry.stored["runs"]})
        machines = sorted({str(run["cpu"]) for run in entry.stored["runs"]})
        packages = ", ".join(f"{name} {version}" for name, version in entry.stored["packages"].items())
        rows.setdefault(f"commit {', '.join(commits)}, {', '.join(machines)}, {packages}", []).append(entry.row.name)
    if len(rows) == 1:
        return [f"All rows: {next(iter(rows))}."]
    return [f"- {', '.join(f'`{name}`' for name in names)}: {where}" for where, names in rows.items()]


def draw(played: Sequence[Played]) -> bytes:
    """Draw the curves of a family, a panel per task, and return a PNG file."""
    tasks = list(dict.fromkeys(entry.result.task for entry in played))
    columns = min(COLUMNS, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = new_figure(PANEL_IN[0] * max(columns, 2), PANEL_IN[1] * rows + 0.3)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, task in zip(panels, tasks, strict=False):
        for k, entry in enumerate(entry for entry in played if entry.result.task == task):
            lines = [(np.array(seed.steps, float), np.array(seed.values)) for seed in entry.result.seeds]
            draw_group(ax, lines, COLORS[k], entry.row.name)
            for name, mean in entry.references():
                steps = read_references(name)[task].steps
                ax.plot([0, steps], [mean, mean], color=COLORS[k], linestyle="--", linewidth=1)
        open_axes(ax)
        ax.set_title(task, fontsize=8)
        ax.tick_params(labelsize=7)
        ax.legend(fontsize=6, frameon=False)
        label_x(ax, "step")
        ax.xaxis.label.set_fontsize(7)
    for ax in panels[len(tasks) :]:
        ax.set_visible(False)
    return encode_picture(figure, ".png")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
