"""Lets the reference find the packages by the names they are imported by, and long names break on narrow screens."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def on_startup(**_: Any) -> None:
    """Link the floors under their import names, `paddock` to platform/; mkdocs calls this before it reads any page."""
    house = ROOT / "build" / "house"
    house.mkdir(parents=True, exist_ok=True)
    for name, floor in {"paddock": "platform", "algos": "algos", "envs": "envs"}.items():
        if not (house / name).is_symlink():
            (house / name).symlink_to(ROOT / floor)


def on_page_content(html: str, **_: Any) -> str:
    """Allow a line break inside long paths and names in tables; mkdocs calls this for each page."""

    def loosen(cell: re.Match[str]) -> str:
        return re.sub(r"(?<=<code>)[^<]+", lambda code: re.sub(r"(?<=\w)([/_=.])(?=\w)", r"\1<wbr>", code[0]), cell[0])

    return re.sub(r"<td>.*?</td>", loosen, html, flags=re.S)
