"""Quality diversity: MAP-Elites (Mouret & Clune 2015, arXiv:1504.04909), CMA-ME and CMA-MAE.

Each iteration, emitters propose members, the pool plays their episodes, and an archive keeps the best member of each
cell of a space of descriptors. MAP-Elites varies elites; CMA-ME (Fontaine et al. 2020, arXiv:1912.02400) and CMA-MAE
(Fontaine & Nikolaidis 2023, arXiv:2205.10752) adapt search distributions that maximize the improvement of the archive.
"""

import copy
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.interrupts import Interrupts
from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.common.timing import Clock, worker_times
from paddock.algos.evolution.archive import Added, Archive, Floats
from paddock.algos.evolution.descriptors import make_cells, read_descriptors
from paddock.algos.evolution.emitters import Emitter, Improvement, Variation
from paddock.algos.evolution.generation import (
    Generation,
    PairsPerTask,
    check_generation,
    check_lost,
    count_useful_workers,
    evaluate,
    play_population,
    training_metrics,
)
from paddock.algos.evolution.networks import (
    count_parameters,
    initial_parameters,
    make_network,
    make_policy,
    native_network,
)
from paddock.algos.evolution.population import EpisodeCap, Problem, play_members
from paddock.algos.evolution.ranks import EvaluationLost
from paddock.algos.evolution.strategies.cma import CMASettings
from paddock.algos.evolution.strategies.protocol import Members, StrategySettings, restored, state_of
from paddock.algos.evolution.strategies.sep_cma import SepCMASettings
from paddock.algos.learning.flow import run_job
from paddock.algos.learning.policy_episodes import NativePlayer
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import EncoderChoice
from paddock.algos.networks.flat import Activation, FlatPolicy, HiddenSizes, check_memory
from paddock.algos.networks.initial import Initial, InitialPolicy
from paddock.algos.pool.protocol import Pool
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeFloat, PositiveInt, Range, UnitFloat, check_fields
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Native, Serial, Vec

BatchSize = Annotated[int, Range("must be at least 2", low=2)]


