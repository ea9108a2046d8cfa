"""Evaluate all pairs of the initial and trained policies of a run with two roles.

    python scripts/cross_play.py RUN [EPISODES]

A role has learned if its return against the same opponent is higher. Actions are sampled, as in training.
"""

import argparse
import itertools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

import numpy as np  # noqa: E402

from paddock.algos.common.keys import Stream, episode_seed  # noqa: E402
from paddock.algos.learning.policy_episodes import EvaluationSpec, evaluate_policy  # noqa: E402
from paddock.algos.multiagent.joint_policy import make_joint_policy  # noqa: E402
from paddock.algos.pool.serial import SerialPool  # noqa: E402
from paddock.config.experiment import build_algorithm  # noqa: E402
from paddock.envs.errors import require  # noqa: E402
from paddock.evaluation.load import load  # noqa: E402
from paddock.runs.folder import read_config  # noqa: E402
from scripts.bench.harness import positive_int, run_script  # noqa: E402


def main() -> None:
    """Print the mean return of each role for all four pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run with two policies")
    parser.add_argument("episodes", nargs="?", type=positive_int, default=200, metavar="EPISODES", help="(200)")
    options = parser.parse_args()
    run, episodes = options.run, options.episodes
    trained, _ = load(run)
    initial = build_algorithm(read_config(run), SerialPool())
    names = trained.policy_group.names
    require(len(names) == 2, f"{run} has {len(names)} policies; choose a run with two")
    seeds = [episode_seed(1, Stream.FRESH, 0, k) for k in range(episodes)]
    print(*(f"{name:>10}" for name in names), *(f"{'return of ' + name:>22}" for name in names))
    for pair in itertools.product((initial, trained), repeat=2):
        weights = [algorithm.weights()[k] for k, algorithm in enumerate(pair)]
        policy = make_joint_policy(trained.policy_group, trained.env, weights)
        played = evaluate_policy(EvaluationSpec(trained.env, policy, 100_000, stochastic=True), seeds)
        each, seats = np.concatenate(played.lives), np.concatenate(played.rows)
        means = [each[np.isin(seats, spec.seats)].mean() for spec in trained.policy_group.specs]
        print(
            *(f"{'trained' if one is trained else 'initial':>10}" for one in pair), *(f"{mean:22.2f}" for mean in means)
        )


if __name__ == "__main__":
    sys.exit(run_script(main))
