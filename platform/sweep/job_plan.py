"""A job of a sweep as a command: what its process, here or elsewhere, is started with."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from ..config.compose import hydra_parser, load_job

LEFT_OUT = ("run.dir=", "dry_run=", "sweep=")  # arguments that are the sweep's own affair


@dataclass(frozen=True)
class Plan:
    """A job to be."""

    overrides: Sequence[str]
    run: Path  # absolute
    command: Sequence[str]


def plan_job(
    loader: Any,
    sweep: DictConfig,
    overrides: list[str],
    number: int,
    run: Path | None = None,
    copy_of: Callable[[Path], Path | None] = lambda path: None,
) -> Plan:
    """The command of one job.

    Args:
        loader: Hydra's, of the sweep.
        sweep: its configuration, Hydra's part included.
        overrides: the job's own and those of all jobs.
        run: the folder of the run; None for what the configuration says.
        copy_of: where a path of this machine lies for the job; None for the path itself.
    """
    config = load_job(loader, sweep, overrides, number)
    HydraConfig.instance().set_config(config)
    run = (run or Path(config.run.dir or config.hydra.runtime.output_dir)).absolute()
    quoted = str(run) if re.fullmatch(r"[\w/.+%@-]+", str(run)) else "'" + str(run).replace("'", "\\'") + "'"
    flags = hydra_parser().parse_intermixed_args()
    folder = flags.config_dir and str(copy_of(Path(flags.config_dir).absolute()) or flags.config_dir)
    named = {"--config-path": flags.config_path, "--config-name": flags.config_name, "--config-dir": folder}
    kept = [item for item in config.hydra.overrides.hydra if item.lstrip("+").startswith("hydra.searchpath=")]
    kept += [item for item in overrides if not item.startswith(LEFT_OUT)]
    command = [sys.executable, "-u", "-m", "paddock", *(word for pair in named.items() if pair[1] for word in pair)]
    return Plan(overrides, run, [*command, *kept, f"run.dir={quoted}"])
