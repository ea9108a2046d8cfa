"""Stable-Baselines3's DQN, SAC and TD3 with a recipe of scripts/bench/replay.py, or on a task by RL-Zoo's settings.

Reads requests as JSON lines. A setting is a number of torch's threads; seconds are the processor's where it is one, and
else pass by the clock. A request with "task" trains on that task, and evaluates the deterministic policy now and then:

    echo '{"task": "cartpole", "steps": 50000, "every": 5000, "episodes": 20, "seed": 1}' | python THIS
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

AT_ONCE = 64  # updates of one call

ALGORITHMS: dict[str, Any] = {"dqn": DQN, "sac": SAC, "td3": TD3}
SMALL = {"net_arch": [64, 64], "activation_fn": torch.nn.ReLU}  # where RL-Zoo has 256-256, as our recipe
TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {  # those of conf/experiment/{dqn_cartpole,sac_pendulum}.yaml
    "cartpole": (
        "dqn",
        "CartPole-v1",
        {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1000,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            "policy_kwargs": {"net_arch": [256, 256]},
        },
    ),
    "pendulum": (
        "sac",
        "Pendulum-v1",
        {
            "learning_rate": 1e-3,
            "batch_size": 100,
            "learning_starts": 1000,
            "train_freq": 8,
            "gradient_steps": 8,
            "policy_kwargs": SMALL,
        },
    ),
}


def build(recipe: dict[str, Any], setting: int, seed: int) -> Any:
    """The model that a recipe describes; what it does not say is as SB3 has it."""
    torch.set_num_threads(setting)
    of = {name: recipe[name] for name in ("observed", "actions", "discrete")}
    return ALGORITHMS[recipe["algo"]](
        "MlpPolicy",
        gymnasium.make("blank:bench/Blank-v0", **of),
        buffer_size=recipe["rows"],
        batch_size=recipe["batch_size"],
        learning_starts=recipe["rows"],
        policy_kwargs={"net_arch": recipe["hidden"], "activation_fn": torch.nn.ReLU},
        seed=seed,
        device="cpu",
    )


def train(recipe: dict[str, Any], setting: int, updates: int, seed: int) -> dict[str, Any]:
    """Fill the replay, warm up, then make `updates` that count, in whole calls."""
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
    """Plays some episodes every so often, and ends training at a goal."""

    def __init__(self, env: str, every: int, episodes: int, goal: float | None) -> None:
        super().__init__()
        self.found: list[dict[str, float]] = []
        self._env, self._every, self._episodes, self._goal = gymnasium.make(env), every, episodes, goal

    def _on_step(self) -> bool:
        if self._every and self.num_timesteps % self._every == 0:
            self.evaluate()
            return self._goal is None or self.found[-1]["eval/return_mean"] < self._goal
        return True

    def evaluate(self) -> None:
        """Play with what is learned so far."""
        given: Any = evaluate_policy(self.model, self._env, self._episodes, warn=False)
        self.found.append({"step": self.num_timesteps, "eval/return_mean": float(given[0])})


def run(task: str, steps: int, every: int, episodes: int, seed: int, goal: float | None = None) -> dict[str, Any]:
    """Train on a task, on one thread.

    Args:
        every: steps between evaluations of so many episodes; 0: there are none, not even at the end.
        goal: a mean return with which training ends.
    """
    torch.set_num_threads(1)
    algorithm, env, settings = TASKS[task]
    model = ALGORITHMS[algorithm]("MlpPolicy", env, **settings, seed=seed, device="cpu")
    callback, started = Evaluate(env, every, episodes, goal), time.process_time()
    callback.init_callback(model)
    model.learn(steps, callback)
    seconds = time.process_time() - started
    if every and callback.found[-1]["step"] < model.num_timesteps:
        callback.evaluate()
    return {"steps": model.num_timesteps, "seconds": seconds, "evaluations": callback.found}


def save(observed: int, rows: int) -> dict[str, Any]:
    """Save a replay of so many transitions, as SB3 saves it: seconds that pass, and bytes."""
    recipe = {"algo": "dqn", "observed": observed, "actions": 2, "discrete": True, "hidden": [8], "batch_size": 64}
    model = build(recipe | {"rows": rows}, 1, 0)
    with TemporaryDirectory() as folder:
        path, started = Path(folder) / "replay.pkl", time.perf_counter()
        model.save_replay_buffer(path)
        seconds = time.perf_counter() - started
        return {"steps": 1, "seconds": seconds, "bytes": path.stat().st_size}


MADE: dict[str, Callable[..., dict[str, Any]]] = {"task": run, "observed": save}  # by their own keys


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        made = next((MADE[name] for name in MADE if name in request), train)
        print(json.dumps(made(**request)), flush=True)
