"""Hooks of mkdocs: link the packages under their import name, and allow line breaks in long names."""

import re
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def on_startup(**_: Any) -> None:
    """Link the folders into the layout of the import name; mkdocs calls this before it reads any page."""
    tree = ROOT / "build" / "reference" / "paddock"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for source in [*(ROOT / "platform").iterdir(), ROOT / "algos", ROOT / "envs"]:
        if source.name != "__init__.py":
            (tree / source.name).symlink_to(source)
    (tree / "__init__.py").symlink_to(ROOT / "paddock.py")


def on_page_content(html: str, **_: Any) -> str:
    """Allow a line break inside long paths and names in tables; mkdocs calls this for each page."""

    def loosen(cell: re.Match[str]) -> str:
        return re.sub(r"(?<=<code>)[^<]+", lambda code: re.sub(r"(?<=\w)([/_=.])(?=\w)", r"\1<wbr>", code[0]), cell[0])

    return re.sub(r"<td>.*?</td>", loosen, html, flags=re.S)
