"""Evaluation of a run's policy on fresh seeds, which training and its own evaluations never use."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.learning.episode_metrics import cut_off
from paddock.algos.learning.episodes import Episodes
from paddock.algos.learning.policy_episodes import EvaluationSpec, evaluate_policy, evaluate_share, runs_natively
from paddock.algos.pool.broadcast import Broadcast
from paddock.algos.pool.protocol import value_of
from paddock.algos.protocol import can_draw
from paddock.envs.errors import ConfigError, require
from paddock.envs.machine import usable_cores
from paddock.envs.spec import EnvSpec

from ..compute.recipes import Local
from ..config.command import check_output, write_output
from ..reports.statistics import interval, mean
from ..runs.folder import read_config
from ..runs.loop import Progress
from .elites import Elite, find_elite
from .load import load
from .other_env import build_matching_env, read_env
from .target import EvaluationTarget, find_env, find_policy, find_target
from .video import Film, film_episode

MAX_STEPS = 100_000
RESAMPLES = 10_000  # of the bootstrap


@dataclass(frozen=True)
class Evaluation:
    """Results of E fresh episodes."""

    returns: NDArray[np.float64]  # [E], undiscounted sum of rewards; with several agents the mean over agents
    lengths: NDArray[np.int64]  # [E], steps
    metrics: dict[str, NDArray[np.float64]]  # [E] each, reported by the environment; NaN where max_steps cut it off
    interval: tuple[float, float]  # of the mean return, 95 %; NaN for one episode
    cut: int  # episodes cut off by max_steps
    seconds: float
    iteration: int  # of the policy
    progress: Progress  # of the run, at its checkpoint
    env: EnvSpec
    film: Film | None  # of episode 0, if a video was asked for
    target: EvaluationTarget | None  # agent and niche of a POET run
    lives: list[NDArray[np.float64]]  # [E], with several agents: the return of each life
    seats: list[NDArray[np.int64]]  # [E], agent index of each life
    elite: Elite | None  # of a quality diversity run

    @property
    def mean(self) -> float:
        """Return the mean return."""
        return float(self.returns.mean())

    def __repr__(self) -> str:
        low, high = self.interval
        mean = f"{self.mean:.2f}, 95 % [{low:.2f}, {high:.2f}]"
        return f"<Evaluation of iteration {self.iteration}: mean return {mean}, {len(self.returns)} episodes>"


def evaluate(
    run: Path,
    *,
    episodes: int = 20,
    seed: int = 0,
    which: str = "last",
    max_steps: int = MAX_STEPS,
    stochastic: bool = False,
    workers: int | None = None,
    video: Path | None = None,
    env: Sequence[str] = (),
    niche: int | None = None,
    agent: int | None = None,
    on: Path | None = None,
    cell: int | None = None,
    near: Sequence[float] | float | None = None,
) -> Evaluation:
    """Evaluate a run's policy on fresh seeds; the same arguments give bit-identical results.

    The arguments are the keys of `python -m paddock.evaluate`. The run's folder is only read, and the run may still be
    running. Without `workers`, this process evaluates.
    """
    seeds = fresh_seeds(seed, episodes)
    check_max_steps(max_steps)
    run, on = run.absolute(), on and on.absolute()  # environments may change the working directory
    if video is not None:
        video = check_output("video", video, (".mp4",))
    algorithm, progress = load(run)
    target = find_target(algorithm, run, niche, agent, on)
    elite = find_elite(algorithm, run, cell, near)
    policy, iteration = find_policy(algorithm, run, which, target, progress, elite)
    if env:
        require(target is None, f"{env[0]}: {run} is evaluated in niches; choose one with niche= and on=")
        spec = build_matching_env(algorithm, read_env(read_config(run)["env"], env))
    else:
        spec = find_env(algorithm, run, target)
    reason = "has no action distribution to sample from; remove stochastic="
    require(not stochastic or can_draw(policy), f"stochastic=true: {type(algorithm).__name__} {reason}")
    evaluation = EvaluationSpec(spec, policy, max_steps, stochastic)
    film = None if video is None else film_episode(evaluation, seeds[0], video)
    started = time.perf_counter()
    played = _play_all(evaluation, seeds, workers)
    seconds = time.perf_counter() - started
    if video is not None and film is not None:
        write_output("video", video, film.content)
    returns, lengths = played.returns, played.lengths
    metrics = dict(zip(spec.metrics, played.env_metrics.T, strict=True))
    low, high = interval(returns[:, None], mean, seed=seed, resamples=RESAMPLES)
    cut = cut_off(lengths, max_steps, spec)
    return Evaluation(
        returns,
        lengths,
        metrics,
        (float(low), float(high)),
        cut,
        seconds,
        iteration,
        progress,
        spec,
        film,
        target,
        played.lives,
        played.rows,
        elite,
    )


def _play_all(evaluation: EvaluationSpec, seeds: Sequence[int], workers: int | None) -> Episodes:
    if workers is None:
        return evaluate_policy(evaluation, seeds, usable_cores())
    recipe = Local(workers=workers, retries=3, task_timeout_s=None)
    try:
        cloudpickle.dumps(evaluation)
    except Exception as error:  # pickling a policy's attributes may raise anything
        reason = f"{type(evaluation.policy).__name__} cannot be pickled ({type(error).__name__}: {error})"
        raise ConfigError(f"workers={workers}: {reason}; remove workers=") from error
    size = -(-len(seeds) // (workers if runs_natively(evaluation) else 4 * workers))
    shares: dict[int, Any] = {}
    with closing(
        recipe.open({"paddock", evaluation.env.id.partition(":")[0]} if ":" in evaluation.env.id else {"paddock"})
    ) as pool:
        shared: Broadcast[EvaluationSpec] = pool.broadcast(evaluation)
        tasks = [(shared, seeds[start : start + size]) for start in range(0, len(seeds), size)]
        for done in pool.imap_unordered(evaluate_share, tasks):
            shares[done.index] = value_of(done)
    return Episodes.join([shares[index] for index in sorted(shares)], len(evaluation.env.metrics))


def fresh_seeds(seed: int, episodes: int) -> list[int]:
    """Return the seeds of fresh episodes; the seed of episode k depends on (seed, k) alone."""
    require(episodes >= 1, f"episodes={episodes} must be at least 1; a typical value is 20")
    require(0 <= seed < 2**63, f"seed={seed} must be an integer in [0, 2^63)")
    return [episode_seed(seed, Stream.FRESH, 0, k) for k in range(episodes)]


def check_max_steps(max_steps: int) -> None:
    """Raise ConfigError unless `max_steps` is positive; native code treats 0 as no limit."""
    require(max_steps >= 1, f"max_steps={max_steps} must be at least 1; the default is {MAX_STEPS}")
