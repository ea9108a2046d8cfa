"""Generations of evolution strategies, and evaluations of their means, as tasks of a pool."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.divergence import REMEDY, Diverged
from paddock.algos.common.interrupts import Interrupts
from paddock.algos.evolution.population import Problem, SearchDistribution, play_members
from paddock.algos.evolution.ranks import EvaluationLost
from paddock.algos.evolution.strategies.protocol import Floats, Gaussian, Members, Metrics, Strategy
from paddock.algos.learning.episode_metrics import format_evaluation, mean_env_metrics, summarize
from paddock.algos.learning.episodes import Episodes, Moments
from paddock.algos.learning.flow import Job, run_job
from paddock.algos.learning.policy_episodes import threads_of
from paddock.algos.networks.flat import Normalizer
from paddock.algos.pool.protocol import Done, Pool
from paddock.envs.errors import require
from paddock.envs.ranges import Range
from paddock.envs.vector import Native, Vec
from paddock.envs.vector.remote import check_unshared

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Strategy)
MEMBERS = Range("must be at least 2, one mirrored pair, and at most 10 million", low=2, high=10_000_000)
PopulationSize = Annotated[int, MEMBERS]
PairsPerTask = Annotated[int | None, Range("must be at least 1, or null for as many as keep workers busy", low=1)]
NATIVE_PAIRS = 32  # maximum per task: 64 episodes, so that a SIMD lane whose episode ends early gets another one
WORTH_A_WORKER = 4  # minimum pairs per worker


class GenerationSettings(Protocol):
    """Settings of an algorithm that plays generations; conf/algo/es.yaml explains each."""

    pool: Pool
    pairs_per_task: int | None
    eval_episodes: int

    @property
    def population(self) -> int:
        """Members per iteration, even."""

    @property
    def vec(self) -> Vec:
        """The vectorization of one task's environments."""

    @property
    def searches(self) -> int:
        """Number of populations played concurrently."""


def check_generation(settings: GenerationSettings, name: str) -> None:
    """Raise ConfigError if the vectorization or the population is invalid."""
    vec = settings.vec
    check_unshared(vec, f"algo={name} plays on every worker")
    require(vec.seeded_slots, f"{name} must reset single environments; {type(vec).__name__} cannot, use vec=serial")
    n = settings.population
    require(n % 2 == 0, f"population={n} is odd, but members come in pairs; try {n + 1}")


