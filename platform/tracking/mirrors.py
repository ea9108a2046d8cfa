"""Base classes and helpers of the mirrors in `tensorboard.py`, `wandb.py` and `mlflow.py`.

No mirror imports TensorFlow or torch into the run. W&B and MLflow run in child processes (`child.py`), which can be
killed when they hang.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

from paddock.envs.errors import ConfigError
from paddock.envs.ranges import PositiveInt, Range, check_fields

from ..runs.checkpoint import Checkpoints
from ..runs.folder import read_json
from ..runs.sweeps import sweep_name
from .child import MirrorProcess

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


@dataclass(kw_only=True, eq=False)
class ProcessMirror(RunMirror):
    """Abstract mirror in a child process, started by `open`."""

    init_timeout_s: Seconds
    _process: MirrorProcess | None = field(default=None, init=False)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Send a row to the process."""
        if self._process is not None:
            self._process.send(metrics)

    def close(self) -> None:
        """Wait until the process has written all rows."""
        if self._process is not None:
            self._process.close()

    def abandon(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()

    def _describe(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self) if item.init} | {
            "run_dir": str(self.run_dir.absolute()),
            "commit": read_json(self.run_dir / "provenance.json").get("commit"),
            "sweep": sweep_name(self.run_dir),
            "pid": os.getpid(),
            "argv": sys.argv,
        }


def find_policy(run_dir: Path) -> list[Path]:
    """Return the files of a run's policy: the newest checkpoint and the configuration."""
    newest = Checkpoints(run_dir / "checkpoints", keep=1).paths()[:1]
    return [*newest, run_dir / "config.yaml"] if newest else []


def find_videos(run_dir: Path) -> list[Path]:
    """Return the videos in a run's folder."""
    return sorted(run_dir.glob("*.mp4"))


def require_package(name: str, remedy: str) -> None:
    """Raise ConfigError if a package is missing."""
    if importlib.util.find_spec(name) is None:
        raise ConfigError(f"track needs the package {name}; {remedy}")
