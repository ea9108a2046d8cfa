"""Page of a report: sections of blocks, rendered by the templates, in which Jinja2 escapes all text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .figures import Picture

if TYPE_CHECKING:
    from .data import Group

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Heading:
    """Heading within a section."""

    text: str


@dataclass(frozen=True)
class Text:
    """Paragraph."""

    text: str


@dataclass(frozen=True)
class Code:
    """Commands, which wrap if they are too long."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Cell:
    """Formatted cell of a table."""

    text: str
    title: str = ""  # text in full, or an explanation
    color: str = ""  # of a group's mark before the text
    link: str = ""
    kind: str = ""  # CSS class
    warning: str = ""  # after the text


@dataclass(frozen=True)
class Table:
    """Table that scrolls if it is too large."""

    head: Sequence[object]  # texts or cells
    rows: Sequence[Sequence[object]]
    words: Collection[int] = (0,)  # columns that contain text


@dataclass(frozen=True)
class Legend:
    """Marks of groups with their names."""

    groups: Sequence[Group]


@dataclass(frozen=True)
class Video:
    """Embedded video or animated image."""

    name: str
    source: str  # data URL


@dataclass(frozen=True)
class Panel:
    """Content with a title and a note; pictures can be downloaded."""

    title: str
    content: Picture | Text | Video
    note: str = ""
    width_in: float | None = None  # of a picture with fixed colours on white, which scrolls on narrow pages


@dataclass(frozen=True)
class Grid:
    """Panels side by side."""

    panels: Sequence[Panel]
    small: bool = False


@dataclass(frozen=True)
class Section:
    """Section of a page; it is left out if it has no blocks."""

    title: str
    note: str
    blocks: Sequence[Heading | Text | Code | Table | Legend | Panel | Grid]


def render(title: str, notes: Sequence[str], sections: Sequence[Section]) -> bytes:
    """Return the complete page as HTML in UTF-8, which refers to nothing outside."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # in order, and compact
    return environment.get_template("page.html").render(title=title, notes=notes, sections=sections).encode()


def group_cell(group: Group) -> Cell:
    """Return the mark and the short name of a group."""
    return Cell(group.short_name, title=group.label, color=group.color)
