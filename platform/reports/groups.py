"""Runs as they are compared: those that differ in nothing but the seed are a group, in which each seed counts once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..runs.folder import computation, short_name
from ..runs.results import Columns


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

    @property
    def env(self) -> str:
        """What people call its environment; families, which have no id, are called by their class."""
        settings = self.settings
        return short_name(str(settings.get("env.id") or str(settings.get("env._target_", "?")).rpartition(".")[2]))

    def last(self, metric: str) -> float | None:
        """The last value of a metric; None if there is none."""
        values = self.columns.get(metric, np.empty(0))
        values = values[np.isfinite(values)]
        return float(values[-1]) if len(values) else None


def group_by_seed(runs: Sequence[Run]) -> list[list[Run]]:
    """Group runs that compute the same but for the seed, in the order of the first of each."""
    groups: list[tuple[dict[str, Any], list[Run]]] = []
    for run in runs:
        settings = run.settings
        same = next((group for known, group in groups if known == settings), None)
        if same is None:
            groups.append((settings, [run]))
        else:
            same.append(run)
    return [group for _, group in groups]


def find_repeats(runs: Sequence[Run]) -> dict[Run, Run]:
    """Find runs that repeat another one's settings and seed, as copies do: they are no further samples.

    Returns:
        Each repeat, and the run that stands for it: of equals the one that has come farthest, or the first.
    """
    repeats: dict[Run, Run] = {}
    for group in group_by_seed(runs):
        by_seed: dict[Any, list[Run]] = {}
        for run in group:
            by_seed.setdefault(run.config.get("seed"), []).append(run)
        for same in by_seed.values():
            farthest = max(same, key=lambda run: run.last("step") or 0)
            repeats |= {run: farthest for run in same if run is not farthest}
    return repeats


def sort_groups(groups: Sequence[list[Run]], metric: str) -> list[list[Run]]:
    """Sort groups by their environments, and those of one environment by the median of a metric's last values."""

    def place(group: list[Run]) -> tuple[str, float]:
        values = [value for run in group if (value := run.last(metric)) is not None]
        return group[0].env, -float(np.median(values)) if values else np.inf

    return sorted(groups, key=place)
