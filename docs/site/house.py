"""Lets the reference find the packages by the names they are imported by: `paddock` is the folder platform/."""

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def on_startup(**_: Any) -> None:
    """Link the floors under their import names; mkdocs calls this before it reads any page."""
    house = ROOT / "build" / "house"
    house.mkdir(parents=True, exist_ok=True)
    for name, floor in {"paddock": "platform", "algos": "algos", "envs": "envs"}.items():
        if not (house / name).is_symlink():
            (house / name).symlink_to(ROOT / floor)
