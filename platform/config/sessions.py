"""Resume a run: its vectorization, its state, and what differs from its earlier sessions."""

import logging
from dataclasses import replace
from typing import Any

from paddock.algos.protocol import ChoosesPlace
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


def resolve_vec(parts: Experiment) -> Experiment:
    """Replace `vec=auto` by the layout that an earlier session chose, or by the fastest here."""
    from paddock.envs.vector import Auto

    vec = build("vec", parts.config["vec"])
    if not isinstance(vec, Auto):
        return parts
    section = _chosen_before(parts) if parts.checkpoints.paths() else None
    if section is not None:
        try:
            return _with_vec(parts, section)
        except ConfigError as error:  # the run has come from another machine; the layouts all give the same numbers
            log.info("vec=auto: not as before, for %s", error)
    algorithm = parts.algorithm
    on_pool = not isinstance(algorithm, ChoosesPlace) or algorithm.plays_on_pool
    elsewhere = on_pool and not parts.pool.in_process
    return _with_vec(parts, vec.settle(algorithm.env, elsewhere, log.info))


def resume(parts: Experiment) -> Progress:
    """Restore the state of an earlier session; see `restore`.

    Raises:
        ConfigError: that one had another number of environments, and how each of them stands belongs to the state.
    """
    try:
        return restore(parts.algorithm, parts.checkpoints)
    except StateMismatch as error:
        before, now = (config["vec"].get("num_envs") for config in (_read_old(parts), parts.config))
        if before == now:
            raise
        what = f"run.dir={display_path(parts.path)} holds a run in the midst of the episodes of {before} environments"
        remedy = "use the run's own value, or another run.dir="
        raise ConfigError(f"{what}: vec.num_envs was {before} and is now {now}; {remedy}") from error


def find_changes(parts: Experiment) -> list[str]:
    """Return what differs from an earlier session of the run and changes its numbers."""
    if not (parts.path / "config.yaml").exists():
        return []
    old = _read_old(parts)
    before, now = (config["vec"]["_target_"] for config in (old, parts.config))
    other = before != now and any(_has_own_numbers(target, parts) for target in (before, now))
    names = [target.rpartition(".")[2].lower() for target in (before, now)]
    vec = [f"vec was {names[0]} and is now {names[1]}, with arithmetic of their own"] if other else []
    learns = [parts.config["algo"], parts.config["algo"].get("member") or {}]
    encoders = {each["custom_encoder"]["_target_"].partition(".")[0] for each in learns if each.get("custom_encoder")}
    on_gpu = any(str(each.get("device")).startswith("cuda") for each in learns)
    began = read_json(parts.path / "provenance.json")
    around = changed_surroundings(began, packages(parts.config) | encoders, on_gpu)
    return [*changed_processors(old, parts.config), *vec, *around]


def _has_own_numbers(target: str, parts: Experiment) -> bool:
    """Return whether a vector environment steps otherwise than the environment itself."""
    from paddock.envs.native.settings import native_task  # late: help and errors do not wait for Gymnasium
    from paddock.envs.vector import Auto, Multiprocess, Native, Remote, Serial

    vec = resolve(target, "vec._target_")
    exact = vec in (Serial, Multiprocess, Remote, Auto) or (vec is Native and native_task(parts.algorithm.env).exact)
    return not exact


def _with_vec(parts: Experiment, section: dict[str, Any]) -> Experiment:
    config = {**parts.config, "vec": section}
    return replace(parts, config=config, algorithm=build_algorithm(config, parts.pool, folder=parts.path / FILES))


def _chosen_before(parts: Experiment) -> dict[str, Any] | None:
    if not (parts.path / "config.yaml").exists():
        return None
    section = _read_old(parts)["vec"]
    same = section.get("num_envs") == parts.config["vec"]["num_envs"]
    return section if same and section["_target_"] != parts.config["vec"]["_target_"] else None


def _read_old(parts: Experiment) -> dict[str, Any]:
    return read_config(parts.path, ("algo", "env", "vec"))