@dataclass(kw_only=True, eq=False)
class MAPElites:
    """Quality diversity; conf/algo/map_elites.yaml explains each setting."""

    env: EnvSpec
    vec: Vec
    pool: Pool
    seed: int
    archive: Literal["grid", "cvt"]
    cells: Annotated[int | None, Range("must be at least 2, or null for a grid", low=2)]
    descriptors: tuple[Mapping[str, Any], ...]
    objective_offset: float
    archive_learning_rate: UnitFloat
    threshold_min: float | None
    emitters: PositiveInt
    batch_size: BatchSize
    strategy: StrategySettings | None
    selection: Literal["filter", "mu"] | None
    restart: Literal["no_improvement", "basic"] | None
    sigma: Annotated[float | None, Range("must be positive, or null with a strategy", above=0)]
    line_sigma: Annotated[float | None, Range("must be at least 0, or null with a strategy", low=0)]
    initial_std: NonNegativeFloat
    same_episodes: bool
    encoder: EncoderChoice
    custom_encoder: Mapping[str, Any] | None
    hidden_sizes: HiddenSizes
    activation: Activation
    lstm: bool
    episodes_per_member: PositiveInt
    episode_cap: EpisodeCap
    pairs_per_task: PairsPerTask
    eval_every_iterations: PositiveInt
    eval_episodes: PositiveInt
    eval_max_steps: PositiveInt

    iteration: int = field(init=False, default=0)
    step: int = field(init=False, default=0)  # environment steps of the members, without evaluations
    best_return: float = field(init=False, default=float("-inf"))  # highest mean return of an evaluation

    searches = 1
    plays_on_pool = True

    def __post_init__(self) -> None:
        self._check()
        self.vec.check(self.env)
        network = make_network(self)
        grid = self.archive == "grid"
        self.dimensions = read_descriptors(self.descriptors, network.inputs.width, self.env.metrics, grid)
        self.problem = Problem(
            env=self.env,
            vec=self.vec,
            network=network,
            seed=self.seed,
            episodes_per_member=self.episodes_per_member,
            episode_cap=self.episode_cap,
            eval_max_steps=self.eval_max_steps,
            observation_sampling=float(any(one.feature is not None for one in self.dimensions)),
            same_episodes=self.same_episodes,
        )
        size = count_parameters(network)
        check_memory(f"batch_size={self.batch_size}", self.population * size, "members", 128)
        cells = make_cells(self.dimensions, self.cells, size, self.seed)
        threshold_min = float("-inf") if self.threshold_min is None else self.threshold_min
        self.elites = Archive(cells, size, self.archive_learning_rate, threshold_min)
        self._emit_from(initial_parameters(network, 0.0, self.seed).astype(np.float32), self.initial_std)

    @property
    def population(self) -> int:
        """Members per iteration."""
        return self.emitters * self.batch_size

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Add a batch of members to the archive per iteration, indefinitely; the state is complete at every yield."""
        clock = Clock()
        self.pool.ask(count_useful_workers(self))
        while True:
            clock.lap("loop")
            draws = [keyed_generator(self.seed, Stream.EMITTER, self.iteration, k) for k in range(self.emitters)]
            asked = [one.ask(self.elites, draw) for one, draw in zip(self._emitters, draws, strict=True)]
            members = Members(np.concatenate(asked))
            clock.lap("learn")
            generation = run_job(self.pool, play_members, play_population(self, self.problem, members, self.iteration))
            check_lost(generation)
            clock.lap("wait")
            objective, descriptors = generation.returns.ravel(), self._describe(generation)
            self.iteration += 1
            self.step += int(generation.lengths.sum())
            added = self.elites.add(members.parameters, objective, descriptors, self.iteration)
            batches = np.split(objective, self.emitters), np.split(added.improvement, self.emitters)
            results = zip(self._emitters, *batches, draws, strict=True)
            restarts = sum(one.tell(self.elites, values, gains, draw) for one, values, gains, draw in results)
            metrics = self._metrics(generation, added) | {"qd/restarts": restarts}
            clock.lap("learn")
            worker_s = sum(end.seconds for end in generation.ends)
            if self.iteration % self.eval_every_iterations == 0:
                evaluation, seconds = self._evaluate()
                self.best_return = evaluation.get("eval/return_best", self.best_return)
                metrics, worker_s = metrics | evaluation, worker_s + seconds
            clock.lap("eval_wait")
            times = clock.read()
            yield metrics | times | worker_times(worker_s, times["system/iteration_s"], self.pool.threads)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that `plan` resumes from: arrays and plain data."""
        return {
            "iteration": self.iteration,
            "step": self.step,
            "best_return": self.best_return,
            "start": {"mean": self._start, "std": self._start_std},
            "archive": self.elites.state_dict(),
            "emitters": [{} if one.search is None else state_of(one.search) for one in self._emitters],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state, whose shapes the checkpoint has compared with `state_dict()`."""
        self.iteration, self.step = int(state["iteration"]), int(state["step"])
        self.best_return = float(state["best_return"])
        self._emit_from(state["start"]["mean"], float(state["start"]["std"]))
        self.elites.load_state_dict(state["archive"])
        for one, stored in zip(self._emitters, state["emitters"], strict=True):
            if one.search is not None:
                one.search = restored(one.search, stored)

    def evaluate_last(self) -> list[dict[str, float]]:
        """Evaluate the best elite; return its metrics, or nothing if all episodes were lost or there is no elite."""
        metrics, _ = self._evaluate()
        return [metrics] if metrics else []

    def policy(self, cell: int | None = None) -> FlatPolicy | ActorPolicy:
        """Return the elite of a cell; None: the one with the highest return."""
        return make_policy(
            self.problem.network, self.elites.solutions[self.elites.best if cell is None else cell], None
        )

    def initial_policy(self) -> InitialPolicy:
        """Return the best elite; see `TakesPolicy`."""
        return InitialPolicy.of(self.policy())

    def start_from(self, initial: Initial) -> None:
        """Start the emitters from a policy; see `TakesPolicy`."""
        self._emit_from(initial.for_policy("").apply_to(self.problem.network, self._start), self.sigma or 0.0)

    def replay(self, pool: Pool, episodes: int, seed: int) -> Archive:
        """Return an archive of the elites by their results in fresh episodes; see `KeepsElites`."""
        solutions = self.elites.solutions[self.elites.occupied]
        members = Members(np.concatenate([solutions, solutions[-1:]])[: len(solutions) + len(solutions) % 2])
        exact = NativePlayer.exact(self.env, native_network(self.problem.network)) is not None
        vec: Vec = Native(num_envs=64, threads=1) if exact else Serial(num_envs=8)
        other = copy.copy(self)
        other.pool, other.vec, other.emitters, other.batch_size = pool, vec, 1, len(members.parameters)
        other.episodes_per_member = episodes
        changes: dict[str, Any] = {"seed": seed, "stream": Stream.FRESH, "same_episodes": False}
        other.problem = replace(self.problem, vec=vec, episodes_per_member=episodes, **changes)
        generation = run_job(pool, play_members, play_population(other, other.problem, members, 0))
        check_lost(generation)
        archive = Archive(self.elites.cells, self.problem.num_parameters, 1.0, float("-inf"))
        archive.add(members.parameters, generation.returns.ravel(), other._describe(generation), self.iteration)
        return archive

    def describe(self) -> dict[str, str]:
        """Return a summary of the run, for `dry_run=true`."""
        network = self.problem.network
        names = ", ".join(one.of for one in self.dimensions)
        return {
            "actors": f"{self.vec.num_envs} environments per worker task",
            "learners": "1, in this process, on the CPU",
            "archive": f"{self.elites.cells.count:,} cells of {names}",
            "members": f"{self.population} by {self.emitters} emitters, enough for {count_useful_workers(self)} workers",
            "policy": f"{network.describe()}, {self.problem.num_parameters:,} parameters",
        }

    def _emit_from(self, start: NDArray[np.float32], std: float) -> None:
        """Create the emitters, whose first members are around `start` [P]; a strategy has its own deviation."""
        self._start, self._start_std = start, std
        filters, basic = self.selection == "filter", self.restart == "basic"
        self._emitters: list[Emitter] = [
            Variation(self.batch_size, self.sigma or 0.0, self.line_sigma or 0.0, start, std)
            if self.strategy is None
            else Improvement(self.strategy, self.batch_size, start, filters=filters, basic=basic)
            for _ in range(self.emitters)
        ]

    def _describe(self, generation: Generation) -> Floats:
        """Return the descriptors [M, D] of members; NaN for lost ones."""
        played = np.repeat(generation.lengths[:, 0] > 0, 2)
        shape = int(played.sum()), self.episodes_per_member, -1
        observations = np.array([sample.mean for sample in generation.moments]).reshape(shape)
        columns = np.moveaxis(generation.env_metrics.reshape(shape), -1, 0)
        results = generation.lengths.ravel()[played, None] / self.episodes_per_member, observations
        descriptors = np.full((self.population, len(self.dimensions)), np.nan)
        for k, one in enumerate(self.dimensions):
            descriptors[played, k] = one.values(*results, dict(zip(self.env.metrics, columns, strict=True)))
            if np.isnan(descriptors[:, k]).all():
                raise EvaluationLost(f"no episode reports {one.of}; episode_cap must not end them before it is known")
        return descriptors

    def _metrics(self, generation: Generation, added: Added) -> dict[str, float]:
        archive = self.elites
        objective, score = archive.objective[archive.occupied], archive.score(self.objective_offset)
        return {
            "iteration": self.iteration,
            "step": self.step,
            **training_metrics(generation),
            "qd/score": score,
            "qd/score_normalized": score / archive.cells.count,
            "qd/coverage": len(objective) / archive.cells.count,
            **({"qd/objective_max": objective.max(), "qd/objective_mean": objective.mean()} if len(objective) else {}),
            "qd/new": added.new,
            "qd/improved": added.improved,
            "qd/clipped": added.clipped,
            "qd/lost_members": int(np.isnan(added.improvement).sum()),
            "system/retries": sum(end.attempts - 1 for end in generation.ends),
        }

    def _evaluate(self) -> tuple[dict[str, float], float]:
        """Return the metrics of the best elite, if there is one, and the seconds that workers computed."""
        if not len(self.elites.occupied):
            return {}, 0.0
        best = self.elites.solutions[self.elites.best].astype(np.float64)
        return evaluate(self, self.problem, best, self.iteration, self.best_return, Interrupts())

    def _check(self) -> None:
        check_fields(self)
        require(self.batch_size % 2 == 0, f"batch_size={self.batch_size} must be even; try {self.batch_size + 1}")
        check_generation(self, "map_elites")
        require(self.env.seats == 1, f"env.id={self.env.id} has several agents; map_elites needs one")
        adaptive = self.strategy is not None
        fits = not adaptive or isinstance(self.strategy, SepCMASettings | CMASettings)
        require(fits, "strategy: emitters adapt sep_cma or cma; use algo/strategy=sep_cma")
        complete = not adaptive or self.selection is not None
        require(complete, "strategy: needs a selection and a restart; use algo=cma_me, which sets them")
        needed = {
            **{"cells": (self.archive == "cvt", "archive=cvt")},
            **dict.fromkeys(("selection", "restart"), (adaptive, "a strategy")),
            **dict.fromkeys(("sigma", "line_sigma"), (not adaptive, "variation, without a strategy")),
        }
        for key, (applies, where) in needed.items():
            value = getattr(self, key)
            require(value is not None or not applies, f"{key}=null: {where} needs a value; set it")
            require(value is None or applies, f"{key}={value} is for {where}; set it to null")
        slow = self.archive_learning_rate < 1
        problem = f"archive_learning_rate={self.archive_learning_rate} needs threshold_min"
        require(not slow or self.threshold_min is not None, f"{problem}; set it to the lowest return of interest")
