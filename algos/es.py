"""Evolution strategies (Salimans et al. 2017, arXiv:1703.03864), with a choice of search distribution and update.

Each iteration samples members around the mean parameters, plays episodes with every member on the pool, and updates
the strategy from the members' returns. Workers receive only keys of the noise, where the strategy allows it, and
return only scalars.
"""

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from paddock.algos.common.divergence import OBSERVATION_REMEDY
from paddock.algos.common.interrupts import Interrupted, Interrupts, Unfinished
from paddock.algos.common.timing import Clock, worker_times
from paddock.algos.evolution.generation import (
    PairsPerTask,
    PopulationSize,
    check_generation,
    check_lost,
    count_useful_workers,
    evaluate,
    play_population,
    training_metrics,
    update,
)
from paddock.algos.evolution.networks import initial_parameters, make_network, make_policy
from paddock.algos.evolution.population import EpisodeCap, Problem, play_members
from paddock.algos.evolution.strategies.protocol import StrategySettings, restored, state_of
from paddock.algos.learning.episodes import Moments
from paddock.algos.learning.flow import run_job
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import EncoderChoice
from paddock.algos.networks.flat import Activation, FlatPolicy, HiddenSizes
from paddock.algos.networks.initial import Initial, InitialPolicy
from paddock.algos.networks.inputs import with_agent_ids
from paddock.algos.pool.protocol import Pool
from paddock.envs.errors import require
from paddock.envs.native.networks import Normalizer
from paddock.envs.ranges import NonNegativeFloat, PositiveInt, Range, check_fields
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec

log = logging.getLogger(__name__)

STD_FLOOR = 0.01  # minimum standard deviation in observation normalization


