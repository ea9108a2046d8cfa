"""Use a niche of a POET run as an environment, by its recipe in that run's journal."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paddock.envs.errors import require

from ..runs.folder import read_config, read_json
from ..runs.results import read_events
from .build import build

TARGET = "paddock.config.niche.read_recipe"  # as conf/env/niche.yaml names it
SHOWN = 12  # numbers in a message


def resolve_niche(section: dict[str, Any], run_dir: object = None) -> dict[str, Any]:
    """Replace an `env` section that names a niche by its recipe, so that the run folder is self-contained.

    On resume, the recipe recorded in `run_dir` is reused.
    """
    named = name_niche(section)
    if named is None:
        return section
    if isinstance(run_dir, str) and read_json(Path(run_dir) / "provenance.json").get("niche") == named:
        return read_config(Path(run_dir))["env"]
    return build("env", section)


def name_niche(section: dict[str, Any]) -> dict[str, Any] | None:
    """Return the run and number of the niche that an `env` section names; None if it names none."""
    named = section.get("_target_") == TARGET
    return {key: section.get(key) for key in ("run", "niche")} if named else None


def read_recipe(run: str, niche: int) -> dict[str, Any]:
    """Return the `env` section of an active or archived niche of a POET run, which may still be running."""
    read_config(Path(run))
    recipes = {event["niche"]: event["env"] for event in read_events(Path(run)) if event.get("event") == "birth"}
    require(bool(recipes), f"run={run} has no niches in its events.jsonl; use the folder of a POET run")
    require(niche in recipes, f"niche={niche} is not a niche of {run}; {list_numbers(recipes)}")
    return {"_target_": "paddock.envs.spec.EnvSpec", **recipes[niche]}


def list_numbers(numbers: Iterable[int]) -> str:
    """List numbers for a message, abbreviated in the middle."""
    known = [str(number) for number in sorted(numbers)]
    if len(known) > SHOWN:
        known[SHOWN // 2 : -SHOWN // 2] = ["..."]
    return f"known: {', '.join(known)}"
