"""The row of `learn.py` about self-play: PPO learns Connect Four, with rules in C and with PettingZoo's in Python."""

from argparse import Namespace

from scripts.bench.contenders import contest
from scripts.bench.contenders.contest import OURS as FILE
from scripts.bench.contenders.contest import Contender
from scripts.bench.harness import Report

RECIPE = {"experiment": "ppo_connect4"}  # 24 earlier versions in 60 % of games, as every user has it
SMALL = ["algo.hidden=[64,64]", "algo.shared=false"]  # layers beside which rules weigh something
OURS, PETTINGZOO, TIMES = "native", "PettingZoo's rules", 10.0  # ours / theirs


def bench_selfplay(options: Namespace) -> Report:
    """Moves learned from in a second of the processor, of one thread each: nothing but `vec` differs."""
    contenders = [
        Contender(OURS, FILE, RECIPE, [["vec=native", *SMALL]], updates=2 if options.quick else 8),
        Contender(PETTINGZOO, FILE, RECIPE, [["vec=serial", *SMALL]], updates=1),
    ]
    title = "Connect Four, experiment=ppo_connect4 with two layers of 64"
    row = contest.measure(title, contenders, options.repeats, clock="cpu_s")
    return row | {"unit": "moves/s", "claims": contest.compare(row, OURS, {PETTINGZOO: TIMES})}