@dataclass(kw_only=True, eq=False)
class ES:
    """Evolution strategy; conf/algo/es.yaml explains each setting."""

    env: EnvSpec
    vec: Vec
    pool: Pool
    seed: int
    population: PopulationSize
    strategy: StrategySettings
    encoder: EncoderChoice
    custom_encoder: Mapping[str, Any] | None
    hidden_sizes: HiddenSizes
    activation: Activation
    lstm: bool
    agent_id_feature: bool
    initial_std: NonNegativeFloat
    episodes_per_member: PositiveInt
    episode_cap: EpisodeCap
    normalize_observations: bool
    observation_clip: Annotated[float, Range("must be positive; try 5.0", above=0)]
    observation_sampling: Annotated[float, Range("must be in (0, 1]", above=0, high=1)]
    pairs_per_task: PairsPerTask
    eval_every_iterations: PositiveInt
    eval_episodes: PositiveInt
    eval_max_steps: PositiveInt

    iteration: int = field(init=False, default=0)
    step: int = field(init=False, default=0)  # environment steps of the population, without evaluations
    best_return: float = field(init=False, default=float("-inf"))  # highest mean return of an evaluation
    best_iteration: int = field(init=False, default=0)

    searches = 1
    plays_on_pool = True
    policy_names = ("last", "best")

    def __post_init__(self) -> None:
        self._check()
        self.env = with_agent_ids(self.env, self.agent_id_feature)
        self.vec.check(self.env)
        network = make_network(self)
        self.problem = Problem(
            env=self.env,
            vec=self.vec,
            network=network,
            seed=self.seed,
            episodes_per_member=self.episodes_per_member,
            episode_cap=self.episode_cap,
            eval_max_steps=self.eval_max_steps,
            observation_sampling=self.observation_sampling if self.normalize_observations else 0.0,
        )
        initial = initial_parameters(network, self.initial_std, self.seed)
        self.search = self.strategy.start(initial, self.population)
        self.best_mean = self.search.mean
        self.observed = Moments.zero(network.inputs.width)
        self.best_observed = self.observed
        self._interrupts = Interrupts()

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Evaluate a generation and update the mean, indefinitely; the state is complete at every yield."""
        clock = Clock()
        self.pool.ask(count_useful_workers(self))
        while True:
            clock.lap("loop")
            members = self.search.sample(self.problem.noise(self.iteration))
            normalizer = self._normalizer(self.observed)
            job = play_population(self, self.problem, members, self.iteration, normalizer=normalizer)
            generation = run_job(self.pool, play_members, job)
            check_lost(generation)
            clock.lap("wait")
            self.search, strategy_metrics = update(self.search, generation)
            self._update_normalization(generation.moments)
            self.iteration += 1
            self.step += int(generation.lengths.sum())
            metrics = {
                "iteration": self.iteration,
                "step": self.step,
                **training_metrics(generation),
                **strategy_metrics,
                "es/lost_members": int(np.isnan(generation.returns).sum()),
                "system/retries": sum(end.attempts - 1 for end in generation.ends),
            }
            clock.lap("learn")
            worker_s = sum(end.seconds for end in generation.ends)
            if self.iteration % self.eval_every_iterations == 0:
                try:
                    evaluation, seconds = self._evaluate_and_keep_best()
                except Interrupted:
                    yield Unfinished(metrics)
                    return
                metrics |= evaluation
                worker_s += seconds
            clock.lap("eval_wait")
            times = clock.read()
            yield metrics | times | worker_times(worker_s, times["system/iteration_s"], self.pool.threads)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that `plan` resumes from: arrays and plain data."""
        return {
            "iteration": self.iteration,
            "step": self.step,
            "strategy": state_of(self.search),
            "observed": vars(self.observed),
            "best": {
                "return": self.best_return,
                "iteration": self.best_iteration,
                "mean": self.best_mean,
                "observed": vars(self.best_observed),
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state, whose shapes the checkpoint has compared with `state_dict()`."""
        self.iteration, self.step = int(state["iteration"]), int(state["step"])
        self.search = restored(self.search, state["strategy"])
        self.observed = Moments(**state["observed"])
        self.best_return, self.best_mean = float(state["best"]["return"]), state["best"]["mean"]
        self.best_observed = Moments(**state["best"]["observed"])
        self.best_iteration = int(state["best"]["iteration"])

    def evaluate_last(self) -> list[dict[str, float]]:
        """Evaluate the present mean policy; return its metrics, or nothing if all episodes were lost."""
        evaluation, _ = self._evaluate_mean()
        return [evaluation] if evaluation else []

    def interrupt(self) -> None:
        """See `WaitsForEvaluations`."""
        self._interrupts.request()

    def complete(self, row: Mapping[str, float]) -> dict[str, float]:
        """See `WaitsForEvaluations`."""
        try:
            return {**row, **self._evaluate_and_keep_best()[0]}
        except Interrupted:
            return Unfinished(row)

    def policy_iteration(self, which: str) -> int:
        """Return the iteration of a policy."""
        return self.best_iteration if which == "best" else self.iteration

    def policy(self, which: Literal["last", "best"] = "last") -> FlatPolicy | ActorPolicy:
        """Return the mean policy: the last one, or the best evaluated one; raise ConfigError if there is none yet."""
        known = which == "last" or self.best_return > float("-inf")
        require(known, "which=best is not known before the first evaluation; use which=last")
        mean, observed = (self.search.mean, self.observed) if which == "last" else (self.best_mean, self.best_observed)
        return make_policy(self.problem.network, mean.astype(np.float32), self._normalizer(observed))

    def initial_policy(self) -> InitialPolicy:
        """Return the last mean policy; see `TakesPolicy`."""
        return InitialPolicy.of(self.policy(), self.observed.count)

    def start_from(self, initial: Initial) -> None:
        """Initialize the mean from a policy; see `TakesPolicy`."""
        clip = self.observation_clip if self.normalize_observations else None
        initial = initial.for_policy("")
        mean = initial.apply_to(self.problem.network, self.search.mean.astype(np.float32), clip).astype(np.float64)
        self.search = self.strategy.start(mean, self.population)
        self.best_mean = mean
        if initial.seen is not None:
            self.observed = self.best_observed = Moments(*initial.seen)

    def describe(self) -> dict[str, str]:
        """Return a summary of the run, for `dry_run=true`."""
        network = self.problem.network
        return {
            "actors": f"{self.vec.num_envs} environments per worker task",
            "learners": "1, in this process, on the CPU",
            "strategy": type(self.search).__name__,
            "members": f"{self.population}, enough for {count_useful_workers(self)} workers",
            "policy": f"{network.describe()}, {self.problem.num_parameters:,} parameters",
        }

    def _check(self) -> None:
        check_fields(self)
        check_generation(self, "es")

    def _normalizer(self, observed: Moments) -> Normalizer | None:
        if not self.normalize_observations:
            return None
        scale = self.problem.network.inputs.of_reals(observed.mean, observed.std(STD_FLOOR))
        return Normalizer(*scale, self.observation_clip)

    def _update_normalization(self, episodes: Sequence[Moments]) -> None:
        """Add the observations of episodes to the normalization; skip episodes with non-finite observations."""
        skipped = 0
        for sample in episodes:
            with np.errstate(over="ignore", invalid="ignore"):
                observed = self.observed.merge(sample)
            if observed.finite:
                self.observed = observed
            else:
                skipped += 1
        if skipped:
            what = "iteration %d: skipped %d of %d episodes with non-finite observations in the normalization; %s"
            log.warning(what, self.iteration + 1, skipped, len(episodes), OBSERVATION_REMEDY)

    def _evaluate_and_keep_best(self) -> tuple[dict[str, float], float]:
        evaluation, seconds = self._evaluate_mean()
        if evaluation and evaluation["eval/return_mean"] > self.best_return:
            self.best_return, self.best_iteration = evaluation["eval/return_mean"], self.iteration
            self.best_mean, self.best_observed = self.search.mean, self.observed
        return evaluation, seconds

    def _evaluate_mean(self) -> tuple[dict[str, float], float]:
        """Return the metrics of the mean policy, and the seconds that workers computed; a signal raises Interrupted."""
        normalizer, mean = self._normalizer(self.observed), self.search.mean
        return evaluate(self, self.problem, mean, self.iteration, self.best_return, self._interrupts, normalizer)
