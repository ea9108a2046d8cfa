"""Loading of a run's algorithm on this machine's CPU, independent of the hardware that trained it."""

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
from ..runs.folder import check_format, read_config
from ..runs.loop import Progress, restore
from ..runs.trust import add_start_folder_to_path


@dataclass(frozen=True, kw_only=True)
class UnsteppedSerial(Serial):
    """Serial vectorization without a limit on `num_envs`, since these environments are never stepped."""

    num_envs: PositiveInt


def load(run: Path) -> tuple[Any, Progress]:
    """Load a run's algorithm and progress from its newest intact checkpoint, to act on this machine's CPU.

    Raises:
        FolderError: the run does not exist.
        CheckpointError: there is no intact checkpoint.
    """
    algorithm = build_on_cpu(run)
    checkpoints = Checkpoints(run / "checkpoints", keep=read_config(run, ("checkpoint",))["checkpoint"]["keep"])
    require(
        bool(checkpoints.paths()), f"{run} has no checkpoint yet; a run saves every checkpoint.every_s and at its end"
    )
    try:
        progress = restore(algorithm, checkpoints)
    except CheckpointError:  # a running training process may have just replaced them
        progress = restore(algorithm, checkpoints)
    # If a signal interrupted the wait for an evaluation, the checkpoint belongs to the unfinished row.
    return algorithm, replace(progress, metrics=progress.metrics | (progress.unfinished or {}))


def build_on_cpu(run: Path) -> Any:
    """Build the algorithm of a run in its initial state, on this machine's CPU.

    Raises:
        FolderError: the run does not exist.
    """
    config = read_config(run, ("algo", "env", "vec"))
    check_format(run)
    add_start_folder_to_path(run)
    # The run's own vec may need hardware or servers that this machine lacks.
    return build_algorithm(_on_cpu(config), SerialPool(), UnsteppedSerial(num_envs=config["vec"].get("num_envs", 1)))


def _on_cpu(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with everything on the CPU, in this process."""
    ours = {"device": "cpu", "compiled": False, "learners": 1, "microbatches": 1, "threads": 1}
    algo = {
        key: ours.get(key, value) if type(value) is type(ours.get(key)) else value
        for key, value in config["algo"].items()
    }
    if isinstance(algo.get("member"), Mapping):
        algo["member"] = _on_cpu({"algo": algo["member"]})["algo"]
    return {**config, "algo": algo}
