"""Stable-Baselines3's PPO with a recipe of scripts/bench/learn.py.

Requests are JSON lines. "updates" measures the speed, "goal" trains until the deterministic policy reaches that mean
return, "until" returns the rollouts up to that step, and other requests return the score after the recipe's steps. A
setting is the number of torch threads. A recipe may use Paddock's native environments.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize


class NativeVecEnv(VecEnv):
    """Paddock's native environments as an SB3 vector environment, with the episode infos of `Monitor`."""

    def __init__(self, env: str, num_envs: int, seed: int) -> None:
        """Create the environments by their Gymnasium name."""
        from paddock.envs.spec import EnvSpec  # other recipes do not need Paddock
        from paddock.envs.vector import Native

        vec = Native(num_envs=num_envs, threads=1)
        self._envs = vec.make(EnvSpec(id=env, kwargs={}, wrappers=(), max_episode_steps=None, fresh=False))
        self._first: int | None = seed  # of environment 0 in its first episode
        self._actions: Any = None
        super().__init__(num_envs, self._envs.single_observation_space, self._envs.single_action_space)

    def reset(self) -> Any:
        """Start an episode in every environment."""
        observations, _ = self._envs.reset(seed=self._first)
        self._first = None
        return observations

    def step_async(self, actions: Any) -> None:
        """Store the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Return observations, rewards, dones and infos."""
        observations, rewards, terminated, truncated, batched = self._envs.step(self._actions)
        ended = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(ended):
            episode = batched["final_info"]["episode"]
            infos[index] = {
                "terminal_observation": batched["final_obs"][index],
                "TimeLimit.truncated": bool(truncated[index] and not terminated[index]),
                "episode": {"r": float(episode["r"][index]), "l": int(episode["l"][index])},
            }
        return observations, rewards.astype(np.float32), ended, infos

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return a common attribute for each environment."""
        return [getattr(self._envs, attr_name, None)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raise AttributeError, since native environments have no individual attributes."""
        raise AttributeError(f"{attr_name}: native environments have no individual attributes")

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **named: Any) -> list[Any]:
        """Raise AttributeError, since native environments have no individual methods."""
        raise AttributeError(f"{method_name}: native environments have no individual methods")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return False for each environment."""
        return [False] * len(list(self._get_indices(indices)))


def build(recipe: dict[str, Any], setting: int, seed: int) -> Any:
    """Build the model of a recipe."""
    torch.set_num_threads(setting)
    if recipe.get("native"):
        envs: Any = NativeVecEnv(recipe["native"], recipe["num_envs"], seed)
    else:
        envs = make_vec_env(recipe["env"], recipe["num_envs"], seed=seed, vec_env_cls=DummyVecEnv)
    if recipe["normalize"]:
        envs = VecNormalize(envs, gamma=recipe["gamma"])
    rate, clip, falls = recipe["learning_rate"], recipe["clip_coef"], recipe.get("learning_rate_schedule") == "linear"
    kind: Any = PPO
    network: dict[str, Any] = {"policy": recipe.get("policy", "MlpPolicy")}
    if "lstm" in recipe:
        kind, network = recurrent(recipe["lstm"])
    return kind(
        env=envs,
        **network,
        learning_rate=(lambda left: left * rate) if falls else rate,
        clip_range=(lambda left: left * clip) if falls else clip,
        clip_range_vf=recipe["value_clip_coef"],
        n_steps=recipe["num_steps"],
        batch_size=recipe["minibatch_size"],
        n_epochs=recipe["epochs"],
        gamma=recipe["gamma"],
        gae_lambda=recipe["gae_lambda"],
        ent_coef=recipe["entropy_coef"],
        vf_coef=0.5 * recipe["value_coef"],  # of the mean squared error; ours is of half of it
        max_grad_norm=recipe["max_grad_norm"],
        seed=seed,
        device=recipe.get("device", "cpu"),
    )


def recurrent(width: int) -> tuple[Any, dict[str, Any]]:
    """Return sb3-contrib's RecurrentPPO with one LSTM for policy and value, as in Paddock."""
    from sb3_contrib import RecurrentPPO

    memory = {"lstm_hidden_size": width, "shared_lstm": True, "enable_critic_lstm": False}
    return RecurrentPPO, {"policy": "MlpLstmPolicy", "policy_kwargs": memory | {"net_arch": []}}


