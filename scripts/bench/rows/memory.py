"""The row of `learn.py` about memory: PPO with an LSTM of 64 on CartPole."""

from argparse import Namespace

from scripts.bench.contenders import contest
from scripts.bench.contenders.contest import OURS as FILE
from scripts.bench.contenders.contest import Contender
from scripts.bench.harness import Report
from scripts.bench.ppo import CLASSIC

OURS, PEER, TIMES = "paddock", "sb3-contrib", 5.0  # ours / theirs
# Four minibatches an epoch. Ours has a dense layer before its LSTM, theirs has none.
RECIPE = CLASSIC | {"num_envs": 8, "minibatch_size": 256, "lstm": 64}
GRID = [["vec=native", f"algo.threads={threads}"] for threads in (1, 2)]


def bench_memory(options: Namespace) -> Report:
    """Training steps/s, each with one thread or two, whichever is faster."""
    quick = options.quick
    contenders = [
        Contender(OURS, FILE, RECIPE, GRID[: 1 if quick else None], updates=4 if quick else 20),
        Contender(PEER, "sb3_ppo.py", RECIPE, [1] if quick else [1, 2], updates=1 if quick else 4),
    ]
    sizes = f"{RECIPE['num_envs']} x {RECIPE['num_steps']} steps, minibatches of {RECIPE['minibatch_size']}"
    title = f"CartPole-v1 with an LSTM of {RECIPE['lstm']}: {sizes}, {RECIPE['epochs']} epochs"
    row = contest.measure(title, contenders, options.repeats)
    return row | {"claims": contest.compare(row, OURS, {PEER: TIMES})}
