"""Algorithm-specific figures of a run: POET's niches, PBT's members, archives of quality diversity, matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from .data import ReportedRun
from .lineage import read_history, read_population
from .plots import archive, matches, pbt, poet

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class HistoryKind(NamedTuple):
    """Kind of algorithm-specific history."""

    title: str
    read: Callable[..., Any]  # returns the content, or None
    pictures: Mapping[str, Callable[[Any, str], Figure]]  # name -> function of content and title


HISTORIES = (
    HistoryKind("Niches of POET", read_history, poet.PICTURES),
    HistoryKind("Population based training", read_population, pbt.PICTURES),
    HistoryKind("Archive of quality diversity", archive.read_archive, archive.PICTURES),
    HistoryKind("Matches", matches.read_matches, matches.PICTURES),
)


def read_pictures(run: ReportedRun) -> tuple[str, dict[str, Callable[[str], Figure]]]:
    """Return the pictures of a run other than its curves.

    Returns:
        (title, name -> function that draws the picture, given a title); empty without a history.
    """
    for history in HISTORIES:
        content = history.read(run.path, run.config, run.columns)
        if content is not None:
            return history.title, {name: partial(draw, content) for name, draw in history.pictures.items()}
    return "", {}
