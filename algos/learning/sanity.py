"""A task of the sanity suite, learned by an algorithm: what a worker does for `python -m paddock.sanity`."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.common.recipe import AlgorithmRecipe
from paddock.algos.common.threads import one_thread
from paddock.algos.learning.episodes import Episodes
from paddock.algos.learning.policy_episodes import EvaluationSpec, evaluate_policy
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec

MAX_EPISODE_STEPS = 1_000  # of the score's episodes; those of the suite end long before


@dataclass(frozen=True)
class SanityTrial:
    """What is learned, by which algorithm, for how long, and how it is played then."""

    algorithm: AlgorithmRecipe
    env: EnvSpec
    vec: Vec
    seed: int
    steps: int  # environment steps to learn in
    episodes: int  # played afterwards, on seeds of their own
    keeps_files: bool  # the algorithm, which takes a folder for them
    drawn: bool  # their actions are drawn, of a policy that can do so


def train_and_evaluate(trial: SanityTrial) -> Episodes:
    """Let an algorithm learn for so many steps, all in this process, and play the policy that it has then."""
    with one_thread(), TemporaryDirectory() as folder:
        files = {"folder": Path(folder)} if trial.keeps_files else {}
        algorithm = trial.algorithm.make_alone(trial.env, trial.vec, trial.seed, **files)
        with closing(algorithm.plan()) as plan:
            for metrics in plan:
                if metrics["step"] >= trial.steps:
                    break
            policy = algorithm.policy()
        seeds = [episode_seed(trial.seed, Stream.FRESH, 0, k) for k in range(trial.episodes)]
        return evaluate_policy(EvaluationSpec(trial.env, policy, MAX_EPISODE_STEPS, trial.drawn), seeds)
