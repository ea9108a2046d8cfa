"""Trials of the sanity suite (`python -m paddock.sanity`), run on workers."""

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

MAX_EPISODE_STEPS = 1_000  # of evaluation episodes; those of the suite are far shorter


@dataclass(frozen=True)
class SanityTrial:
    """Algorithm, task, training length and evaluation of a trial."""

    algorithm: AlgorithmRecipe
    env: EnvSpec
    vec: Vec
    seed: int
    steps: int  # environment steps of training
    episodes: int  # of evaluation, on separate seeds
    keeps_files: bool  # the algorithm takes a folder
    drawn: bool  # evaluate with sampled actions


def train_and_evaluate(trial: SanityTrial) -> Episodes:
    """Train in this process, and evaluate the final policy."""
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
