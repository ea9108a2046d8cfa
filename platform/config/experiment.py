"""From a composed configuration to an experiment: values checked, and every part built."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from paddock.algos.common.recipe import AlgorithmRecipe
from paddock.algos.pool.late import LatePool
from paddock.algos.protocol import KeepsFiles, TakesFamily, TrainsMembers
from paddock.envs.errors import ConfigError, require, resolve

from ..runs.checkpoint import Checkpoints
from ..runs.folder import FolderError, check_usable, read_json, unwritable
from ..runs.identity import algorithm_name, env_name, short_name
from ..runs.loop import Budget
from ..tracking.messages import early_warnings
from ..tracking.tracker import Mirror
from .build import build, call_checked, prepare
from .mistakes import one_line
from .niche import name_niche, resolve_niche

if TYPE_CHECKING:
    from paddock.envs.vector import Vec

SECTIONS = ("algo", "env", "vec", "compute", "track", "budget", "run", "checkpoint")
FILES = "replay"  # in a run's folder: where an algorithm keeps files of its own
NEVER = 10**9  # every round of a population ends with an evaluation of each member


@dataclass(frozen=True)
class Configuration:
    """The keys of every configuration, and their types."""

    algo: Mapping[str, Any]
    env: Mapping[str, Any]
    vec: Mapping[str, Any]
    compute: Mapping[str, Any]
    track: Mapping[str, Any]
    budget: Mapping[str, Any]
    run: Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    seed: int
    init_from: str | None
    resume: Literal["last"] | None
    dry_run: bool

    def __post_init__(self) -> None:
        """Raise ConfigError for a value out of range."""
        require(0 <= self.seed < 2**63, f"seed={self.seed} must be in [0, 2^63)")
        name = self.algo.get("name")  # part of a folder's, as run.name is
        usable = name is None or isinstance(name, int | float) or (isinstance(name, str) and "/" not in name)
        require(usable, f"algo.name={name!r} must be text without '/', a number, or null")


@dataclass(frozen=True)
class Experiment:
    """A checked configuration and the parts of the run that it describes; nothing has been written or started."""

    config: dict[str, Any]
    budget: Budget
    pool: LatePool
    algorithm: Any
    path: Path
    checkpoints: Checkpoints
    mirrors: list[Mirror]
    new: bool = False  # the path was chosen for this run, and is to be no other's
    niche: dict[str, Any] | None = None  # where the environment is a POET run's: whose, and its number


def assemble(composed: DictConfig) -> Experiment:
    """Check a configuration and build its parts; nothing is written or started.

    Raises:
        ConfigError: a value is missing, unknown, of the wrong type or out of range.
    """
    config = read_plain(composed)
    budget = _budget(config["budget"])
    pool = LatePool(build("compute", config["compute"]))
    path, new = _run_path(config)
    with early_warnings():  # as of a server of environments that is waited for
        algorithm = build_algorithm(config, pool, folder=path / FILES)
    checkpoints = _checkpoints(config["checkpoint"], path)
    mirrors = build_mirrors(config, path)
    check_usable(path, config, new=new)
    env: Any = OmegaConf.to_container(composed.env, resolve=True)
    return Experiment(config, budget, pool, algorithm, path, checkpoints, mirrors, new, name_niche(env))


def build_algorithm(
    config: Mapping[str, Any], pool: Any, vec: "Vec | None" = None, *, folder: Path | None = None
) -> Any:
    """Build the algorithm of a configuration, on a pool.

    Args:
        vec: in place of the configuration's own.
        folder: for the files of one that keeps any; None: it is not to learn.
    """
    from paddock.envs.family import Family  # Gymnasium is slow to import, and help needs none

    recipe = build("env", config["env"])
    vec = vec or build("vec", config["vec"])
    section = {key: value for key, value in config["algo"].items() if key != "name"}
    parts: dict[str, Any] = {"vec": vec, "pool": pool, "seed": config["seed"]}
    parts["total_steps"] = config["budget"]["steps"]
    target = section.get("_target_")
    made = resolve(target, "algo._target_") if isinstance(target, str) else None
    takes_family = isinstance(made, TakesFamily)
    if isinstance(made, KeepsFiles):
        parts["folder"] = folder
    if isinstance(recipe, Family):
        hint = "choose a single one, such as env=terrain, or algo=poet"
        require(made is None or takes_family, f"env: {type(recipe).__name__} is a family of environments; {hint}")
        return build("algo", section, family=recipe, **parts)
    hint = "choose env=terrains, env=terrains_cppn or env=poles"
    given = f"env: {env_name(config)} is one environment, and {config['algo'].get('name', target)} co-evolves a family"
    require(not takes_family, f"{given}; {hint}")
    if isinstance(made, TrainsMembers):
        section["member"] = prepare_member(section.get("member"), env=recipe, **parts)
    return build("algo", section, env=recipe, **parts)


def prepare_member(member: Any, **parts: Any) -> AlgorithmRecipe:
    """Return how to make the members of a population, from the section of a whole algorithm."""
    require(isinstance(member, Mapping), "algo.member is not a mapping; choose one, as algo@algo.member=ppo")
    settings = {key: value for key, value in member.items() if key != "name"}
    settings |= {key: NEVER for key in settings.keys() & {"eval_every_iterations", "eval_every_steps"}}
    keeps = isinstance(resolve(str(settings.get("_target_")), "algo.member._target_"), KeepsFiles)
    parts["total_steps"] = None  # populations tune learning rates themselves
    return prepare("algo.member", settings, **{name: part for name, part in parts.items() if keeps or name != "folder"})


def read_plain(composed: DictConfig) -> dict[str, Any]:
    """Return the configuration as plain data, with what belongs to no class checked."""
    try:
        missing = OmegaConf.missing_keys(composed)
        config: Any = OmegaConf.to_container(composed, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(one_line(error)) from error
    require(not missing, f"{min(missing, default='')} has no value; give one: {min(missing, default='')}=...")
    for group in {"experiment", "sweep"} & config.keys():
        remedy = f"the file that {group}= chooses has to begin with the line `# @package _global_`"
        raise ConfigError(f"{group} is not a section of the configuration; {remedy}")
    call_checked("", Configuration, config)
    return config | {"env": resolve_niche(config["env"], config["run"].get("dir"))}


def _budget(section: Any) -> Budget:
    renamed = {"return_" if name == "return" else name: value for name, value in section.items()}
    return call_checked("budget", Budget, renamed)


def _checkpoints(section: Any, path: Path) -> Checkpoints:
    def checked(every_s: float, keep: int) -> Checkpoints:
        require(every_s >= 0, f"every_s={every_s} must not be negative; 10 suits most")
        require(keep >= 1, f"keep={keep} must be at least 1")
        return Checkpoints(path / "checkpoints", keep, files=path / FILES)

    return call_checked("checkpoint", checked, section)


def _run_path(config: Mapping[str, Any]) -> tuple[Path, bool]:
    """Return the folder of a run, and whether its name was chosen here."""

    def path(root: str, name: str | float | None, dir: str | None) -> tuple[Path, bool]:
        name = "" if name is None else str(name)
        require("/" not in name, f"name={name} must not contain '/'; choose a folder with run.root=")
        require(dir != "", "run.dir= names no folder; give one, or leave it out")
        if dir is not None:
            require(not name, f"name={name} would be ignored with dir={dir}; leave out one of them")
            require("$" not in dir, f"dir={dir} has a variable that the shell did not replace; leave out its quotes")
            require(config["resume"] is None, f"dir={dir} is resumed if a run is there; leave out resume=last")
            return Path(dir), False
        if config["resume"] == "last":
            return last_path(Path(root)), False
        if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
            return Path(HydraConfig.get().runtime.output_dir), False
        short = short_name(env_name(config))
        return new_path(Path(root), name or f"{algorithm_name(config)}_{short}_seed{config['seed']}"), True

    chosen, new = call_checked("run", path, config["run"])
    return chosen.absolute(), new  # environments may change the working directory


def new_path(root: Path, name: str) -> Path:
    """Return a path under root that no run has yet: the time, then the name.

    Raises:
        FolderError: the name is too long, or root cannot be looked into.
    """
    stem = f"{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}_{name}"
    path, n = root / stem, 2
    try:
        while path.exists():
            path, n = root / f"{stem}-{n}", n + 1
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def last_path(root: Path) -> Path:
    """Return the run under root that was started last; not one that repeats another.

    Raises:
        FolderError: there is none.
    """
    runs = {path.parent: read_json(path) for path in root.glob("*/provenance.json")}
    started = {path: facts.get("started", "") for path, facts in runs.items() if "repeats" not in facts}
    if not started:
        raise FolderError(f"resume=last: there is no run in {root}; start one without resume")
    return max(started, key=lambda path: (started[path], path.stat().st_mtime))


def build_mirrors(config: Mapping[str, Any], path: Path) -> list[Mirror]:
    """Build the mirrors that a configuration names, for the run in a folder; nothing is opened."""
    identity = {"run_dir": path, "run_name": path.name, "config": config}
    return [build(f"track.{name}", section, **identity) for name, section in config["track"].items()]


def packages(config: Mapping[str, Any]) -> set[str]:
    """Return the packages that tasks import, on whatever worker they run."""
    sections = [config["algo"], config["algo"].get("member"), config["env"], config["vec"]]
    sections += config["env"].get("wrappers", ())
    paths = [section.get("_target_") for section in sections if isinstance(section, dict)]
    paths += [env_name(config).rpartition(":")[0]]
    return {"paddock", *(re.split("[.:]", path)[0] for path in paths if path)}
