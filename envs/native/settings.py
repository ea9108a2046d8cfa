"""Lookup of an environment's native version: its task in C, the settings of the task and the time limit."""

import ctypes
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
from numpy.typing import NDArray

import paddock.envs.games
import paddock.envs.tasks  # noqa: F401, registers its environments, as those above do
from paddock.envs.errors import require
from paddock.envs.native import minigrid
from paddock.envs.native.originals import BOARDS, CONTROL, NATIVE, is_exact
from paddock.envs.registration import ELSEWHERE, VERSIONS, NativeVersion
from paddock.envs.spec import EnvSpec


@dataclass(frozen=True)
class NativeTask:
    """Native version of an environment."""

    source: EnvSpec  # the original environment
    name: str  # in C
    settings: ctypes.Structure
    kept: tuple[NDArray[Any], ...]  # arrays that the settings point to
    time_limit: int | None  # steps
    observation_space: gymnasium.Space  # of each seat if multi-agent
    action_space: gymnasium.Space  # the same for actions
    exact: bool  # whether steps are bit-identical to the environment named by the id


def native_task(spec: EnvSpec) -> NativeTask:
    """Return the native version of an environment.

    Raises:
        ConfigError: there is none, or it does not support the specification.
    """
    name = spec.id.rpartition(":")[2]
    if name.startswith(minigrid.PREFIX):
        return _grid_task(spec)
    id = NATIVE.get(name, spec.id)
    version = find_version(id)
    if version.agents:
        return _multiagent_task(spec, version)
    _check_wrappers(spec, ())
    if version.name != "walker":  # Gymnasium's keeps state between episodes unless rebuilt, the native one does not
        _check_fresh(spec)
    registered = gymnasium.spec(id.rpartition(":")[2])
    own = spec.arguments
    allowed = {*version.keywords, *registered.kwargs}
    for key in own:
        require(
            key in allowed,
            f"env.kwargs.{key}={own[key]!r}: the native version of {spec.id} does not take it; allowed: "
            f"{', '.join(sorted(allowed)) or 'none'}; remove it or {ELSEWHERE}",
        )
    source = replace(spec, id=id, max_episode_steps=None, fresh=False)
    spaces = source.spaces  # the constructor checks the arguments
    given = registered.kwargs | own
    limit = spec.max_episode_steps if spec.max_episode_steps is not None else gymnasium.spec(name).max_episode_steps
    # Gymnasium's walker keeps state between episodes; Paddock's Box2D walkers do not.
    exact = name.startswith("paddock/")
    return _make_task(source, version.name, version.settings(given), [limit], spaces, exact)


def find_version(id: str) -> NativeVersion:
    """Return the native version of an environment id, with or without its module; raise ConfigError if there is none."""
    known = {**CONTROL, **BOARDS, **VERSIONS}
    known |= {full.rpartition(":")[2]: version for full, version in known.items() if not version.agents}
    version = known.get(id) or known.get(id.rpartition(":")[2])
    having = ", ".join([*native_ids(), *game_ids()])
    require(
        version is not None,
        f"env.id={id} has no native version; available: {having}, and MiniGrid's, such as "
        "minigrid:MiniGrid-Empty-8x8-v0; choose one of them, or vec=serial or vec=multiprocess",
    )
    assert version is not None
    return version


def native_ids() -> list[str]:
    """Return the ids of environments whose native version uses SIMD."""
    return [*CONTROL]


def game_ids() -> list[str]:
    """Return the ids of Paddock's single-agent games with a native version."""
    return [id for id, version in VERSIONS.items() if not version.agents]


def _make_task(
    source: EnvSpec,
    name: str,
    settings: tuple[ctypes.Structure, tuple[NDArray[Any], ...]],
    limits: list[int | None],
    spaces: tuple[gymnasium.Space, gymnasium.Space],
    exact: bool,
) -> NativeTask:
    limit = min((steps for steps in limits if steps is not None), default=None)
    return NativeTask(source, name, *settings, limit, *spaces, exact)


def _grid_task(spec: EnvSpec) -> NativeTask:
    _check_wrappers(spec, (minigrid.CHOICES,))
    _check_fresh(spec)
    source = replace(spec, max_episode_steps=None)
    spaces = source.spaces
    settings = minigrid.grid_settings(source)
    leaves = {".".join(map(str, leaf.path)): leaf.offset for leaf in source.observations.leaves}
    require(
        leaves == minigrid.LEAVES and source.observations.itemsize == minigrid.ROW_BYTES,
        f"env.id={spec.id}: the native version observes direction and image, not {', '.join(leaves)}; set "
        f"env.without=[mission], or {ELSEWHERE}",
    )
    limits = [settings.max_steps, spec.max_episode_steps]
    # The task in C with the same number of actions.
    name = "minigrid_moves" if minigrid.MAPS[settings.map] == "DynamicObstaclesEnv" else "minigrid"
    return _make_task(source, name, (settings, ()), limits, spaces, is_exact("minigrid"))


def _multiagent_task(spec: EnvSpec, version: NativeVersion) -> NativeTask:
    _check_wrappers(spec, ())
    _check_fresh(spec)
    for key, given in (("agent_id_feature", spec.agent_id_feature), ("without", bool(spec.without))):
        require(
            not given,
            f"env.{key}: the native version of {spec.id} cannot change observations; remove it or {ELSEWHERE}",
        )
    source = replace(spec, max_episode_steps=None)
    (role,) = source.roles  # the constructor checks the arguments
    spaces = role.observation_space, role.action_space
    exact = version.original is None or is_exact(version.original)
    return _make_task(source, version.name, version.settings(spec.arguments), [spec.max_episode_steps], spaces, exact)


def _check_wrappers(spec: EnvSpec, allowed: tuple[str, ...]) -> None:
    wrappers = [dict(wrapper)["_target_"] for wrapper in spec.wrappers]
    others = [target for target in wrappers if target not in allowed]
    require(not others, f"env.wrappers={others} cannot wrap native environments; {ELSEWHERE}")


def _check_fresh(spec: EnvSpec) -> None:
    require(
        not spec.fresh,
        f"env.fresh=true: the native version of {spec.id} needs no rebuilding, as no state leaks between episodes; "
        "set env.fresh=false",
    )
