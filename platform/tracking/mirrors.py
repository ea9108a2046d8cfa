"""Base class of the mirrors in `tensorboard.py` and `wandb.py`, which import neither TensorFlow nor torch."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from paddock.envs.errors import ConfigError
from paddock.envs.ranges import PositiveInt, Range, check_fields

Seconds = Annotated[float, Range("must be positive and at most 1e6; try 30", above=0, high=1e6)]


@dataclass(kw_only=True, eq=False)
class RunMirror:
    """Abstract mirror of a run."""

    name: ClassVar[str]  # for messages

    queue_rows: PositiveInt
    close_timeout_s: Seconds
    run_dir: Path
    run_name: str
    config: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_fields(self)


def require_package(name: str, remedy: str) -> None:
    """Raise ConfigError if a package is missing."""
    if importlib.util.find_spec(name) is None:
        raise ConfigError(f"track needs the package {name}; {remedy}")
