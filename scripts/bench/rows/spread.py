"""The row of `learn.py` about particle worlds: PPO covers landmarks, whose rules are in C, Python, or mpe2's Python."""

from argparse import Namespace

from scripts.bench.contenders import contest
from scripts.bench.contenders.contest import OURS as FILE
from scripts.bench.contenders.contest import Contender
from scripts.bench.harness import Report

RECIPE = {"experiment": "ppo_spread"}
OURS, PYTHON, MPE2, TIMES = "native", "the same in Python", "mpe2", 10.0  # ours / theirs


def bench_spread(options: Namespace) -> Report:
    """Actions learned from in a second of the processor, of one thread each: nothing but the worlds differs."""
    contenders = [
        Contender(OURS, FILE, RECIPE, [["vec=native"]], updates=2 if options.quick else 8),
        Contender(PYTHON, FILE, RECIPE, [["vec=serial"]], updates=2),
        Contender(MPE2, FILE, RECIPE, [["env=mpe_spread", "vec=serial"]], updates=1),
    ]
    row = contest.measure("simple spread, experiment=ppo_spread", contenders, options.repeats, clock="cpu_s")
    return row | {"unit": "actions/s", "claims": contest.compare(row, OURS, {MPE2: TIMES})}
