"""Recipes of comparisons, with Paddock's names: published settings and those of conf/experiment."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from omegaconf import OmegaConf

from paddock.config.compose import compose_alone
from scripts.bench.harness import Report
from scripts.bench.peers.paddock_ppo import SAME_NAME

BIPEDAL = "paddock.envs.bipedal:paddock/BipedalWalker-v3"  # Gymnasium's walker in native code
CLASSIC: Report = {  # CleanRL's ppo.py
    "env": "CartPole-v1",
    "num_envs": 4,
    "num_steps": 128,
    "minibatch_size": 128,
    "epochs": 4,
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_coef": 0.2,
    "value_clip_coef": 0.2,
    "entropy_coef": 0.01,
    "value_coef": 0.5,
    "max_grad_norm": 0.5,
    "normalize": False,
}
WALKER: Report = CLASSIC | {  # RL-Zoo's
    "env": "BipedalWalker-v3",
    "num_envs": 32,
    "num_steps": 256,  # instead of 2,048: shorter updates with the same work per step
    "minibatch_size": 64,
    "epochs": 10,
    "learning_rate": 3e-4,
    "gamma": 0.999,
    "clip_coef": 0.18,
    "value_clip_coef": None,
    "entropy_coef": 0.0,
    "normalize": True,
}
CARTPOLE: Report = CLASSIC | {  # reaches 475 on 20 of 20 seeds within a million steps
    "num_envs": 256,
    "num_steps": 64,
    "minibatch_size": 4096,
    "epochs": 1,
    "hidden_sizes": [32, 32],  # PufferLib's network is one layer of 128, with fewer parameters
    "learning_rate": 5e-3,
    "gamma": 0.98,
    "value_clip_coef": None,
    "entropy_coef": 0.0,
    "learning_rate_schedule": "linear",
    "steps": 1_000_000,
}
PUFFER: Report = {"env": "puffer_cartpole", "num_steps": 64, "minibatch_size": 32_768, "epochs": 1}  # its cartpole.ini
PICTURES: Report = CLASSIC | {  # as published for Pong, without learning-rate decay
    "env": "premade:bench/Pictures-v0",
    "num_envs": 8,
    "minibatch_size": 256,
    "clip_coef": 0.1,
    "value_clip_coef": 0.1,
    "hidden_sizes": [512],
    "activation": "relu",
    "shared": True,
    "policy": "CnnPolicy",  # SB3's name for these convolutions followed by 512 units
}
_REPLAY = (
    "learning_rate",
    "batch_size",
    "buffer_size",
    "learning_starts",
    "num_steps",
    "updates_per_step",
    "gamma",
    "tau",
    "hidden_sizes",
)
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ppo": (*SAME_NAME, "learning_rate_schedule"),
        "dqn": (*_REPLAY, "target_every", "max_grad_norm", "epsilon_start", "epsilon_end", "epsilon_steps"),
        "sac": (*_REPLAY, "target_every", "alpha", "learn_alpha"),
        "td3": (*_REPLAY, "actor_every", "sigma", "target_noise", "target_noise_clip"),
    }
)
# Settings that peers cannot change.
_FIXED = {"activation": None, "n_step": 1, "adam_epsilon": 1e-8, "learning_rate_schedule": "constant"}
_PLAIN_DQN = {"double": False, "dueling": False, "priority_exponent": 0.0, "noisy_sigma": None, "quantiles": None}
FIXED: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "ppo": {"activation": None},
        "dqn": _FIXED | _PLAIN_DQN | {"huber": 1.0},
        "sac": _FIXED | {"num_critics": 2, "quantiles": None, "target_entropy": None},
        "td3": _FIXED | {"num_critics": 2},
    }
)


def translate(experiment: str, env: str) -> Report:
    """Return an experiment's recipe for both sides; `env` is Gymnasium's name of its environment."""
    config: Any = OmegaConf.to_container(compose_alone([f"experiment={experiment}"]), resolve=True)
    algo, name = config["algo"], config["algo"]["name"]
    for key, value in FIXED[name].items():
        assert algo[key] == value, f"{experiment}: {key}={algo[key]}"
    recipe = {key: algo[key] for key in NAMES[name]} | {
        "experiment": experiment,
        "env": env,
        "num_envs": config["vec"]["num_envs"],
        "steps": config["budget"]["steps"],
    }
    if name == "ppo":
        assert algo["normalize_observations"] == algo["normalize_rewards"]  # the peer has one setting for both
        return recipe | {"normalize": algo["normalize_rewards"]}
    assert recipe["num_envs"] == 1
    return recipe | {"algo": name, "every": algo["eval_every_steps"], "episodes": algo["eval_episodes"]}
