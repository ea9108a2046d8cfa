"""Sections about single runs: speed, histories of POET and PBT, videos, states and commands."""

from __future__ import annotations

import base64
import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paddock.envs.errors import ConfigError, PaddockError

from ...runs.lazy_imports import matplotlib
from ...runs.provenance import format_command
from ...runs.state import WRONG
from ...runs.sweeps import label_runs
from ...runs.units import duration, short
from ..data import Entry, Group
from ..histories import read_pictures
from ..page import (
    Html,
    bar,
    code,
    escape,
    grid,
    heading,
    join,
    key,
    panel,
    paragraph,
    picture,
    section,
    table,
    wide,
)
from .groups import list_marks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMES = {  # metric -> label
    "system/env_s": "environments",
    "system/policy_s": "policy",
    "system/learn_s": "learning",
    "system/wait_s": "waiting for rollouts",
    "system/eval_wait_s": "waiting for evaluations",
}
TITLES = {
    "lineage": "Lineage",
    "grounds": "Grounds",
    "annecs": "ANNECS",
    "schedule": "Schedule of hyperparameters",
    "elo": "Elo ratings",
    "points": "Points against each player",
}
MOST_BARS = 4  # in a line of a table
MOST_HISTORIES = 3
MOST_RUNS = 1000  # in a table
VIDEOS = {".mp4": "video/mp4", ".webm": "video/webm", ".webp": "image/webp"}
MOST_VIDEOS = 12


def show_speed(groups: Sequence[Group]) -> Html:
    """Return a table of environment steps per second and of the time spent on each task."""
    fast = [group for group in groups if _speeds(group)]
    return section("Speed", "", list_marks(fast), _tabulate_times(fast)) if fast else Html("")


def _tabulate_times(groups: Sequence[Group]) -> Html:
    shares: dict[str, list[float | None]] = {
        **{label: [_share(group, name) for group in groups] for name, label in TIMES.items()},
        "idle workers": [_idle(group) for group in groups],
    }
    show = bar if len(groups) <= MOST_BARS else "{:.0%}".format
    rows = [
        [label, *("–" if share is None else show(share) for share in row)]
        for label, row in shares.items()
        if any(share is not None for share in row)
    ]
    head = ("", *(key(group.letter, group.color) for group in groups))
    speeds = ["steps/s, median", *(short(float(np.median(_speeds(group)))) for group in groups)]
    note = "shares of iteration time; concurrent tasks may add up to more than 100 %"
    return panel("Time per task", table(head, [speeds, *rows]), note)


def show_histories(entries: Sequence[Entry]) -> list[Html]:
    """Return the algorithm-specific pictures of a few runs, a section for each kind."""
    pages: dict[str, list[Html]] = {}
    left_out: list[str] = []
    shown = 0
    for entry in entries:
        try:
            title, pictures = read_pictures(entry.run)
            if not pictures:
                continue
            if shown == MOST_HISTORIES:
                left_out.append(entry.name)
                continue
            shown += 1
            drawn = [_draw_history(entry, name, draw, shown) for name, draw in pictures.items()]
            pages.setdefault(title, []).extend([heading(entry.name), *drawn])
        except PaddockError as error:
            pages.setdefault("Histories", []).append(paragraph(f"{entry.name} cannot be drawn: {error}"))
    if left_out:
        pages[next(reversed(pages))].append(paragraph(f"omitted to keep the page small: {', '.join(left_out)}"))
    return [section(title, "", *drawn) for title, drawn in pages.items()]


def _draw_history(entry: Entry, name: str, draw: Callable[[str], Figure], number: int) -> Html:
    try:
        with matplotlib.rc_context({"svg.fonttype": "none"}):
            figure = draw(str(entry.run.settings.get("algo.name", "")).upper())
    except ConfigError as error:
        return paragraph(f"{name} is omitted: {error}")
    drawn = picture(figure, f"history{number}-{name}", f"{name} of {entry.name}")
    return wide(TITLES.get(name, name), drawn, figure.get_figwidth())


