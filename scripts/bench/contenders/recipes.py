"""Recipes of conf/experiment as both sides of a comparison take them: by Paddock's words, which a peer translates."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from omegaconf import OmegaConf

from paddock.config.compose import compose_alone
from scripts.bench.harness import Report
from scripts.bench.peers.paddock_ppo import SAME_NAME

_REPLAY = (
    "learning_rate",
    "batch_size",
    "capacity",
    "warmup",
    "num_steps",
    "updates_per_step",
    "gamma",
    "tau",
    "hidden",
)
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ppo": (*SAME_NAME, "anneal_steps"),
        "dqn": (*_REPLAY, "target_every", "max_grad_norm", "epsilon_start", "epsilon_end", "epsilon_steps"),
        "sac": (*_REPLAY, "target_every", "alpha", "learn_alpha"),
        "td3": (*_REPLAY, "actor_every", "sigma", "target_noise", "target_noise_clip"),
    }
)
# What a peer has no word for is as it has it.
AS_THEIRS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "ppo": {"activation": "tanh"},
        "dqn": {"activation": "relu", "n_step": 1, "double": False, "dueling": False, "priority_exponent": 0.0}
        | {"huber": 1.0, "adam_epsilon": 1e-8, "anneal_steps": None, "noisy_sigma": None, "quantiles": None},
        "sac": {"activation": "relu", "n_step": 1, "critics": 2, "quantiles": None, "target_entropy": None}
        | {"adam_epsilon": 1e-8, "anneal_steps": None},
        "td3": {"activation": "relu", "n_step": 1, "critics": 2, "adam_epsilon": 1e-8, "anneal_steps": None},
    }
)


def translate(experiment: str, env: str) -> Report:
    """Return what both sides are to do.

    Args:
        env: the experiment's environment as Gymnasium names it.
    """
    config: Any = OmegaConf.to_container(compose_alone([f"experiment={experiment}"]), resolve=True)
    algo, name = config["algo"], config["algo"]["name"]
    for key, value in AS_THEIRS[name].items():
        assert algo[key] == value, f"{experiment}: {key}={algo[key]}"
    recipe = {key: algo[key] for key in NAMES[name]} | {
        "experiment": experiment,
        "env": env,
        "num_envs": config["vec"]["num_envs"],
        "steps": config["budget"]["steps"],
    }
    if name == "ppo":
        assert algo["normalize_observations"] == algo["normalize_rewards"]  # one choice of the peer's
        return recipe | {"normalize": algo["normalize_rewards"]}
    assert recipe["num_envs"] == 1
    return recipe | {"algo": name, "every": algo["eval_every"], "episodes": algo["eval_episodes"]}
