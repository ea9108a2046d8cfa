"""Sections about single runs: speed, histories of POET and PBT, videos, states and commands."""

from __future__ import annotations

import base64
import os
import shlex
import urllib.parse
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
from ..data import Entry, Group, shorten_path
from ..figures import picture
from ..histories import read_pictures
from ..page import Cell, Code, Grid, Heading, Panel, Section, Table, Text, Video, group_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = {  # metric -> label
    "system/env_share": "environments",
    "system/policy_share": "policy",
    "system/learn_share": "learning",
    "system/wait_share": "waiting",
    "system/idle_share": "idle workers",
}
SPEED = "system/steps_per_s"
MOST_HISTORIES = 3
MOST_RUNS = 1000  # in a table
VIDEOS = {".mp4": "video/mp4", ".webm": "video/webm", ".webp": "image/webp"}
MOST_VIDEOS, MOST_MB = 12, 10.0  # number and size


def show_speed(groups: Sequence[Group]) -> Section:
    """Return a table of environment steps per second and of the time spent on each task."""
    fast = [group for group in groups if _mean(group, SPEED) is not None]
    rows = []
    for metric, label in {SPEED: "steps/s", **SHARES}.items():
        values = [_mean(group, metric) for group in fast]
        format_value = short if metric == SPEED else "{:.0%}".format
        if any(value is not None for value in values):
            rows.append([label, *("–" if value is None else format_value(value) for value in values)])
    note = "Means over iterations: environment steps per second, shares of time, and the idle share of the pool."
    return Section("Speed", note, [Table(["", *map(group_cell, fast)], rows)] if fast else [])


def show_histories(entries: Sequence[Entry]) -> list[Section]:
    """Return the algorithm-specific pictures of a few runs, a section for each kind."""
    blocks: dict[str, list[Heading | Panel | Text]] = {}
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
            blocks.setdefault(title, []).extend([Heading(entry.name), *drawn])
        except PaddockError as error:
            blocks.setdefault("Histories", []).append(Text(f"{entry.name} cannot be drawn: {error}"))
    if left_out:
        blocks[next(reversed(blocks))].append(Text(f"omitted to keep the page small: {', '.join(left_out)}"))
    return [Section(title, "", drawn) for title, drawn in blocks.items()]


def _draw_history(entry: Entry, name: str, draw: Callable[[str], Figure], number: int) -> Panel | Text:
    try:
        with matplotlib.rc_context({"svg.fonttype": "none"}):
            figure = draw(str(entry.run.settings.get("algo.name", "")).upper())
    except ConfigError as error:
        return Text(f"{name} is omitted: {error}")
    drawn = picture(figure, f"history{number}-{name}", f"{name} of {entry.name}")
    return Panel(name.capitalize(), drawn, width_in=figure.get_figwidth())


def show_videos(entries: Sequence[Entry]) -> Section:
    """Embed the videos in run folders, and list those that are too large or too many."""
    panels: list[Panel] = []
    left_out: list[str] = []
    for entry in entries:
        for path in _find_videos(entry.run.path):
            name = str(Path(entry.name) / path.relative_to(entry.run.path))
            try:
                size_mb = path.stat().st_size / 1e6
                if size_mb > MOST_MB or len(panels) == MOST_VIDEOS:
                    left_out.append(f"{name} ({size_mb:.1f} MB)")
                    continue
                content = path.read_bytes()
            except OSError:  # deleted in the meantime
                continue
            source = f"data:{VIDEOS[path.suffix]};base64,{base64.b64encode(content).decode()}"
            panels.append(Panel(name, Video(name, source)))
    omitted = f"omitted (over {MOST_MB:g} MB, or more than {MOST_VIDEOS}): {', '.join(left_out)}"
    return Section("Videos", "", [*([Grid(panels)] if panels else []), *([Text(omitted)] if left_out else [])])


def _find_videos(run: Path) -> list[Path]:
    found = (Path(here) / name for here, _, files in os.walk(run) for name in files)
    return sorted(path for path in found if path.suffix in VIDEOS and path.is_file())


def list_runs(entries: Sequence[Entry], metric: str, base: Path) -> Section:
    """Return a table of runs with their states, and the settings in which those of a sweep differ."""
    labels = label_runs({entry.run.path: entry.run.config for entry in entries})
    rows = []
    for entry in entries[:MOST_RUNS]:
        link = urllib.parse.quote(os.path.relpath(entry.run.path, base)) + "/"
        seconds, score = entry.run.last("system/seconds"), entry.run.last(metric)
        rows.append(
            [
                Cell(entry.name, link=link),
                *([labels.get(entry.run.path, "")] if any(labels.values()) else []),
                Cell(entry.state, kind="bad" if entry.state in WRONG else ""),
                entry.run.config.get("seed", "–"),
                *("–" if (v := entry.run.last(name)) is None else short(v) for name in ("iteration", "step")),
                "–" if score is None else short(score),
                "–" if seconds is None else duration(seconds),
                entry.why,
            ]
        )
    origins = [
        f"{entry.name} started from the policy of {shorten_path(origin['run'])} at iteration {origin['iteration']:,} "
        f"({origin['step']:,} steps of {origin['algorithm']} on {origin['environment']})"
        for entry in entries[:MOST_RUNS]
        if (origin := entry.provenance.get("init_from"))
    ]
    head = ["run", *(["with"] if any(labels.values()) else []), "state"]
    words = (*range(len(head)), len(head) + 5)
    head += ["seed", "iteration", "steps", "score", "time", "why"]
    note = f"the first {MOST_RUNS} of {len(entries)}" if len(entries) > MOST_RUNS else ""
    return Section("Runs", note, [Table(head, rows, words), *map(Text, origins)] if rows else [])


def list_commands(entries: Sequence[Entry]) -> Section:
    """Return the exact commands, grouped by commit."""
    by_commit: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.provenance:
            by_commit[str(entry.provenance.get("commit") or "unknown")].append(entry)
    blocks: list[Heading | Text | Code] = []
    for commit, same in by_commit.items():
        edited = sum((entry.run.path / "code.diff").exists() for entry in same)
        edits = f", with uncommitted changes (code.diff) in {edited} of the folders" if edited else ""
        first = same[0].provenance
        machine = f"Python {first.get('python', '?')} on {first.get('host', '?')} ({first.get('cpu', '?')})"
        commands = dict.fromkeys(format_command(shlex.split(entry.provenance.get("command", "?"))) for entry in same)
        about = f"{commit}{edits}; first run on {machine}, {first.get('started', '?')}"
        blocks += [Heading(f"Commit {commit[:12]}"), Text(about), Code(list(commands)[:MOST_RUNS])]
    return Section("Commands", "", blocks)


def _mean(group: Group, metric: str) -> float | None:
    """Return the mean of a metric over the iterations of all runs; None without values."""
    nothing = np.empty(0)
    values = np.concatenate([entry.run.columns.get(metric, nothing) for entry in group.entries])
    return float(np.nanmean(values)) if np.isfinite(values).any() else None