def show_videos(entries: Sequence[Entry], most_mb: float) -> Html:
    """Embed the videos in run folders, and list those that are too large or too many."""
    panels: list[Html] = []
    left_out: list[str] = []
    for entry in entries:
        for path in _find_videos(entry.run.path):
            name = str(Path(entry.name) / path.relative_to(entry.run.path))
            try:
                size_mb = path.stat().st_size / 1e6
                if size_mb > most_mb or len(panels) == MOST_VIDEOS:
                    left_out.append(f"{name} ({size_mb:.1f} MB)")
                    continue
                content = path.read_bytes()
            except OSError:  # deleted in the meantime
                continue
            source = f"data:{VIDEOS[path.suffix]};base64,{base64.b64encode(content).decode()}"
            if path.suffix == ".webp":
                shown = f'<img src="{source}" alt="{escape(name)}">'
            else:
                shown = f'<video src="{source}" controls loop muted playsinline></video>'
            panels.append(panel(name, Html(shown)))
    note = f"omitted (videos_mb={most_mb:g}, at most {MOST_VIDEOS}): {', '.join(left_out)}" if left_out else ""
    return section("Videos", "", grid(panels), paragraph(note) if note else "")


def _find_videos(run: Path) -> list[Path]:
    """Find the videos in a run's folder, at any depth."""
    found = (Path(here) / name for here, _, files in os.walk(run) for name in files)
    return sorted(path for path in found if path.suffix in VIDEOS and path.is_file())


def list_runs(entries: Sequence[Entry], metric: str) -> Html:
    """Return a table of runs with their states, and the settings in which those of a sweep differ."""
    labels = label_runs({entry.run.path: entry.run.config for entry in entries})
    rows = []
    for entry in entries[:MOST_RUNS]:
        state = Html(f'<span class="bad">{entry.state}</span>') if entry.state in WRONG else entry.state
        seconds, score = entry.run.last("system/seconds"), entry.run.last(metric)
        rows.append(
            [
                entry.name,
                *([labels.get(entry.run.path, "")] if any(labels.values()) else []),
                state,
                entry.run.config.get("seed", "–"),
                *("–" if (v := entry.run.last(name)) is None else short(v) for name in ("iteration", "step")),
                "–" if score is None else short(score),
                "–" if seconds is None else duration(seconds),
                entry.why,
            ]
        )
    origins = [
        f"{entry.name} started from the policy of {origin['run']} at iteration {origin['iteration']:,} "
        f"({origin['step']:,} steps of {origin['algorithm']} on {origin['environment']})"
        for entry in entries[:MOST_RUNS]
        if (origin := entry.provenance.get("init_from"))
    ]
    head = ["run", *(["with"] if any(labels.values()) else []), "state"]
    words = (*range(len(head)), len(head) + 5)
    head += ["seed", "iteration", "steps", "score", "time", "why"]
    note = f"the first {MOST_RUNS} of {len(entries)}" if len(entries) > MOST_RUNS else ""
    return section("Runs", note, table(head, rows, words) if rows else "", *map(paragraph, origins))


def list_commands(entries: Sequence[Entry]) -> Html:
    """Return the exact commands, grouped by commit."""
    by_commit: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.provenance:
            by_commit[str(entry.provenance.get("commit") or "unknown")].append(entry)
    blocks: list[Html] = []
    for commit, same in by_commit.items():
        edited = sum((entry.run.path / "code.diff").exists() for entry in same)
        edits = f", with uncommitted changes (code.diff) in {edited} of the folders" if edited else ""
        first = same[0].provenance
        machine = f"Python {first.get('python', '?')} on {first.get('host', '?')} ({first.get('cpu', '?')})"
        commands = dict.fromkeys(format_command(shlex.split(entry.provenance.get("command", "?"))) for entry in same)
        blocks.append(heading(f"Commit {commit[:12]}"))
        blocks.append(paragraph(f"{commit}{edits}; first run on {machine}, {first.get('started', '?')}"))
        blocks.append(code(*list(commands)[:MOST_RUNS]))
    return section("Commands", "", join(blocks))


def _speeds(group: Group) -> list[float]:
    columns = [entry.run.columns.get("system/steps_per_s") for entry in group.entries]
    return [float(np.nanmedian(column)) for column in columns if column is not None and np.isfinite(column).any()]


def _share(group: Group, name: str) -> float | None:
    """Return the share of a time metric in the iteration time of all runs."""
    columns = [entry.run.columns for entry in group.entries if name in entry.run.columns]
    whole = sum(float(np.nansum(c["system/iteration_s"])) for c in columns if "system/iteration_s" in c)
    return sum(float(np.nansum(c[name])) for c in columns) / whole if whole else None


def _idle(group: Group) -> float | None:
    values = [
        np.nanmean(c)
        for e in group.entries
        if np.isfinite(c := e.run.columns.get("system/idle_share", np.array([np.nan]))).any()
    ]
    return float(np.mean(values)) if values else None
