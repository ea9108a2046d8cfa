"""Play a run's policies of two roles with each other, each as it was drawn and as it learned.

    python scripts/cross_play.py RUN [EPISODES]

A role has learned if it comes to more against the same other one. Actions are drawn, as in training.
"""

import argparse
import itertools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

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
    """Print the mean return of a life of each role, for all four pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run of two policies")
    parser.add_argument("episodes", nargs="?", type=positive_int, default=200, metavar="EPISODES", help="(200)")
    options = parser.parse_args()
    run, episodes = options.run, options.episodes
    trained, _ = load(run)
    drawn = build_algorithm(read_config(run), SerialPool())
    names = trained.policy_group.names
    require(len(names) == 2, f"{run} has {len(names)} policies; name a run of two")
    seeds = [episode_seed(1, Stream.FRESH, 0, k) for k in range(episodes)]
    print(*(f"{name:>10}" for name in names), *(f"{'return of ' + name:>22}" for name in names))
    for pair in itertools.product((drawn, trained), repeat=2):
        weights = [algorithm.weights()[k] for k, algorithm in enumerate(pair)]
        policy = make_joint_policy(trained.policy_group, trained.env, weights)
        played = evaluate_policy(EvaluationSpec(trained.env, policy, 100_000, stochastic=True), seeds)
        each, whose = np.concatenate(played.lives), np.concatenate(played.rows)
        means = [each[np.isin(whose, spec.seats)].mean() for spec in trained.policy_group.specs]
        print(
            *(f"{'trained' if one is trained else 'drawn':>10}" for one in pair), *(f"{mean:22.2f}" for mean in means)
        )


if __name__ == "__main__":
    sys.exit(run_script(main))
