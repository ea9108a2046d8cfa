"""Self-contained HTML page: style, elements, and pictures that follow its colours.

Text is converted to HTML only here, and escaped unless it is `Html` already, since it may come from any file.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..runs.lazy_imports import matplotlib
from .drawing import new_figure, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

# Placeholders for the page's colours, which differ between light and dark mode.
INK, LINE = "#0a0b0c", "#0d0e0f"
FONT: Any = {"svg.fonttype": "none", "font.size": 9.5, "axes.labelsize": 9.5}
STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --dim: #667084; --line: #dde1e8; --back: #f6f7f9; --card: #ffffff;
  --accent: #2563c9; --bad: #c2362b; }
@media (prefers-color-scheme: dark) { :root { --ink: #dfe3ea; --dim: #98a2b3; --line: #343b47; --back: #14171c;
  --card: #1c2027; --accent: #7fb0ff; --bad: #ff8a7a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 82rem; margin: 0 auto; padding: 2rem clamp(.8rem, 3vw, 2.5rem) 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.6rem 0 .3rem; overflow-wrap: anywhere; }
h3 { font-size: .95rem; margin: 1.4rem 0 .5rem; overflow-wrap: anywhere; }
p { margin: .2rem 0 .8rem; max-width: 75ch; overflow-wrap: anywhere; }
.dim, figcaption { color: var(--dim); font-size: .87rem; }
.bad { color: var(--bad); }
.grid { display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); }
.grid figure { max-width: 42rem; }
figure { margin: 0; padding: .8rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  min-width: 0; }
figcaption { margin-bottom: .4rem; overflow-wrap: anywhere; }
figcaption b { color: var(--ink); }
svg { display: block; width: 100%; height: auto; color: var(--ink); }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
svg text { font-family: inherit !important; }
video, img { display: block; max-width: 100%; margin: 0 auto; }
.wide { margin: 1rem 0; }
.paper { margin: 0 auto; overflow-x: auto; background: #fff; border-radius: .3rem; }
.paper svg { min-width: 42rem; max-width: 66rem; margin: 0 auto; color: #000; }
.scroll { overflow: auto; width: fit-content; max-width: 100%; max-height: 34rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .5rem; margin: .4rem 0 1rem; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .38rem .7rem; text-align: left; border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
td.number { white-space: nowrap; }
figure > .scroll { border: 0; }
th { position: sticky; top: 0; z-index: 1; background: var(--card); color: var(--dim); font-weight: 600; }
tr:last-child td { border-bottom: 0; }
th.number, td.number { text-align: right; }
.key { display: inline-block; min-width: 1.45em; padding: 0 .35em; border-radius: .3em; color: #fff; text-align: center;
  font-weight: 600; }
.keys { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: .4rem 0 .8rem; font-size: .87rem; }
.keys span { overflow-wrap: anywhere; }
.bar { display: inline-block; width: 4.5rem; height: .55rem; margin-right: .5rem; background: var(--line);
  border-radius: .2rem; overflow: hidden; }
.bar i { display: block; height: 100%; background: var(--accent); }
pre { margin: .4rem 0 1rem; padding: .7rem .9rem; overflow: auto; max-height: 24rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .5rem; font: .83rem/1.5 ui-monospace, Menlo, Consolas, monospace; }
pre div { white-space: pre-wrap; overflow-wrap: anywhere; padding-left: 2ch; text-indent: -2ch; }
"""


class Html(str):
    """Escaped HTML text."""


