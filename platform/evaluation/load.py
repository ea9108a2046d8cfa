"""The algorithm of a run, loaded on this machine, whatever machine it learned on."""

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
class AsMany(Serial):
    """Environments that are never stepped, so that there may be more than one process would step."""

    num_envs: PositiveInt


def load(run: Path) -> tuple[Any, Progress]:
    """Load the algorithm of a run from its newest whole checkpoint, to act on this machine's CPU, and its progress.

    Raises:
        FolderError: there is no run.
        CheckpointError: there is no checkpoint, or none is whole.
    """
    algorithm = build_here(run)
    checkpoints = Checkpoints(run / "checkpoints", keep=read_config(run, ("checkpoint",))["checkpoint"]["keep"])
    require(
        bool(checkpoints.paths()), f"{run} has no checkpoint yet; a run saves every checkpoint.every_s and at its end"
    )
    try:
        progress = restore(algorithm, checkpoints)
    except CheckpointError:  # a run that is going on may just have replaced them
        progress = restore(algorithm, checkpoints)
    # If a signal ended the wait for an evaluation, the state is that of the row which lacks it.
    return algorithm, replace(progress, metrics=progress.metrics | (progress.unfinished or {}))


def build_here(run: Path) -> Any:
    """Build the algorithm of a run in its initial state, on this machine's CPU.

    Raises:
        FolderError: there is no run.
    """
    config = read_config(run, ("algo", "env", "vec"))
    check_format(run)
    add_start_folder_to_path(run)
    # Its own vec may need what only the machine of its training has.
    return build_algorithm(_at_home(config), SerialPool(), AsMany(num_envs=config["vec"].get("num_envs", 1)))


def _at_home(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with everything on the CPU, in this process."""
    ours = {"device": "cpu", "compiled": False, "learners": 1, "microbatches": 1, "threads": 1}
    algo = {
        key: ours.get(key, value) if type(value) is type(ours.get(key)) else value
        for key, value in config["algo"].items()
    }
    if isinstance(algo.get("member"), Mapping):
        algo["member"] = _at_home({"algo": algo["member"]})["algo"]
    return {**config, "algo": algo}
