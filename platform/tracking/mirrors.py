"""What the mirrors of `conf/track` share; `tensorboard.py`, `wandb.py` and `mlflow.py` have one each.

None imports TensorFlow or torch into the run. W&B and MLflow live in a process each (`child.py`), which can be killed
when it hangs.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from paddock.envs.errors import ConfigError, require

from ..runs.checkpoint import Checkpoints
from ..runs.folder import read_json
from ..runs.sweeps import sweep_name
from .child import MirrorProcess

MOST_S = 1e6  # twelve days


@dataclass(kw_only=True, eq=False)
class OfRun:
    """Abstract mirror of the run in a folder."""

    name: ClassVar[str]  # what messages call it

    queue_rows: int
    close_timeout_s: float
    run_dir: Path
    run_name: str
    config: Mapping[str, Any]

    def __post_init__(self) -> None:
        require(self.queue_rows > 0, f"queue_rows={self.queue_rows} must be positive; try 1000")
        self._check_seconds("close_timeout_s", 30)

    def _check_seconds(self, name: str, usual: int) -> None:
        seconds = getattr(self, name)
        require(0 < seconds <= MOST_S, f"{name}={seconds} must be positive, and at most {MOST_S:g}; try {usual}")


@dataclass(kw_only=True, eq=False)
class InChild(OfRun):
    """Abstract mirror in a process that `open` starts."""

    init_timeout_s: float
    _process: MirrorProcess | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_seconds("init_timeout_s", 15)

    def log(self, metrics: Mapping[str, float]) -> None:
        if self._process is not None:
            self._process.send(metrics)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def abandon(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _describe(self) -> dict[str, Any]:
        """Return the settings of the process, and the facts of the run."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.init} | {
            "run_dir": str(self.run_dir.absolute()),
            "commit": read_commit(self.run_dir),
            "sweep": sweep_name(self.run_dir),
            "pid": os.getpid(),
            "argv": sys.argv,
        }


def read_commit(run_dir: Path) -> str | None:
    """Return the commit of the code that a run was made with, if it is known."""
    return read_json(run_dir / "provenance.json").get("commit")


def find_policy(run_dir: Path) -> list[Path]:
    """Return the files of a run's policy: the newest checkpoint and the configuration."""
    newest = Checkpoints(run_dir / "checkpoints", keep=1).paths()[:1]
    return [*newest, run_dir / "config.yaml"] if newest else []


def find_videos(run_dir: Path) -> list[Path]:
    """Return the videos in a run's folder."""
    return sorted(run_dir.glob("*.mp4"))


def require_package(name: str, remedy: str) -> None:
    """Check that a package is installed.

    Raises:
        ConfigError: it is missing; says how to install it.
    """
    if importlib.util.find_spec(name) is None:
        raise ConfigError(f"track needs the package {name}, which is not installed; try: {remedy}")
