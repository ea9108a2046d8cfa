"""The row of `learn.py` about a GPU: PPO with the convolutions of Mnih et al. 2015 on pictures made beforehand."""

from argparse import Namespace

import torch

from scripts.bench.contenders import contest
from scripts.bench.contenders.contest import OURS as FILE
from scripts.bench.contenders.contest import Contender
from scripts.bench.harness import Report
from scripts.bench.ppo import CLASSIC, LOADS

OURS, CPU, PEER, TIMES = "paddock", "paddock, CPU", "sb3", 2.0  # ours / theirs
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
    "device": "cuda",
    "policy": "CnnPolicy",  # SB3's name for these convolutions and 512 behind them
}
GRID = [[], ["algo.rollouts=prefetch"], ["algo.rollouts=threads", "algo.num_actors=1"]]


def bench_pictures(options: Namespace) -> Report:
    """Training steps/s where the network learns on a GPU, and on one core beside it."""
    quick = options.quick
    title = f"pictures of 4 x 84 x 84, on a GPU: {contest.describe(RECIPE)}"
    if not torch.cuda.is_available():
        left_out = {"paddock": "torch sees no GPU here"}
        return {"title": title, "unit": "steps/s", "contenders": {}, "skipped": left_out, "claims": []}
    contenders = [
        Contender(OURS, FILE, RECIPE, GRID, updates=4 if quick else 20, environment=LOADS),
        Contender(PEER, "sb3_ppo.py", RECIPE, [1], updates=2 if quick else 8, environment=LOADS),
    ]
    if not quick:
        contenders.append(Contender(CPU, FILE, RECIPE | {"device": "cpu"}, [[]], updates=1, environment=LOADS))
    row = contest.measure(f"{title}; {torch.cuda.get_device_name()}", contenders, options.repeats)
    return row | {"claims": contest.compare(row, OURS, {PEER: TIMES})}
