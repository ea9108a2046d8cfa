"""Another environment for a policy than the one that its run learned in."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from paddock.algos.protocol import LearnsInEnv
from paddock.envs.errors import ConfigError, nearest, require
from paddock.envs.spec import EnvSpec

from ..config.build import build
from ..config.compose import compose_sections
from ..config.mistakes import one_line
from ..config.niche import resolve_niche


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
    section = compose_sections(["env"], [f"env={names[0]}"])["env"] if names else own
    known = OmegaConf.create(dict(section), flags={"struct": True})
    if "kwargs" in known:  # may have any
        OmegaConf.set_struct(known.kwargs, False)
    for word in (word.removeprefix("env.") for word in words if not word.startswith("env=")):
        try:
            known.merge_with_dotlist([word])
        except (OmegaConfBaseException, yaml.YAMLError) as error:
            keys = [str(key) for key in section if key != "_target_"]
            hint = nearest(word.partition("=")[0], keys)
            raise ConfigError(f"env.{word} sets no key of this environment ({one_line(error)}); {hint}") from error
    return resolve_niche(cast(dict[str, Any], OmegaConf.to_container(known)))


def place(algorithm: Any, section: Mapping[str, Any]) -> EnvSpec:
    """Build the environment of a section, for the policy of an algorithm.

    Raises:
        ConfigError: it cannot be built, or has other observations or actions.
    """
    env = build("env", section)
    require(isinstance(env, EnvSpec), "env: a family of environments cannot be played in; choose one, as env=terrain")
    if isinstance(algorithm, LearnsInEnv):
        env = replace(env, agent_id_feature=algorithm.env.agent_id_feature)
        require(
            algorithm.env.seats == env.seats,
            f"env: {env.id} has {env.seats} agents, and the policy was made for {algorithm.env.seats}",
        )
        for kind in ("observations", "actions"):
            own, new = (getattr(one.roles[0] if one.seats > 1 else one, kind) for one in (algorithm.env, env))
            what = f"env: {env.id} has {kind} {new.space}, and the policy was made for {own.space}"
            require(own == new, f"{what}; choose an environment of that kind")
    return env