def pairs_of_task(settings: GenerationSettings) -> int:
    """Return the number of mirrored pairs per task: `pairs_per_task`, or one that balances the workers' threads."""
    if settings.pairs_per_task is not None:
        return settings.pairs_per_task
    vec, threads = settings.vec, max(settings.pool.threads, 1)
    most = NATIVE_PAIRS * threads_of(vec) if isinstance(vec, Native) else max(vec.num_envs // 2, 1)
    pairs = _count_pairs(settings)
    rounds = math.ceil(pairs / (most * threads))
    if not isinstance(vec, Native):  # up to four members per slot, in three tasks per thread to balance the load
        rounds = max(math.ceil(rounds / 4), min(rounds, 3))
    return min(math.ceil(pairs / (rounds * threads)), settings.population // 2)


def count_useful_workers(settings: GenerationSettings) -> int:
    """Return the number of workers that the population can keep busy."""
    return math.ceil(_count_pairs(settings) / (settings.pairs_per_task or WORTH_A_WORKER))


def _count_pairs(settings: GenerationSettings) -> int:
    return settings.population // 2 * settings.searches


@dataclass(frozen=True)
class Generation:
    """Results of one population's episodes."""

    distribution: SearchDistribution
    returns: Floats  # [pairs, 2], mean over a member's episodes; NaN for a lost member, both of a mirrored pair
    lengths: NDArray[np.int64]  # [pairs, 2], steps summed over a member's episodes
    moments: list[Moments]  # of the sampled pairs' observations, in the order of the pairs
    env_metrics: Floats  # [n, 2, episodes, M], the environment's metrics, of pairs that were not lost
    ends: list[Done]  # of its tasks

    @property
    def lost(self) -> bool:
        """True if all members were lost."""
        return bool(np.isnan(self.returns).all())


def play_population(
    settings: GenerationSettings,
    problem: Problem,
    members: Gaussian | Members,
    iteration: int,
    *,
    normalizer: Normalizer | None = None,
    niche_index: int = 0,
) -> Job[Generation]:
    """Play all members as tasks of `play_members`."""
    distribution = SearchDistribution(problem, iteration, members, normalizer, niche_index)
    pairs, size = settings.population // 2, pairs_of_task(settings)
    shared = settings.pool.broadcast(distribution)
    tasks = [(shared, start, min(start + size, pairs)) for start in range(0, pairs, size)]
    played = list(zip(tasks, (yield tasks), strict=True))
    # Retry the pairs of a lost task one by one, so that losses do not depend on the task size.
    alone = [
        (shared, pair, pair + 1)
        for (_, start, stop), end in played
        if end.error is not None and stop - start > 1
        for pair in range(start, stop)
    ]
    if alone:
        kept = [(task, end) for task, end in played if end.error is None or task[2] - task[1] == 1]
        played = sorted([*kept, *zip(alone, (yield alone), strict=True)], key=lambda one: one[0][1])
    returns, lengths = np.full((pairs, 2), np.nan), np.zeros((pairs, 2), np.int64)
    moments: list[Moments] = []
    env_metrics: list[Floats] = []
    for (_, start, stop), end in played:
        if end.error is None:
            returns[start:stop], lengths[start:stop], sampled, numbers = end.value
            moments += sampled
            env_metrics.append(numbers)
    lost = ~np.isfinite(returns)
    # Drop both signs of a mirrored pair if one was lost; a single sign would bias the gradient.
    returns[lost.any(axis=1) if members.mirrored else lost] = np.nan
    shape = (0, 2, problem.episodes_per_member, len(problem.env.metrics))
    return Generation(
        distribution,
        returns,
        lengths,
        moments,
        np.concatenate(env_metrics) if env_metrics else np.zeros(shape),
        [end for _, end in played],
    )


def update(strategy: S, generation: Generation) -> tuple[S, Metrics]:
    """Return the strategy after a generation, and metrics; raise Diverged if its mean is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        after, metrics = strategy.tell(generation.returns, generation.distribution.noise)
        parameters = after.mean.astype(np.float32)
    for k in np.flatnonzero(~np.isfinite(parameters))[:1]:
        iteration = generation.distribution.iteration + 1
        key = "strategy.learning_rate" if "es/learning_rate" in metrics else "strategy.sigma"
        remedy = REMEDY.replace("learning_rate", key)
        raise Diverged(f"in update {iteration} a parameter is {parameters[k]}: {remedy}")
    return after, metrics


def play_evaluation(
    settings: GenerationSettings,
    problem: Problem,
    mean: Floats,
    iteration: int,
    *,
    normalizer: Normalizer | None = None,
    niche_index: int = 0,
) -> Job[tuple[Episodes, list[Done]]]:
    """Evaluate a mean [P] by `play_members`; return the episodes not lost, in order, and the tasks' ends."""
    policy = Members(mean[None].astype(np.float32))
    distribution = SearchDistribution(problem, iteration, policy, normalizer, niche_index, evaluation=True)
    episodes, size = settings.eval_episodes, settings.vec.num_envs
    shared = settings.pool.broadcast(distribution)
    ends = yield [(shared, first, min(first + size, episodes)) for first in range(0, episodes, size)]
    played = [end.value for end in ends if end.error is None]
    return Episodes.join(played, len(problem.env.metrics)), ends


def evaluate(
    settings: GenerationSettings,
    problem: Problem,
    mean: Floats,
    iteration: int,
    best: float,
    interrupts: Interrupts,
    normalizer: Normalizer | None = None,
) -> tuple[dict[str, float], float]:
    """Evaluate a mean [P]; return metrics, and the seconds that workers computed.

    `best` is the highest mean return of previous evaluations. A signal raises Interrupted.
    """
    job = play_evaluation(settings, problem, mean, iteration, normalizer=normalizer)
    description = format_evaluation(problem.env, iteration, settings.eval_episodes, problem.eval_max_steps)
    with interrupts.waiting(description):
        played, ends = run_job(settings.pool, play_members, job)
    for end in ends:
        if end.error is not None:
            log.warning("an evaluation task failed: %s: %s", type(end.error).__name__, end.error)
    metrics = summarize(played, problem.env, best, iteration, problem.eval_max_steps)
    return metrics, sum(end.seconds for end in ends)


def training_metrics(generation: Generation) -> dict[str, float]:
    """Return the metrics `train/...` of a generation."""
    problem, returns, lengths = generation.distribution.problem, generation.returns, generation.lengths
    return {
        "train/return_mean": float(np.nanmean(returns)),
        "train/return_max": float(np.nanmax(returns)),
        "train/return_min": float(np.nanmin(returns)),
        "train/length_mean": float(lengths[np.isfinite(returns)].mean() / problem.episodes_per_member),
        **mean_env_metrics("train", problem.env.metrics, generation.env_metrics),
    }


def check_lost(generation: Generation) -> None:
    """Warn about lost tasks of an iteration; raise EvaluationLost if all members were lost."""
    failed = [end for end in generation.ends if end.error is not None]
    if not generation.lost:
        report_lost(failed, f"iteration {generation.distribution.iteration}")
    elif not failed:
        raise EvaluationLost("every member's return is NaN or infinite; check the environment's rewards")
    else:
        first = failed[0].error
        reason = f"{type(first).__name__}: {first}"
        raise EvaluationLost(f"every member of the population was lost; first error: {reason}") from first


def report_lost(ends: Sequence[Done], what: str) -> None:
    """Warn about lost tasks; `what` names the work that continues without them."""
    lost = [end for end in ends if end.error is not None]
    if lost:
        first = lost[0].error
        log.warning("%s: %d tasks were lost; first error: %s: %s", what, len(lost), type(first).__name__, first)