def escape(value: object) -> Html:
    """Escape a value, unless it is HTML already."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(elements: Iterable[object], between: str = "") -> Html:
    """Escape and join elements."""
    return Html(between.join(map(escape, elements)))


def document(title: str, *elements: object) -> bytes:
    """Return the complete page."""
    icon = '<link rel="icon" href="data:,">'  # otherwise browsers request favicon.ico
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">{icon}'
    text = f"<!doctype html>\n<html lang='en'><head>{head}<title>{escape(title)}</title><style>{STYLE}</style></head>"
    return f"{text}\n<body><main>\n{join(elements, chr(10))}\n</main></body></html>\n".encode()


def section(title: object, note: object, *elements: object) -> Html:
    """Return a section with a heading, an optional note and its elements; empty without elements."""
    if not any(elements):
        return Html("")
    intro = paragraph(note) if note else ""
    return Html(f"<section><h2>{escape(title)}</h2>{intro}{join(elements)}</section>")


def heading(title: object) -> Html:
    """Return a heading within a section."""
    return Html(f"<h3>{escape(title)}</h3>")


def paragraph(text: object, kind: str = "dim") -> Html:
    """Return a paragraph of a CSS class."""
    return Html(f'<p class="{kind}">{escape(text)}</p>')


def code(*lines: str) -> Html:
    """Return a block of commands, which wrap if they are too long."""
    return Html(f"<pre>{join(Html(f'<div>{escape(line)}</div>') for line in lines)}</pre>")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], words: Collection[int] = (0,)) -> Html:
    """Return a table that scrolls if it is too large; columns in `words` contain text."""

    def line(tag: str, cells: Sequence[object]) -> str:
        kinds = ("" if k in words else ' class="number"' for k in range(len(cells)))
        return f"<tr>{''.join(f'<{tag}{k}>{escape(cell)}</{tag}>' for k, cell in zip(kinds, cells, strict=True))}</tr>"

    body = "".join(line("td", row) for row in rows)
    return Html(f'<div class="scroll"><table><thead>{line("th", head)}</thead><tbody>{body}</tbody></table></div>')


def grid(panels: Iterable[Html]) -> Html:
    """Arrange panels side by side; empty without panels."""
    panels = [panel for panel in panels if panel]
    return Html(f'<div class="grid">{join(panels)}</div>' if panels else "")


def panel(title: object, content: object, note: object = "") -> Html:
    """Return content with a title and a note."""
    caption = f"<figcaption><b>{escape(title)}</b> {escape(note)}</figcaption>"
    return Html(f"<figure>{caption}{escape(content)}</figure>")


def wide(title: object, content: object, width_in: float) -> Html:
    """Return a picture with fixed colours on white, which scrolls on narrow pages."""
    caption = f"<figcaption><b>{escape(title)}</b></figcaption>"
    place = f'<div class="paper" style="max-width: max(42rem, {1.2 * width_in:.1f}in)">{escape(content)}</div>'
    return Html(f'<figure class="wide">{caption}{place}</figure>')


def bar(share: float) -> Html:
    """Return a fraction as a bar and in percent."""
    return Html(f'<span class="bar"><i style="width:{min(max(share, 0), 1):.1%}"></i></span>{share:.0%}')


def key(letter: str, color: str) -> Html:
    """Return the mark of a group."""
    return Html(f'<span class="key" style="background:{color}">{escape(letter)}</span>')


def keys(marks: Iterable[tuple[Html, object]]) -> Html:
    """Return a legend of marks; empty without marks."""
    marks = list(marks)
    if not marks:
        return Html("")
    return Html(f'<div class="keys">{join(Html(f"<span>{mark} {escape(text)}</span>") for mark, text in marks)}</div>')


def axes(width_in: float = 4.5, height_in: float = 2.9) -> Axes:
    """Return empty axes in the page's colours."""
    with matplotlib.rc_context(FONT):
        ax = new_figure(width_in, height_in).subplots()
    open_axes(ax, LINE, 0.7)
    ax.spines[["bottom", "left"]].set_color(LINE)
    ax.tick_params(color=LINE, labelcolor=INK, labelsize=8.5)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set_color(INK)
    return ax


def picture(figure: Figure | SubFigure, name: str, label: str) -> Html:
    """Return a figure as inline SVG; `name` is unique within the page, and `label` is for screen readers."""
    assert isinstance(figure, matplotlib.figure.Figure)  # not a SubFigure
    buffer = io.StringIO()
    with matplotlib.rc_context(FONT | {"svg.hashsalt": name}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = re.sub(
        r"<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )  # it would apply to the whole page
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    attributes = f'role="img" aria-label="{escape(label)}"'  # may contain a backslash from a folder's name
    svg = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', lambda found: f"<svg {found[1]} {attributes}>", svg, count=1)
    return Html(svg.replace("xlink:href", "href").replace(INK, "currentColor").replace(LINE, "var(--line)"))
