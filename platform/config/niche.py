"""A niche that a POET run has made, as the environment of another run: its recipe, from the POET run's journal."""

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
    """Replace a section env that names a niche by its recipe, so that a run's folder describes itself.

    Args:
        section: the section env; one that names no niche is returned as it is.
        run_dir: the folder of the run, which may have begun on that niche.
    """
    named = name_niche(section)
    if named is None:
        return section
    if isinstance(run_dir, str) and read_json(Path(run_dir) / "provenance.json").get("niche") == named:
        return read_config(Path(run_dir))["env"]
    return build("env", section)


def name_niche(section: dict[str, Any]) -> dict[str, Any] | None:
    """Return the run and the number of the niche that a section env names; None where it names none."""
    named = section.get("_target_") == TARGET
    return {key: section.get(key) for key in ("run", "niche")} if named else None


def read_recipe(run: str, niche: int) -> dict[str, Any]:
    """Return how to make the environment of a niche, as a section env.

    Args:
        run: the POET run's folder; the run may be going on.
        niche: its number, active or archived.

    Raises:
        PaddockError: there is no run, it has no niches, or not this one.
    """
    read_config(Path(run))
    recipes = {event["niche"]: event["env"] for event in read_events(Path(run)) if event.get("event") == "birth"}
    require(bool(recipes), f"run={run} has no niches in its events.jsonl; name the folder of a POET run")
    require(niche in recipes, f"niche={niche} is not a niche of {run}; {list_numbers(recipes)}")
    return {"_target_": "paddock.envs.spec.EnvSpec", **recipes[niche]}


def list_numbers(numbers: Iterable[int]) -> str:
    """List numbers for a message; of many, the first and the last."""
    known = [str(number) for number in sorted(numbers)]
    if len(known) > SHOWN:
        known[SHOWN // 2 : -SHOWN // 2] = ["..."]
    return f"there are {', '.join(known)}"
