"""Resume a run: restore its vectorization and state, and list what has changed since its last session."""

import logging
from dataclasses import replace
from typing import Any

from paddock.algos.protocol import DeclaresPlacement
from paddock.envs.errors import ConfigError, resolve

from ..runs.checkpoint import StateMismatch
from ..runs.folder import read_config, read_json
from ..runs.identity import changed_processors
from ..runs.loop import Progress, restore
from ..runs.provenance import changed_surroundings
from .build import build
from .command import display_path
from .experiment import FILES, Experiment, build_algorithm, packages

log = logging.getLogger(__name__)


def resolve_vec(experiment: Experiment) -> Experiment:
    """Replace `vec=auto` with the layout that an earlier session chose, or with the fastest one here."""
    from paddock.envs.vector import Auto

    vec = build("vec", experiment.config["vec"])
    if not isinstance(vec, Auto):
        return experiment
    section = _earlier_choice(experiment) if experiment.checkpoints.paths() else None
    if section is not None:
        try:
            return _with_vec(experiment, section)
        except ConfigError as error:  # the run comes from another machine; all layouts give the same results
            log.info("vec=auto: the earlier layout is unavailable (%s)", error)
    algorithm = experiment.algorithm
    on_pool = not isinstance(algorithm, DeclaresPlacement) or algorithm.plays_on_pool
    on_workers = on_pool and not experiment.pool.in_process
    return _with_vec(experiment, vec.choose(algorithm.env, on_workers, log.info))


def restore_session(experiment: Experiment) -> Progress:
    """Restore the state of the last session, if there was one."""
    try:
        return restore(experiment.algorithm, experiment.checkpoints)
    except StateMismatch as error:
        before, now = (config["vec"].get("num_envs") for config in (_read_old(experiment), experiment.config))
        if before == now:
            raise
        what = f"run.dir={display_path(experiment.path)} holds running episodes of {before} environments"
        remedy = f"use vec.num_envs={before} or another run.dir="
        raise ConfigError(f"{what}: vec.num_envs was {before} and is now {now}; {remedy}") from error


def find_changes(experiment: Experiment) -> list[str]:
    """Describe the differences from the last session that change results."""
    if not (experiment.path / "config.yaml").exists():
        return []
    old = _read_old(experiment)
    before, now = (config["vec"]["_target_"] for config in (old, experiment.config))
    other = before != now and any(_computes_differently(target, experiment) for target in (before, now))
    names = [target.rpartition(".")[2].lower() for target in (before, now)]
    vec = [f"vec was {names[0]} and is now {names[1]}, which compute differently"] if other else []
    learners = [experiment.config["algo"], experiment.config["algo"].get("member") or {}]
    encoders = {each["custom_encoder"]["_target_"].partition(".")[0] for each in learners if each.get("custom_encoder")}
    on_gpu = any(str(each.get("device")).startswith("cuda") for each in learners)
    began = read_json(experiment.path / "provenance.json")
    surroundings = changed_surroundings(began, packages(experiment.config) | encoders, on_gpu)
    totals = [config["budget"]["steps"] for config in (old, experiment.config)]
    schedules = [each.get(f"{name}_schedule") for each in learners for name in ("learning_rate", "clip")]
    extended = []
    if "linear" in schedules and totals[0] != totals[1]:
        extended = [f"budget.steps was {totals[0]} and is now {totals[1]}; linear schedules now end there"]
    return [*changed_processors(old, experiment.config), *vec, *surroundings, *extended]


def _computes_differently(target: str, experiment: Experiment) -> bool:
    """Return whether a vector environment gives other results than the environment itself."""
    from paddock.envs.native.settings import native_task  # slow to import
    from paddock.envs.vector import Auto, MuJoCo, Multiprocess, Native, Remote, Serial

    vec = resolve(target, "vec._target_")
    exact = vec in (Serial, Multiprocess, MuJoCo, Remote, Auto) or (
        vec is Native and native_task(experiment.algorithm.env).exact
    )
    return not exact


def _with_vec(experiment: Experiment, section: dict[str, Any]) -> Experiment:
    config = {**experiment.config, "vec": section}
    return replace(
        experiment, config=config, algorithm=build_algorithm(config, experiment.pool, folder=experiment.path / FILES)
    )


def _earlier_choice(experiment: Experiment) -> dict[str, Any] | None:
    if not (experiment.path / "config.yaml").exists():
        return None
    section = _read_old(experiment)["vec"]
    same = section.get("num_envs") == experiment.config["vec"]["num_envs"]
    return section if same and section["_target_"] != experiment.config["vec"]["_target_"] else None


def _read_old(experiment: Experiment) -> dict[str, Any]:
    return read_config(experiment.path, ("algo", "env", "vec"))
