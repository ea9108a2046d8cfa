"""Centred-rank evolution strategy (Salimans et al. 2017, arXiv:1703.03864).

Each iteration perturbs the mean parameters by mirrored pairs of noise vectors, plays episodes with every perturbed
member on the pool, and moves the mean along the noise weighted by the members' ranks. Only keys of the noise go out
to the workers and only scalars come back.
"""

import functools
import logging
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from algos.common.keys import Stream, keyed_generator
from algos.common.timing import Clock, worker_times
from algos.evolution.population import Problem, SearchDistribution, evaluate_mean, evaluate_pairs
from algos.evolution.update import Adam, EvaluationLost, decayed, estimate_gradient
from algos.learning.episodes import Moments, count_cut
from algos.networks.flat import MLP, Activation, FlatPolicy
from algos.pool.protocol import Done, Pool
from envs.errors import require
from envs.native.networks import Normalizer
from envs.spec import EnvSpec
from envs.vector import Vec

log = logging.getLogger(__name__)

STD_FLOOR = 0.01  # an observation that never moves is not blown up


@dataclass(kw_only=True, eq=False)
class ES:
    """The algorithm: its settings (conf/algo/es.yaml explains each), its parts, and its state."""

    env: EnvSpec
    vec: Vec
    pool: Pool
    seed: int
    population: int
    sigma: float
    sigma_decay: float
    sigma_floor: float
    learning_rate: float
    learning_rate_decay: float
    learning_rate_floor: float
    weight_decay: float
    noise: Literal["philox", "table"]
    noise_table_size: int
    hidden: tuple[int, ...]
    activation: Activation
    initial_std: float
    episodes_per_member: int
    episode_cap: int | None
    normalize_observations: bool
    observation_clip: float
    observation_sampling: float
    pairs_per_task: int
    eval_every: int
    eval_episodes: int
    eval_max_steps: int

    iteration: int = field(init=False, default=0)
    step: int = field(init=False, default=0)  # environment steps of the population, evaluation not counted
    best_return: float = field(init=False, default=float("-inf"))  # of the mean policy, over one evaluation
    best_iteration: int = field(init=False, default=0)

    plays_on_pool = True
    policy_names = ("last", "best")

    def __post_init__(self) -> None:
        self._check()
        self.env = self.env.as_array()
        self.vec.check(self.env)
        observation, action = self.env.spaces
        mlp = MLP.for_spaces(observation, action, tuple(self.hidden), self.activation)
        size = mlp.num_parameters
        if self.noise == "table":
            hint = f"raise it to {1000 * size} or choose noise=philox"
            require(self.noise_table_size >= 2 * size, f"noise_table_size={self.noise_table_size} is too small; {hint}")
        self.problem = Problem(
            env=self.env,
            vec=self.vec,
            mlp=mlp,
            seed=self.seed,
            noise_table_size=self.noise_table_size if self.noise == "table" else None,
            episodes_per_member=self.episodes_per_member,
            episode_cap=self.episode_cap,
            eval_max_steps=self.eval_max_steps,
            observation_sampling=self.observation_sampling if self.normalize_observations else 0.0,
        )
        initial = keyed_generator(self.seed, Stream.INITIAL).standard_normal(size)
        self.mean = self.initial_std * initial  # [P] float64
        self.best_mean = self.mean.copy()
        self.momentum = np.zeros(size)  # Adam's first moment
        self.variance = np.zeros(size)  # Adam's second moment
        self.observed = Moments.zero(mlp.sizes[0])
        self.best_observed = self.observed

    def plan(self) -> Generator[dict[str, float], None, None]:
        """One generation an iteration, for ever; the state is complete at every yield."""
        clock = Clock()
        while True:
            sigma = decayed(self.sigma, self.sigma_decay, self.sigma_floor, self.iteration)
            rate = decayed(self.learning_rate, self.learning_rate_decay, self.learning_rate_floor, self.iteration)
            clock.lap("loop")
            generation = self._evaluate_population(sigma)
            clock.lap("wait")
            returns, lengths = generation.returns, generation.lengths
            gradient = self._gradient(returns, sigma)
            update = self._apply_gradient(gradient, rate)
            for sample in generation.moments:
                self.observed = self.observed.merge(sample)
            self.iteration += 1
            self.step += int(lengths.sum())
            kept, size = np.isfinite(returns), np.sum(self.mean**2)
            metrics = {
                "iteration": self.iteration,
                "step": self.step,
                "train/return_mean": float(np.nanmean(returns)),
                "train/return_max": float(np.nanmax(returns)),
                "train/return_min": float(np.nanmin(returns)),
                "train/length_mean": float(lengths[kept].mean() / self.episodes_per_member),
                "es/sigma": sigma,
                "es/learning_rate": rate,
                "es/gradient_norm": float(np.sqrt(np.sum(gradient**2))),
                "es/update_ratio": float(np.sqrt(np.sum(update**2) / size)) if size else 0.0,
                "es/lost_members": int((~kept).sum()),
                "system/retries": generation.retries,
            }
            clock.lap("learn")
            worker_s = generation.worker_s
            if self.iteration % self.eval_every == 0:
                evaluation, seconds = self._evaluate_mean()
                if evaluation and evaluation["eval/return_mean"] > self.best_return:
                    self.best_return, self.best_iteration = evaluation["eval/return_mean"], self.iteration
                    self.best_mean, self.best_observed = self.mean.copy(), self.observed
                metrics |= evaluation
                worker_s += seconds
            clock.lap("eval_wait")
            times = clock.read()
            yield metrics | times | worker_times(worker_s, times["system/iteration_s"], self.pool.size)

    def state_dict(self) -> dict[str, Any]:
        """Everything that `plan` goes on from: arrays and plain data."""
        return {
            "iteration": self.iteration,
            "step": self.step,
            "mean": self.mean,
            "momentum": self.momentum,
            "variance": self.variance,
            "observed": vars(self.observed),
            "best": {
                "return": self.best_return,
                "iteration": self.best_iteration,
                "mean": self.best_mean,
                "observed": vars(self.best_observed),
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; shapes have been compared with `state_dict()` by the checkpoint."""
        self.iteration, self.step = int(state["iteration"]), int(state["step"])
        self.mean, self.momentum, self.variance = state["mean"], state["momentum"], state["variance"]
        self.observed = Moments(**state["observed"])
        self.best_return, self.best_mean = float(state["best"]["return"]), state["best"]["mean"]
        self.best_observed = Moments(**state["best"]["observed"])
        self.best_iteration = int(state["best"]["iteration"])

    def evaluate_last(self) -> list[dict[str, float]]:
        """Return the evaluation of the mean policy as it is."""
        evaluation, _ = self._evaluate_mean()
        return [evaluation] if evaluation else []

    def policy_iteration(self, which: str) -> int:
        """Return the iteration that a policy is of."""
        return self.best_iteration if which == "best" else self.iteration

    def policy(self, which: Literal["last", "best"] = "last") -> FlatPolicy:
        """The mean policy: the last one, or the best that an evaluation met.

        Raises:
            ConfigError: the best is asked for before the first evaluation.
        """
        met = which == "last" or self.best_return > float("-inf")
        require(met, "which=best is not known before the first evaluation; use which=last")
        mean, observed = (self.mean, self.observed) if which == "last" else (self.best_mean, self.best_observed)
        return FlatPolicy(self.problem.mlp, mean.astype(np.float32), self._normalizer(observed))

    def describe(self) -> dict[str, str]:
        """What a run would assemble, for `dry_run=true`."""
        tasks = -(-self.population // (2 * self.pairs_per_task))
        sizes = "-".join(map(str, self.problem.mlp.sizes))
        return {
            "actors": f"{self.vec.num_envs} environments side by side on each worker",
            "learners": "1, in this process, on the CPU",
            "members": f"{self.population} ({self.population // 2} mirrored pairs) in {tasks} tasks an iteration",
            "policy": f"{sizes} {self.activation}, {self.problem.mlp.num_parameters:,} parameters, "
            f"{self.problem.mlp.network.head} actions",
        }

    def _check(self) -> None:
        name = type(self.vec).__name__
        require(self.vec.seeded_slots, f"es restarts single environments, and {name} cannot; use vec=serial")
        n, floor = self.population, self.sigma_floor
        require(n >= 2, f"population={n} must be at least 2: one mirrored pair")
        require(n % 2 == 0, f"population={n} is odd, and members come in mirrored pairs; try {n + 1}")
        require(self.sigma > 0, f"sigma={self.sigma} must be positive; try 0.1")
        require(0 <= floor <= self.sigma, f"sigma_floor={floor} must lie in [0, sigma={self.sigma}]")
        require(self.learning_rate > 0, f"learning_rate={self.learning_rate} must be positive; try 0.01")
        floor = self.learning_rate_floor
        require(0 <= floor <= self.learning_rate, f"learning_rate_floor={floor} must lie in [0, {self.learning_rate}]")
        for name in ("sigma_decay", "learning_rate_decay"):
            value = getattr(self, name)
            require(0 < value <= 1, f"{name}={value} must lie in (0, 1]; 1 keeps it constant")
        for name in ("weight_decay", "initial_std"):
            value = getattr(self, name)
            require(value >= 0, f"{name}={value} must not be negative")
        for name in ("episodes_per_member", "pairs_per_task", "eval_every", "eval_episodes", "eval_max_steps"):
            value = getattr(self, name)
            require(value >= 1, f"{name}={value} must be at least 1")
        cap = self.episode_cap
        require(cap is None or cap >= 1, f"episode_cap={cap} must be at least 1 step, or null for no cap")
        require(self.observation_clip > 0, f"observation_clip={self.observation_clip} must be positive; try 5.0")
        p = self.observation_sampling
        require(0 < p <= 1, f"observation_sampling={p} must lie in (0, 1]")

    def _normalizer(self, observed: Moments) -> Normalizer | None:
        if not self.normalize_observations:
            return None
        std = observed.std(STD_FLOOR)
        return Normalizer(observed.mean.astype(np.float32), std.astype(np.float32), self.observation_clip)

    def _evaluate_population(self, sigma: float) -> "Generation":
        """Play every pair on the pool."""
        pairs = self.population // 2
        starts = range(0, pairs, self.pairs_per_task)
        distribution = SearchDistribution(
            self.iteration, self.mean.astype(np.float32), sigma, self._normalizer(self.observed)
        )
        shared = self.pool.broadcast(distribution)
        tasks = [(shared, start, min(start + self.pairs_per_task, pairs)) for start in starts]
        returns = np.full((pairs, 2), np.nan)
        lengths = np.zeros((pairs, 2), np.int64)
        moments: list[list[Moments]] = [[] for _ in tasks]
        failed: list[Done] = []
        worker_s, retries = 0.0, 0
        for done in self.pool.imap_unordered(functools.partial(evaluate_pairs, self.problem), tasks):
            _, start, stop = tasks[done.index]
            worker_s += done.seconds
            retries += done.attempts - 1
            if done.error is not None:
                failed.append(done)
                continue
            returns[start:stop], lengths[start:stop], moments[done.index] = done.value
        # A pair with one lost sign says nothing of its direction: both go, and no bias comes in.
        returns[~np.isfinite(returns).all(axis=1)] = np.nan
        if failed:
            self._report_lost(failed, nothing_left=bool(np.isnan(returns).all()))
        elif np.isnan(returns).all():
            raise EvaluationLost("every member's return is NaN or infinite; check the environment's rewards")
        merged = [sample for task in moments for sample in task]
        return Generation(returns, lengths, merged, worker_s, retries)

    def _report_lost(self, failed: list[Done], nothing_left: bool) -> None:
        first = min(failed, key=lambda done: done.index)
        reason = f"{type(first.error).__name__}: {first.error}"
        if nothing_left:
            raise EvaluationLost(f"every member of the population was lost; the first: {reason}") from first.error
        log.warning("iteration %d goes on without %d lost tasks; the first: %s", self.iteration, len(failed), reason)

    def _gradient(self, returns: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
        noise = self.problem.make_noise()
        return estimate_gradient(returns, lambda pair: noise(self.iteration, pair), self.mean.size, sigma)

    def _apply_gradient(self, gradient: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
        """One step on the decayed gradient; returns the change [P]."""
        adam = Adam(self.momentum, self.variance, self.iteration)
        update, adam = adam.apply_gradient(gradient - self.weight_decay * self.mean, rate)
        self.momentum, self.variance = adam.momentum, adam.variance
        self.mean = self.mean + update
        return update

    def _evaluate_mean(self) -> tuple[dict[str, float], float]:
        """Play the mean policy on seeds of its own.

        Returns:
            Metrics, and the seconds that workers computed.
        """
        distribution = SearchDistribution(
            self.iteration, self.mean.astype(np.float32), 0.0, self._normalizer(self.observed)
        )
        size = self.vec.num_envs
        shared = self.pool.broadcast(distribution)
        tasks = [(shared, first, min(first + size, self.eval_episodes)) for first in range(0, self.eval_episodes, size)]
        returns = np.full(self.eval_episodes, np.nan)
        lengths = np.full(self.eval_episodes, np.nan)
        worker_s = 0.0
        for done in self.pool.imap_unordered(functools.partial(evaluate_mean, self.problem), tasks):
            _, first, last = tasks[done.index]
            worker_s += done.seconds
            if done.error is None:
                returns[first:last], lengths[first:last] = done.value
            else:
                log.warning("an evaluation task was lost: %s: %s", type(done.error).__name__, done.error)
        if np.isnan(returns).all():
            return {}, worker_s
        mean = float(np.nanmean(returns))
        metrics = {
            "eval/return_mean": mean,
            "eval/return_std": float(np.nanstd(returns)),
            "eval/length_mean": float(np.nanmean(lengths)),
            "eval/episodes": int(np.isfinite(returns).sum()),
            "eval/return_best": max(mean, self.best_return),
            "eval/of_iteration": self.iteration,
        }
        return metrics | count_cut(lengths, self.eval_max_steps), worker_s


@dataclass(frozen=True)
class Generation:
    """What one generation's episodes gave."""

    returns: NDArray[np.float64]  # [pairs, 2], mean over a member's episodes; NaN for both signs of a lost pair
    lengths: NDArray[np.int64]  # [pairs, 2], steps summed over a member's episodes
    moments: list[Moments]  # of the sampled pairs' observations, in the order of the pairs
    worker_s: float  # time spent computing, summed over workers
    retries: int  # tasks started again after a lost worker
