"""The row of `learn.py` about pictures, made beforehand: PPO with the convolutions of Mnih et al. 2015.

On one core, and on a GPU where there is one.
"""

from argparse import Namespace
from typing import Any

import torch

from scripts.bench.contenders import contest
from scripts.bench.contenders.contest import OURS as FILE
from scripts.bench.contenders.contest import Contender
from scripts.bench.harness import Report
from scripts.bench.ppo import CLASSIC, LOADS

TIMES = {"cuda": 2.0, "cpu": 1.0}  # ours / theirs
# As published for Pong, but for a step size that falls: experiment=ppo_atari_pong.
RECIPE = CLASSIC | {
    "env": "premade:bench/Pictures-v0",
    "num_envs": 8,
    "minibatch_size": 256,
    "clip_coef": 0.1,
    "value_clip_coef": 0.1,
    "hidden": [512],
    "activation": "relu",
    "shared": True,
    "policy": "CnnPolicy",  # SB3's name for these convolutions and 512 behind them
}
GRID: dict[str, list[Any]] = {
    "cuda": [[], ["algo.rollouts=prefetch"], ["algo.rollouts=threads", "algo.num_actors=1"]],
    "cpu": [[]],
}


def bench_pictures(options: Namespace) -> Report:
    """Training steps/s of both, on each device."""
    devices = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    short = {"num_steps": 32, "minibatch_size": 64} if options.quick else {}
    contenders = []
    for device in devices:
        recipe = RECIPE | short | {"device": device}
        updates = 1 if device == "cpu" else 4 if options.quick else 20
        contenders += [
            Contender(f"paddock, {device}", FILE, recipe, GRID[device], updates, environment=LOADS),
            Contender(f"sb3, {device}", "sb3_ppo.py", recipe, [1], updates, environment=LOADS),
        ]
    gpu = torch.cuda.get_device_name() if "cuda" in devices else "no GPU here"
    title = f"pictures of 4 x 84 x 84: {contest.describe(RECIPE | short)}; {gpu}"
    row = contest.measure(title, contenders, options.repeats)
    claims = [contest.compare(row, f"paddock, {device}", {f"sb3, {device}": TIMES[device]}) for device in devices]
    return row | {"claims": [one for each in claims for one in each]}
