"""Grid of runs under --multirun; every job is composed and checked before the first one starts."""

import argparse
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf

from paddock.envs.errors import require

from ..runs.identity import flatten
from .compose import explained, job_config, load_job, open_loader
from .hydra_private import BASIC_LAUNCHER, BASIC_SWEEPER, make_launcher

SWEEP_FILE = "sweep="  # prefix of the argument that job processes do not get, since they would sweep too
CHECKED_JOBS = 256  # in a larger sweep, only enough jobs are checked to cover every value


@dataclass(frozen=True)
class Grid:
    """Jobs of a grid and their shared configuration."""

    loader: ConfigLoader
    config: DictConfig  # with the `hydra` section
    jobs: Sequence[Sequence[str]]  # the overrides of each

    def configs(self) -> Iterator[tuple[int, DictConfig]]:
        """Yield the number and configuration of each job to check."""
        met: set[str] = set()
        in_processes = self.config.hydra.launcher._target_ != BASIC_LAUNCHER
        for number, job in enumerate(self.jobs):
            if len(self.jobs) > CHECKED_JOBS and met.issuperset(job):
                continue
            if in_processes and not met.issuperset(item for item in job if item.startswith(SWEEP_FILE)):
                check_sweep_file(self.loader, self.config, job)
            met.update(job)
            yield number, job_config(load_job(self.loader, self.config, job, number))

    def preview(self, show: TaskFunction) -> None:
        """Show every job without making its folder, as Hydra would."""
        if self.config.hydra.launcher._target_ != BASIC_LAUNCHER:
            make_launcher(self.loader, show, self.config).launch([list(job) for job in self.jobs], 0)
            return
        for number, job in enumerate(self.jobs):
            show(job_config(load_job(self.loader, self.config, job, number)))


def compose_grid(arguments: argparse.Namespace) -> Grid | None:
    """Compose a multirun; return None if its sweeper chooses values during the sweep."""
    loader = open_loader(arguments)
    with explained(arguments, loader):
        overrides = [*arguments.overrides, "hydra.mode=MULTIRUN"]
        config = loader.load_configuration(arguments.config_name or "config", overrides, RunMode.MULTIRUN)
        sweeper = config.hydra.sweeper
        if sweeper._target_ != BASIC_SWEEPER:
            return None
        swept = [f"{key}={values}" for key, values in (sweeper.params or {}).items()]
        parsed = OverridesParser.create(loader).parse_overrides([*swept, *config.hydra.overrides.task])
    jobs = list(itertools.product(*map(_values, parsed)))
    for job, times in Counter(jobs).items():
        require(times == 1, f"the sweep has {times} equal runs ({' '.join(job)}); list each value once")
    return Grid(loader, config, jobs)


def _values(override: Override) -> list[str]:
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    values = [f"{key}={value}" for value in override.sweep_string_iterator()] if override.is_discrete_sweep() else []
    remedy = "list values (KEY=1,2) or search with hydra/sweeper=optuna"
    require(bool(values), f"{override.input_line} lists no values, which a grid needs; {remedy}")
    return values


def check_sweep_file(loader: ConfigLoader, sweep: DictConfig, job: Sequence[str]) -> None:
    """Raise ConfigError if the `sweep=` file sets keys that job processes, started without it, would lack."""
    files = [item for item in job if item.startswith(SWEEP_FILE)]
    if not files:
        return
    rest, name = [item for item in job if item not in files], sweep.hydra.job.config_name
    with explained(argparse.Namespace(overrides=rest, config_name=name), loader):
        alone = loader.load_configuration(name, rest, RunMode.RUN)
    configs = (load_job(loader, sweep, job, 0), alone)
    had, has = (flatten(OmegaConf.to_container(config, resolve=False)) for config in configs)
    lost = [key for key in had.keys() | has.keys() if had.get(key) != has.get(key) and not key.startswith("hydra.")]
    remedy = "set it on the command line or in an experiment file"
    require(not lost, f"{files[-1]} sets {', '.join(sorted(lost))}, which the sweep's processes do not get; {remedy}")
