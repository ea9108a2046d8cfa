"""Names of other libraries (Stable-Baselines3, CleanRL, RLlib, Gymnasium) for the keys and commands of Paddock."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import yaml

from paddock.envs.errors import closest

from .. import COMMANDS

USUAL: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())  # key -> names
COMMAND_NAMES = {"train": "paddock", "eval": "paddock.evaluate", "onnx": "paddock.export", "test": "paddock.evaluate"}


def find_usual(name: str) -> list[str]:
    """Return the keys that another library calls so, in the table's order."""
    name = name.lower().replace("-", "_")
    return [key for key, names in USUAL.items() if name in names]


def suggest_key(key: str, known: Iterable[str]) -> str | None:
    """Suggest keys for one that does not exist: "did you mean 'algo.gamma'?"; None where nothing is near."""
    known = [other for other in known if not _name(other).startswith("_")]
    section, _, name = key.rpartition(".")
    same = [other for other in known if _name(other) == name]
    here = [other for other in known if not section or f"{other}.".startswith(f"{section}.")]
    misspelled = closest(key, same) if section and section not in known else None  # the section is
    usual = [other for other in find_usual(name) if other in known and not f"{section}.".startswith(f"{other}.")]
    near = closest(name, map(_name, here))
    found = (
        [misspelled] if misspelled else [k for k in usual if _section(k) in (section, *find_usual(section))] or usual
    )
    found = found or [other for other in here if _name(other) == near] or (same if len(same) == 1 else [])
    return f"did you mean {' or '.join(map(repr, found[:3]))}?" if found else None


def suggest_flag(message: str) -> str:
    """Explain argparse's message about a flag that may be one of our keys."""
    flag = re.search(r"unrecognized arguments: (--?([a-zA-Z][\w./@-]+))", message)
    if flag is None:
        return message
    key = [*find_usual(flag.group(2)), flag.group(2)][0]
    return f"{flag.group(1)} is not a flag; keys are written without dashes, as in {key}=..."


def refuse_command(module: str) -> NoReturn:
    """End the process with a line where Python is asked to run a module of ours that is no command."""
    print(f"paddock: python -m {module} is not a command; {suggest_command(module)}", file=sys.stderr)
    sys.exit(2)


def suggest_command(name: str) -> str:
    """Suggest the command that is meant by a name that is none's, or list them."""
    name = _name(name).lower()
    near = closest(name, COMMANDS)
    meant = COMMAND_NAMES.get(name, f"paddock.{near}" if near else None)
    return f"did you mean python -m {meant}?" if meant else f"there are paddock, paddock.{', paddock.'.join(COMMANDS)}"


def _section(key: str) -> str:
    return key.rpartition(".")[0]


def _name(key: str) -> str:
    return key.rpartition(".")[2]
