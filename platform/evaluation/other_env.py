"""Evaluation environments that differ from a run's training environment."""

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


def read_env(own: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the `env` section that `env=NAME` and `env.KEY=VALUE` describe.

    Keys override the run's own section unless a name is given; new keys may start with `+`.
    """
    overrides = [word.lstrip("+") for word in overrides]
    names = [word.removeprefix("env=") for word in overrides if word.startswith("env=")]
    require(len(names) <= 1, f"env={names[-1] if names else ''} is given twice; remove one")
    section = compose_sections(["env"], [f"env={names[0]}"])["env"] if names else own
    known = OmegaConf.create(dict(section), flags={"struct": True})
    if "kwargs" in known:  # may have any
        OmegaConf.set_struct(known.kwargs, False)
    for word in (word.removeprefix("env.") for word in overrides if not word.startswith("env=")):
        try:
            known.merge_with_dotlist([word])
        except (OmegaConfBaseException, yaml.YAMLError) as error:
            keys = [str(key) for key in section if key != "_target_"]
            hint = nearest(word.partition("=")[0], keys)
            raise ConfigError(f"env.{word} is not a key of this environment ({one_line(error)}); {hint}") from error
    return resolve_niche(cast(dict[str, Any], OmegaConf.to_container(known)))


def build_matching_env(algorithm: Any, section: Mapping[str, Any]) -> EnvSpec:
    """Build the environment of a section, with the spaces that an algorithm's policy expects."""
    env = build("env", section)
    require(isinstance(env, EnvSpec), "env: this option is a family of environments; choose one, such as env=terrain")
    if isinstance(algorithm, LearnsInEnv):
        env = replace(env, agent_id_feature=algorithm.env.agent_id_feature)
        require(
            algorithm.env.seats == env.seats,
            f"env: {env.id} has {env.seats} agents, but the policy was trained for {algorithm.env.seats}",
        )
        for kind in ("observations", "actions"):
            own, new = (getattr(one.roles[0] if one.seats > 1 else one, kind) for one in (algorithm.env, env))
            problem = f"env: {env.id} has {kind} {new.space}, but the policy was trained on {own.space}"
            require(own == new, f"{problem}; choose an environment with the same spaces")
    return env