def train(recipe: dict[str, Any], setting: int, updates: int, seed: int) -> dict[str, Any]:
    """Measure `updates` after one update to warm up."""
    model = build(recipe, setting, seed)
    batch = recipe["num_envs"] * recipe["num_steps"]
    model.learn(batch)
    started = time.perf_counter()
    model.learn(updates * batch, reset_num_timesteps=False)
    seconds = time.perf_counter() - started
    assert model.num_timesteps == (updates + 1) * batch
    returns = [episode["r"] for episode in model.ep_info_buffer or ()]
    model.env.close()
    return_mean = sum(returns) / len(returns) if returns else None
    return {"steps": updates * batch, "seconds": seconds, "return_mean": return_mean}


class Reach(BaseCallback):
    """Callback that stops training when an evaluation's mean return reaches the goal."""

    def __init__(self, recipe: dict[str, Any], goal: float, every: int, episodes: int, seed: int) -> None:
        """Create the evaluation environments."""
        super().__init__()
        self.met: float | None = None
        self._goal, self._every, self._episodes = goal, every, episodes
        self._envs = make_vec_env(recipe["env"], recipe["num_envs"], seed=seed + 1000)

    def _on_step(self) -> bool:
        if self.num_timesteps % self._every == 0:
            evaluated: Any = evaluate_policy(self.model, self._envs, self._episodes)
            self.met = float(evaluated[0]) if evaluated[0] >= self._goal else None
        return self.met is None


def reach(recipe: dict[str, Any], setting: int, goal: float, every: int, episodes: int, seed: int) -> dict[str, Any]:
    """Train until the goal; `return_mean` is None if the recipe's steps do not suffice."""
    model = build(recipe, setting, seed)
    callback = Reach(recipe, goal, every, episodes, seed)
    started = time.perf_counter()
    model.learn(recipe["steps"], callback)
    return {"steps": model.num_timesteps, "seconds": time.perf_counter() - started, "return_mean": callback.met}


class Follow(BaseCallback):
    """Callback that records each rollout's mean return and the policy's entropy after its update."""

    def __init__(self, until: int) -> None:
        """Record until a step."""
        super().__init__()
        self.rows: list[dict[str, Any]] = []
        self._until, self._returns = until, list[float]()

    def _on_step(self) -> bool:
        self._returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return self.num_timesteps <= self._until

    def _on_rollout_end(self) -> None:
        learned = self.model.logger.name_to_value  # by the previous update
        if self.rows and "train/entropy_loss" in learned:
            self.rows[-1]["entropy"] = -float(learned["train/entropy_loss"])
        returns, self._returns = self._returns, []
        return_mean = sum(returns) / len(returns) if returns else None
        self.rows.append({"step": self.num_timesteps, "episodes": len(returns), "return_mean": return_mean})


def follow(recipe: dict[str, Any], setting: int, until: int, seed: int) -> dict[str, Any]:
    """Train until that step of the recipe, and return the record of every rollout."""
    model = build(recipe, setting, seed)
    callback = Follow(until)
    model.learn(recipe["steps"], callback, log_interval=10**9)  # logging would clear the values of an update
    return {"version": stable_baselines3.__version__, "rows": callback.rows}


def score(recipe: dict[str, Any], setting: int, episodes: int, seed: int) -> dict[str, Any]:
    """Train for the recipe's steps, and evaluate the deterministic policy."""
    model = build(recipe, setting, seed)
    model.learn(recipe["steps"])
    envs: Any = make_vec_env(recipe["env"], recipe["num_envs"], seed=seed + 1000, vec_env_cls=DummyVecEnv)
    if recipe["normalize"]:
        envs = VecNormalize(envs, training=False, norm_reward=False)
        envs.obs_rms = model.get_env().obs_rms
    evaluated: Any = evaluate_policy(model, envs, episodes, return_episode_rewards=True)
    returns, _ = evaluated
    mean, version = sum(returns) / len(returns), stable_baselines3.__version__
    return {"steps": model.num_timesteps, "return_mean": mean, "version": version}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        ways: dict[str, Callable[..., dict[str, Any]]] = {"goal": reach, "updates": train, "until": follow}
        answer = next((way for name, way in ways.items() if name in request), score)
        print(json.dumps(answer(**request)), flush=True)
