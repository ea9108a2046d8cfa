"""Stable-Baselines3's DQN, SAC and TD3 with a recipe of scripts/bench/replay.py.

Reads requests as JSON lines. A setting is a number of torch's threads.
"""

import json
import sys
import time
from typing import Any

import gymnasium
import torch
from stable_baselines3 import DQN, SAC, TD3

AT_ONCE = 64  # updates of one call

ALGORITHMS: dict[str, Any] = {"dqn": DQN, "sac": SAC, "td3": TD3}


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
    started = time.perf_counter()
    for _ in range(updates // size):
        model.train(size, recipe["batch_size"])
    return {"steps": updates // size * size, "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(train(**json.loads(line))), flush=True)
