"""What some algorithms tell of a run beside numbers, as pictures: POET's niches, PBT's members, matches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from paddock.envs.errors import ConfigError

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
        ConfigError: they tell of something else; so does the drawing.
    """
    for history in HISTORIES:
        with _naming(run):
            content = history.read(run.path, run.config, run.columns)
        if content is not None:
            return history.title, {name: partial(_draw, run, draw, content) for name, draw in history.pictures.items()}
    return "", {}


def _draw(run: ReportedRun, draw: Callable[[Any, str], Figure], content: Any, title: str) -> Figure:
    with _naming(run):
        return draw(content, title)


@contextlib.contextmanager
def _naming(run: ReportedRun) -> Iterator[None]:
    """Say which run it is whose files tell of something else than is drawn, as those of other programs may."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        files = f"events.jsonl or matches.json of {run.path}"
        raise ConfigError(f"{files} tells of something else ({type(error).__name__}: {error})") from error
