"""Stable-Baselines3's PPO with a recipe of scripts/bench/learn.py.

Reads requests as JSON lines. One with "updates" asks for the speed, one with "goal" for training until episodes of the
deterministic policy reach that mean return, one with "until" for the rollouts up to that step, one with none of these
for what the policy scores after the recipe's steps. A setting is the number of torch's threads. A recipe may have its
environments in Paddock's native code.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
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
    """Paddock's native environments, Gymnasium's numbers, which tell of an episode that ended what `Monitor` tells."""

    def __init__(self, env: str, num_envs: int, seed: int) -> None:
        """Build the environments that Gymnasium makes by that name."""
        from paddock.envs.spec import EnvSpec  # optional: other recipes need no Paddock
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
        """Keep the actions: environments step when they are waited for."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Return observations, rewards, whether episodes ended, and for those that did what they ended with."""
        observations, rewards, terminated, truncated, told = self._envs.step(self._actions)
        ended = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(ended):
            episode = told["final_info"]["episode"]
            infos[index] = {
                "terminal_observation": told["final_obs"][index],
                "TimeLimit.truncated": bool(truncated[index] and not terminated[index]),
                "episode": {"r": float(episode["r"][index]), "l": int(episode["l"][index])},
            }
        return observations, rewards.astype(np.float32), ended, infos

    def close(self) -> None:
        """Free the environments."""
        self._envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute, which all environments share."""
        return [getattr(self._envs, attr_name, None)] * len(self._chosen(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: native environments have no attributes of their own."""
        raise AttributeError(f"{attr_name}: native environments have no attributes of their own")

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **named: Any) -> list[Any]:
        """Refuse: native environments have no methods of their own."""
        raise AttributeError(f"{method_name}: native environments have no methods of their own")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return False for each: nothing wraps them."""
        return [False] * len(self._chosen(indices))

    def _chosen(self, indices: Any) -> Sequence[int]:
        return list(self._get_indices(indices))


def build(recipe: dict[str, Any], setting: int, seed: int) -> Any:
    """The model that a recipe describes."""
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
        vf_coef=0.5 * recipe["value_coef"],  # of the mean squared error, where ours is of its half
        max_grad_norm=recipe["max_grad_norm"],
        seed=seed,
        device=recipe.get("device", "cpu"),
    )


def recurrent(width: int) -> tuple[Any, dict[str, Any]]:
    """PPO that remembers, of sb3-contrib: one LSTM of that width for policy and value, as in Paddock."""
    from sb3_contrib import RecurrentPPO

    memory = {"lstm_hidden_size": width, "shared_lstm": True, "enable_critic_lstm": False}
    return RecurrentPPO, {"policy": "MlpLstmPolicy", "policy_kwargs": memory | {"net_arch": []}}


def train(recipe: dict[str, Any], setting: int, updates: int, seed: int) -> dict[str, Any]:
    """One update to warm up, then `updates` that count."""
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
    """Stops training when an evaluation's mean return reaches the goal."""

    def __init__(self, recipe: dict[str, Any], goal: float, every: int, episodes: int, seed: int) -> None:
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
    """Train until the goal; `return_mean` is None where the recipe's steps did not suffice."""
    model = build(recipe, setting, seed)
    callback = Reach(recipe, goal, every, episodes, seed)
    started = time.perf_counter()
    model.learn(recipe["steps"], callback)
    return {
        "steps": model.num_timesteps,
        "seconds": time.perf_counter() - started,
        "return_mean": callback.met,
    }


class Follow(BaseCallback):
    """Keeps of every rollout what its episodes came to, and the entropy of the policy that its update made."""

    def __init__(self, until: int) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []
        self._until, self._returns = until, list[float]()

    def _on_step(self) -> bool:
        self._returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return self.num_timesteps <= self._until

    def _on_rollout_end(self) -> None:
        learned = self.model.logger.name_to_value  # by the update before
        if self.rows and "train/entropy_loss" in learned:
            self.rows[-1]["entropy"] = -float(learned["train/entropy_loss"])
        returns, self._returns = self._returns, []
        return_mean = sum(returns) / len(returns) if returns else None
        self.rows.append({"step": self.num_timesteps, "episodes": len(returns), "return_mean": return_mean})


def follow(recipe: dict[str, Any], setting: int, until: int, seed: int) -> dict[str, Any]:
    """Train until that step of the recipe's, and tell of every rollout."""
    model = build(recipe, setting, seed)
    callback = Follow(until)
    model.learn(recipe["steps"], callback, log_interval=10**9)  # whose lines would forget what an update told
    return {"version": stable_baselines3.__version__, "rows": callback.rows}


def score(recipe: dict[str, Any], setting: int, episodes: int, seed: int) -> dict[str, Any]:
    """Train for the recipe's steps, and play episodes of the deterministic policy."""
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
