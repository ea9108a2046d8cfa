"""Load the algorithm of a run on the CPU, whatever hardware it was trained on."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock.algos.pool.serial import SerialPool
from paddock.envs.errors import require
from paddock.envs.ranges import PositiveInt
from paddock.envs.vector import Serial

from ..config.experiment import build_algorithm
from ..runs.checkpoint import CheckpointError, Checkpoints
from ..runs.folder import read_config, read_json
from ..runs.loop import Progress, restore


@dataclass(frozen=True, kw_only=True)
class UnsteppedSerial(Serial):
    """Serial backend without a limit on `num_envs`, because its environments are never stepped."""

    num_envs: PositiveInt


def load(run: Path) -> tuple[Any, Progress]:
    """Load the algorithm and progress of a run from its newest intact checkpoint, for inference on the CPU.

    Raises:
        FolderError: the run does not exist.
        CheckpointError: there is no intact checkpoint.
    """
    algorithm = build_on_cpu(run)
    checkpoints = Checkpoints(run / "checkpoints", keep=read_config(run, ("checkpoint",))["checkpoint"]["keep"])
    require(
        bool(checkpoints.paths()), f"{run} has no checkpoint yet; wait for the first, after checkpoint.every_s seconds"
    )
    try:
        progress = restore(algorithm, checkpoints)
    except CheckpointError:  # the run may have just replaced its checkpoints
        progress = restore(algorithm, checkpoints)
    # If the run stopped while an evaluation was pending, `unfinished` has the metrics of the saved policy.
    return algorithm, replace(progress, metrics=progress.metrics | (progress.unfinished or {}))


def build_on_cpu(run: Path) -> Any:
    """Build the algorithm of a run in its initial state, on the CPU."""
    config = read_config(run, ("algo", "env", "vec"))
    add_start_folder_to_path(run)
    # The run's `vec` may need hardware or servers that are not available here.
    return build_algorithm(_on_cpu(config), SerialPool(), UnsteppedSerial(num_envs=config["vec"].get("num_envs", 1)))


def add_start_folder_to_path(run: Path) -> None:
    """Append the folder from which a run was started to `sys.path`, for the classes that its configuration names."""
    folder = read_json(run / "provenance.json").get("folder")
    if isinstance(folder, str) and Path(folder).is_dir() and folder not in sys.path:
        sys.path.append(folder)


def _on_cpu(config: Mapping[str, Any]) -> dict[str, Any]:
    overrides = {"device": "cpu", "learners": 1, "threads": 1}
    algo = {
        key: overrides.get(key, value) if type(value) is type(overrides.get(key)) else value
        for key, value in config["algo"].items()
    }
    if isinstance(algo.get("member"), Mapping):
        algo["member"] = _on_cpu({"algo": algo["member"]})["algo"]
    return {**config, "algo": algo}
