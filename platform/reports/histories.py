"""What some algorithms tell of a run beside numbers, as pictures: POET's niches, PBT's members, matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from .data import ReportedRun
from .lineage import read_history, read_population
from .plots import matches, pbt, poet

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class HistoryKind(NamedTuple):
    """What some algorithms tell beside numbers."""

    title: str
    read: Callable[..., Any]  # its content, or None where there is none
    pictures: Mapping[str, Callable[[Any, str], Figure]]  # name -> how to draw the content, given a title


HISTORIES = (
    HistoryKind("Niches of POET", read_history, poet.PICTURES),
    HistoryKind("Population based training", read_population, pbt.PICTURES),
    HistoryKind("Matches", matches.read_matches, matches.PICTURES),
)


def read_pictures(run: ReportedRun) -> tuple[str, dict[str, Callable[[str], Figure]]]:
    """What there is to draw of one run beside its curves.

    Returns:
        (what it is, name -> how to draw it, given a title); empty of runs that tell nothing, or have not yet.

    Raises:
        FolderError: its events cannot be read.
    """
    for history in HISTORIES:
        content = history.read(run.path, run.config, run.columns)
        if content is not None:
            return history.title, {name: partial(draw, content) for name, draw in history.pictures.items()}
    return "", {}
