"""Play a run's policies of two roles with each other, each as it was drawn and as it learned.

    python scripts/cross_play.py RUN [EPISODES]

A role has learned if it comes to more against the same other one. Actions are drawn, as in training.
"""

import itertools
import sys
from pathlib import Path

import numpy as np

from algos.common.keys import Stream, episode_seed
from algos.learning.policy_episodes import Performance, perform
from algos.learning.seated import seat_parts
from algos.pool.serial import SerialPool
from envs.errors import require
from paddock.config.experiment import build_algorithm
from paddock.evaluation.load import load
from paddock.runs.folder import read_config


def main() -> None:
    """Print the mean return of a life of each role, for all four pairs."""
    run, episodes = Path(sys.argv[1]), int([*sys.argv, "200"][2])
    trained, _ = load(run)
    drawn = build_algorithm(read_config(run), SerialPool())
    names = trained.parts.names
    require(len(names) == 2, f"{run} has {len(names)} policies; name a run of two")
    seeds = [episode_seed(1, Stream.FRESH, 0, k) for k in range(episodes)]
    print(*(f"{name:>10}" for name in names), *(f"{'return of ' + name:>22}" for name in names))
    for pair in itertools.product((drawn, trained), repeat=2):
        weights = [algorithm.weights()[k] for k, algorithm in enumerate(pair)]
        policy = seat_parts(trained.parts, trained.env, weights)
        played = perform(Performance(trained.env, policy, 100_000, stochastic=True), seeds)
        each, whose = np.concatenate(played.lives), np.concatenate(played.seats)
        means = [each[np.isin(whose, part.seats)].mean() for part in trained.parts.each]
        print(
            *(f"{'trained' if one is trained else 'drawn':>10}" for one in pair), *(f"{mean:22.2f}" for mean in means)
        )


if __name__ == "__main__":
    main()
