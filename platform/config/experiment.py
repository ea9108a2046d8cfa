"""Check a composed configuration and build its experiment."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from paddock.algos.common.recipe import AlgorithmRecipe
from paddock.algos.pool.lazy import LazyPool
from paddock.algos.protocol import KeepsFiles, TakesFamily, TrainsMembers
from paddock.envs.errors import ConfigError, require, resolve

from ..runs.checkpoint import Checkpoints
from ..runs.folder import FolderError, check_usable, free_path, read_json, unwritable
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
FILES = "replay"  # folder in a run's folder for files of the algorithm
NEVER = 10**9  # every round of a population ends with an evaluation of each member


@dataclass(frozen=True)
class Configuration:
    """Top-level keys of every configuration and their types."""

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
    resume: Any
    dry_run: bool

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, f"seed={self.seed} must be in [0, 2^63)")
        what = "resume takes 'last' or null; to resume a specific run use run.dir=RUN"
        require(self.resume in ("last", None), what)
        name = self.algo.get("name")  # becomes part of a folder name
        usable = name is None or isinstance(name, int | float) or (isinstance(name, str) and "/" not in name)
        require(usable, f"algo.name={name!r} must be a string without '/', a number, or null")


@dataclass(frozen=True)
class Experiment:
    """Checked configuration and the objects built from it; nothing has been written or started."""

    config: dict[str, Any]
    budget: Budget
    pool: LazyPool
    algorithm: Any
    path: Path
    checkpoints: Checkpoints
    mirrors: list[Mirror]
    new: bool = False  # the path was generated, and must not exist yet
    niche: dict[str, Any] | None = None  # run and number of the POET niche used as environment


def assemble(composed: DictConfig) -> Experiment:
    """Check a configuration and build its experiment; nothing is written or started."""
    config = read_plain(composed)
    budget = _budget(config["budget"])
    pool = LazyPool(build("compute", config["compute"]))
    path, new = _run_path(config)
    with early_warnings():  # such as waiting for an environment server
        algorithm = build_algorithm(config, pool, folder=path / FILES)
    checkpoints = _checkpoints(config["checkpoint"], path)
    mirrors = build_mirrors(config, path)
    check_usable(path, config, new=new)
    env: Any = OmegaConf.to_container(composed.env, resolve=True)
    return Experiment(config, budget, pool, algorithm, path, checkpoints, mirrors, new, name_niche(env))


def build_algorithm(
    config: Mapping[str, Any], pool: Any, vec: "Vec | None" = None, *, folder: Path | None = None
) -> Any:
    """Build the algorithm of a configuration on a pool; `vec` replaces the configured one.

    `folder` is for files of a replay buffer; None for evaluation only.
    """
    from paddock.envs.family import Family  # slow to import

    recipe = build("env", config["env"])
    vec = vec or build("vec", config["vec"])
    section = {key: value for key, value in config["algo"].items() if key != "name"}
    arguments: dict[str, Any] = {"vec": vec, "pool": pool, "seed": config["seed"]}
    arguments["total_steps"] = config["budget"]["steps"]
    target = section.get("_target_")
    algorithm = resolve(target, "algo._target_") if isinstance(target, str) else None
    takes_family = isinstance(algorithm, TakesFamily)
    if isinstance(algorithm, KeepsFiles):
        arguments["folder"] = folder
    if isinstance(recipe, Family):
        hint = "choose a single one, such as env=terrain, or algo=poet"
        require(algorithm is None or takes_family, f"env: {type(recipe).__name__} is a family of environments; {hint}")
        return build("algo", section, family=recipe, **arguments)
    hint = "choose env=terrains, env=terrains_cppn or env=poles"
    given = (
        f"{config['algo'].get('name', target)} needs a family of environments; env: {env_name(config)} is a single one"
    )
    require(not takes_family, f"{given}; {hint}")
    if isinstance(algorithm, TrainsMembers):
        section["member"] = prepare_member(section.get("member"), env=recipe, **arguments)
    return build("algo", section, env=recipe, **arguments)


def prepare_member(member: Any, **arguments: Any) -> AlgorithmRecipe:
    """Return the recipe of a population's members from an algorithm's section."""
    require(isinstance(member, Mapping), "algo.member is not a mapping; choose an algorithm: algo@algo.member=ppo")
    settings = {key: value for key, value in member.items() if key != "name"}
    settings |= {key: NEVER for key in settings.keys() & {"eval_every_iterations", "eval_every_steps"}}
    keeps = isinstance(resolve(str(settings.get("_target_")), "algo.member._target_"), KeepsFiles)
    arguments["total_steps"] = None  # populations tune learning rates themselves
    passed = {name: value for name, value in arguments.items() if keeps or name != "folder"}
    return prepare("algo.member", settings, **passed)


def read_plain(composed: DictConfig) -> dict[str, Any]:
    """Return the configuration as plain data, after checking its top-level keys."""
    try:
        missing = OmegaConf.missing_keys(composed)
        config: Any = OmegaConf.to_container(composed, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(one_line(error)) from error
    require(not missing, f"{min(missing, default='')} has no value; set {min(missing, default='')}=...")
    for group in {"experiment", "sweep"} & config.keys():
        remedy = f"start the file that {group}= selects with the line `# @package _global_`"
        raise ConfigError(f"{group} is not a section of the configuration; {remedy}")
    call_checked("", Configuration, config)
    return config | {"env": resolve_niche(config["env"], config["run"].get("dir"))}


def _budget(section: Any) -> Budget:
    renamed = {"return_" if name == "return" else name: value for name, value in section.items()}
    return call_checked("budget", Budget, renamed)


def _checkpoints(section: Any, path: Path) -> Checkpoints:
    def checked(every_s: float, keep: int) -> Checkpoints:
        require(every_s >= 0, f"every_s={every_s} must be at least 0; the default is 10")
        require(keep >= 1, f"keep={keep} must be at least 1")
        return Checkpoints(path / "checkpoints", keep, files=path / FILES)

    return call_checked("checkpoint", checked, section)


def _run_path(config: Mapping[str, Any]) -> tuple[Path, bool]:
    """Return the folder of a run, and whether its name was generated."""

    def path(root: str, name: str | float | None, dir: str | None) -> tuple[Path, bool]:
        name = "" if name is None else str(name)
        require("/" not in name, f"name={name} must not contain '/'; set the parent folder with run.root=")
        require(dir != "", "run.dir= is empty; set a folder or remove it")
        if dir is not None:
            require(not name, f"name={name} would be ignored with run.dir={dir}; remove one of them")
            require("$" not in dir, f"dir={dir} contains an unexpanded shell variable; remove the single quotes")
            require(config["resume"] is None, f"dir={dir} already resumes an existing run; remove resume=last")
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
    """Return an unused path under root, named by the time and the name."""
    try:
        return free_path(root / f"{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}_{name}")
    except OSError as error:
        raise unwritable(root, error) from error


def last_path(root: Path) -> Path:
    """Return the run under root that was started last, except repetitions by `paddock.rerun`."""
    runs = {path.parent: read_json(path) for path in root.glob("*/provenance.json")}
    started = {path: facts.get("started", "") for path, facts in runs.items() if "repeats" not in facts}
    if not started:
        raise FolderError(f"resume=last: no run in {root}; start one without resume")
    return max(started, key=lambda path: (started[path], path.stat().st_mtime))


def build_mirrors(config: Mapping[str, Any], path: Path) -> list[Mirror]:
    """Build the mirrors that a configuration names, without opening them."""
    identity = {"run_dir": path, "run_name": path.name, "config": config}
    return [build(f"track.{name}", section, **identity) for name, section in config["track"].items()]


def packages(config: Mapping[str, Any]) -> set[str]:
    """Return the packages that workers need to import."""
    sections = [
        config["algo"],
        config["algo"].get("member"),
        config["algo"].get("strategy"),
        config["env"],
        config["vec"],
    ]
    sections += config["env"].get("wrappers", ())
    paths = [section.get("_target_") for section in sections if isinstance(section, dict)]
    paths += [env_name(config).rpartition(":")[0]]
    return {"paddock", *(re.split("[.:]", path)[0] for path in paths if path)}
