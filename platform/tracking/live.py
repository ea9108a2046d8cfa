"""Live progress on a terminal: the newest row of metrics below its header, and a progress bar."""

import io
from collections.abc import Mapping

DROPPED = (
    "at iter.",
    "best",
    "steps/s",
    "eval return",
    "ETA",
    "ETA <=",
    "steps",
)  # on a narrow terminal, in this order
MIN_WIDTH = {"return": 8, "best": 8}  # characters of a column, so that the columns do not move; of others 7
MAX_BAR = 79  # characters of the line with the progress bar


def render(cells: Mapping[str, str], share: float | None, caption: str, status: str, width: int) -> str:
    """Return the lines of the display with their colours, which NO_COLOR turns off; each ends with a line feed.

    Args:
        cells: header -> value of each column; empty before the first row.
        share: spent share of the budget, 0 to 1; None for no progress bar.
        caption: text beside the progress bar.
        status: what the run waits for; may be empty.
        width: characters per line.
    """
    from rich.console import Console  # slow to import, and only terminals need it
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False, markup=False, emoji=False)
    widths = {name: max(MIN_WIDTH.get(name, 7), len(name), len(value)) for name, value in cells.items()}
    for name in DROPPED:
        if sum(widths.values()) + 2 * (len(widths) - 1) > width:
            widths.pop(name, None)
    if widths:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in widths:
            table.add_column(name, justify="right", no_wrap=True, min_width=widths[name])
        table.add_row(*(cells[name] for name in widths))
        console.print(table)
    if share is not None:
        line = Table.grid(padding=(0, 2, 0, 0))
        line.width = min(width, MAX_BAR)
        line.add_column(ratio=1)
        line.add_column(no_wrap=True, overflow="crop")
        bar = ProgressBar(1.0, share, style="bright_black", complete_style="green", finished_style="green")
        line.add_row(bar, f"{share:4.0%} {caption}")
        console.print(line)
    for text in (caption if share is None else "", status):
        if text:
            console.print(text, no_wrap=True, overflow="crop", crop=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
