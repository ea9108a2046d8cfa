"""Stable-Baselines3's DQN, SAC and TD3 with a recipe of scripts/bench/replay.py or of conf/experiment.

Requests are JSON lines. A setting is the number of torch threads; seconds are processor time with one thread, otherwise
wall time. Requests with "every" and "last_episodes" train by an experiment's recipe with periodic evaluations.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise

AT_ONCE = 64  # updates per call

ALGORITHMS: dict[str, Any] = {"dqn": DQN, "sac": SAC, "td3": TD3}


def build(recipe: dict[str, Any], setting: int, seed: int) -> Any:
    """Build the model of a recipe, with SB3's defaults."""
    torch.set_num_threads(setting)
    kwargs = {name: recipe[name] for name in ("observed", "actions", "discrete")}
    return ALGORITHMS[recipe["algo"]](
        "MlpPolicy",
        gymnasium.make("blank:bench/Blank-v0", **kwargs),
        buffer_size=recipe["rows"],
        batch_size=recipe["batch_size"],
        learning_starts=recipe["rows"],
        policy_kwargs={"net_arch": recipe["hidden_sizes"], "activation_fn": torch.nn.ReLU},
        seed=seed,
        device="cpu",
    )


def train(recipe: dict[str, Any], setting: int, updates: int, seed: int) -> dict[str, Any]:
    """Fill the replay, warm up, and time `updates` in whole calls."""
    model = build(recipe, setting, seed)
    model.learn(recipe["rows"])  # random actions
    size = min(updates, AT_ONCE)
    model.train(size, recipe["batch_size"])
    clock = time.process_time if setting == 1 else time.perf_counter
    started = clock()
    for _ in range(updates // size):
        model.train(size, recipe["batch_size"])
    return {"steps": updates // size * size, "seconds": clock() - started}


class Evaluate(BaseCallback):
    """Callback that evaluates periodically, and stops training at a goal."""

    def __init__(self, env: str, every: int, episodes: int, goal: float | None) -> None:
        """Create the evaluation environment."""
        super().__init__()
        self.found: list[dict[str, float]] = []
        self._env, self._every, self._episodes, self._goal = gymnasium.make(env), every, episodes, goal

    def _on_step(self) -> bool:
        if self._every and self.num_timesteps % self._every == 0:
            self.evaluate()
            return self._goal is None or self.found[-1]["eval/return_mean"] < self._goal
        return True

    def evaluate(self) -> None:
        """Evaluate the current policy."""
        given: Any = evaluate_policy(self.model, self._env, self._episodes, warn=False)
        self.found.append({"step": self.num_timesteps, "eval/return_mean": float(given[0])})


def settings(recipe: dict[str, Any]) -> dict[str, Any]:
    """Translate a recipe with Paddock's names (contenders/recipes.py) to SB3's arguments."""
    given = {
        "learning_rate": recipe["learning_rate"],
        "batch_size": recipe["batch_size"],
        "buffer_size": recipe["buffer_size"],
        "learning_starts": recipe["learning_starts"],
        "train_freq": recipe["num_steps"],
        "gradient_steps": round(recipe["num_steps"] * recipe["updates_per_step"]),
        "gamma": recipe["gamma"],
        "tau": recipe["tau"],
        "policy_kwargs": {"net_arch": recipe["hidden_sizes"], "activation_fn": torch.nn.ReLU},
    }
    if recipe["algo"] == "dqn":
        return given | {
            "target_update_interval": round(recipe["target_every"] / recipe["updates_per_step"]),  # in steps
            "max_grad_norm": recipe["max_grad_norm"],
            "exploration_initial_eps": recipe["epsilon_start"],
            "exploration_final_eps": recipe["epsilon_end"],
            "exploration_fraction": recipe["epsilon_steps"] / recipe["steps"],
        }
    if recipe["algo"] == "sac":
        alpha = recipe["alpha"]
        return given | {
            "target_update_interval": recipe["target_every"],
            "ent_coef": f"auto_{alpha}" if recipe["learn_alpha"] else alpha,
        }
    return given | {
        "policy_delay": recipe["actor_every"],
        "action_noise": NormalActionNoise(np.zeros(1), np.full(1, recipe["sigma"])),  # of actions in [-1, 1]
        "target_policy_noise": recipe["target_noise"],
        "target_noise_clip": recipe["target_noise_clip"],
    }


def run(
    recipe: dict[str, Any], steps: int, every: int, episodes: int, seed: int, goal: float | None = None
) -> dict[str, Any]:
    """Train by a recipe on one thread, until a mean return of `goal`; evaluate every `every` steps, or never if 0."""
    return learn(recipe, steps, every, episodes, seed, goal)[1]


def score(recipe: dict[str, Any], last_episodes: int, seed: int) -> dict[str, Any]:
    """Train by a complete recipe, and evaluate the last policy."""
    model, results = learn(recipe, recipe["steps"], recipe["every"], recipe["episodes"], seed, None)
    given: Any = evaluate_policy(model, gymnasium.make(recipe["env"]), last_episodes, warn=False)
    return results | {"return_mean": float(given[0]), "version": stable_baselines3.__version__}


def learn(
    recipe: dict[str, Any], steps: int, every: int, episodes: int, seed: int, goal: float | None
) -> tuple[Any, dict[str, Any]]:
    """Train as `run` does, and return the model and the results."""
    torch.set_num_threads(1)
    env = recipe["env"]
    model = ALGORITHMS[recipe["algo"]]("MlpPolicy", env, **settings(recipe), seed=seed, device="cpu")
    callback, started = Evaluate(env, every, episodes, goal), time.process_time()
    callback.init_callback(model)
    model.learn(steps, callback)
    seconds = time.process_time() - started
    if every and model.num_timesteps % every:
        callback.evaluate()
    return model, {"steps": model.num_timesteps, "seconds": seconds, "evaluations": callback.found}


def save(observed: int, rows: int) -> dict[str, Any]:
    """Save a replay buffer of `rows` transitions; return seconds and bytes."""
    recipe = {
        "algo": "dqn",
        "observed": observed,
        "actions": 2,
        "discrete": True,
        "hidden_sizes": [8],
        "batch_size": 64,
    }
    model = build(recipe | {"rows": rows}, 1, 0)
    with TemporaryDirectory() as folder:
        path, started = Path(folder) / "replay.pkl", time.perf_counter()
        model.save_replay_buffer(path)
        seconds = time.perf_counter() - started
        return {"steps": 1, "seconds": seconds, "bytes": path.stat().st_size}


ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {"every": run, "last_episodes": score, "observed": save}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        answer = next((ANSWERS[name] for name in ANSWERS if name in request), train)
        print(json.dumps(answer(**request)), flush=True)
