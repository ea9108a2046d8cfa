"""Another environment for a policy than the one that its run learned in."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from paddock.algos.protocol import LearnsInEnv
from paddock.envs.errors import ConfigError, nearest, require
from paddock.envs.spec import EnvSpec

from .. import CONF
from ..config.build import build
from ..config.compose import compose_sections
from ..config.niche import settle_niche


def read_env(own: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return the section env that `env=NAME` and `env.KEY=VALUE` describe.

    Args:
        own: the run's, which keys change where no name is given.
        words: a key that is new may have a `+` before it, as on the command line of a run.

    Raises:
        ConfigError: there is no such option, or no such key.
    """
    words = [word.lstrip("+") for word in words]
    names = [word.removeprefix("env=") for word in words if word.startswith("env=")]
    require(len(names) <= 1, f"env={names[-1] if names else ''} is given twice; name one")
    section: dict[str, Any] = copy.deepcopy(dict(own))
    for name in names:
        try:
            section = compose_sections(["env"], [f"env={name}"])["env"]
        except ConfigError as error:
            known = [path.stem for path in (CONF / "env").glob("*.yaml")]
            raise ConfigError(f"env={name} is not an option of env; {nearest(name, known)}") from error
    for word in words:
        if not word.startswith("env="):
            _set(section, word)
    return settle_niche(section)


def place(algorithm: Any, section: Mapping[str, Any]) -> EnvSpec:
    """Build the environment of a section, for the policy of an algorithm.

    Raises:
        ConfigError: it cannot be built, or has other observations or actions.
    """
    env = build("env", section)
    require(isinstance(env, EnvSpec), "env: a family of environments cannot be played in; choose one, as env=terrain")
    if isinstance(algorithm, LearnsInEnv):
        env = replace(env, seat_feature=algorithm.env.seat_feature)
        require(
            algorithm.env.seats == env.seats,
            f"env: {env.id} has {env.seats} agents, and the policy was made for {algorithm.env.seats}",
        )
        for kind in ("observations", "actions"):
            own, new = (getattr(one.roles[0] if one.seats > 1 else one, kind) for one in (algorithm.env, env))
            what = f"env: {env.id} has {kind} {new.space}, and the policy was made for {own.space}"
            require(own == new, f"{what}; choose an environment of that kind")
    return env


def _set(section: dict[str, Any], word: str) -> None:
    path, _, text = word.partition("=")
    *parents, last = path.split(".")[1:]
    inner: Any = section
    for key in parents:
        inner = inner.get(key) if isinstance(inner, dict) else None
    known = isinstance(inner, dict) and (last in inner or parents == ["kwargs"])
    keys = [f"env.{key}" for key in section if key != "_target_"]
    require(known, f"{path} is not a key of this environment; {nearest(path, keys)}")
    try:
        inner[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{word} cannot be read; write a value as in conf/env") from error
