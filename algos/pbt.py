"""Population Based Training (Jaderberg et al. 2017, arXiv:1711.09846): hyperparameter search during training.

Members train in parallel, each with its own hyperparameters. After every round the worst members copy the weights of
the best (exploit: truncation selection) and perturb their hyperparameters (explore). A member's round is one task on
the pool. All randomness is keyed, so results do not depend on the order in which tasks finish.
"""

import functools
import itertools
import logging
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.common.recipe import AlgorithmRecipe
from paddock.algos.common.timing import worker_times
from paddock.algos.evolution.hyperparameters import Value, read_space
from paddock.algos.evolution.pbt_tasks import LOST, Member, RoundSettings, play_round
from paddock.algos.learning.episode_metrics import count_cut, cut_metric, mean_env_metrics
from paddock.algos.learning.replay.disk_space import ReplayRefused
from paddock.algos.networks.initial import InitialPolicy
from paddock.algos.pool.protocol import Done, Pool, PoolError
from paddock.algos.protocol import ChecksDiskSpace, Describes, KeepsFiles, LearnsInEnv, TakesPolicy
from paddock.envs.errors import ConfigError, PaddockError, require
from paddock.envs.ranges import PositiveInt, Range, UnitFloat, check_fields
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec
from paddock.envs.vector.remote import check_unshared

log = logging.getLogger(__name__)

Event = dict[str, Any]

COUNTERS = ("iteration", "step", "leader", "best_iteration")


class MembersLost(PaddockError):
    """All members of a round were lost."""


@dataclass(kw_only=True, eq=False)
class PBT:
    """Population Based Training; conf/algo/pbt.yaml explains each setting."""

    env: EnvSpec
    vec: Vec
    pool: Pool
    seed: int
    folder: Path | None  # for the files of members' algorithms, such as replay
    member: AlgorithmRecipe
    members: Annotated[int, Range("must be at least 2", low=2)]
    interval: PositiveInt
    quantile: Annotated[float, Range("must be in [0, 0.5]; 0 disables exploitation", low=0, high=0.5)]
    factors: tuple[float, ...]
    resample: UnitFloat
    explore: Mapping[str, Mapping[str, Any]]
    eval_episodes: PositiveInt
    eval_max_steps: PositiveInt

    iteration: int = field(init=False, default=0)  # rounds
    step: int = field(init=False, default=0)  # training steps of all members
    leader: int = field(init=False, default=0)  # member with the best score of the last round
    best: Member | None = field(init=False, default=None)  # member with the best score of all rounds, at that time
    best_iteration: int = field(init=False, default=0)

    plays_on_pool = True
    trains_members = True
    keeps_files = True
    policy_names = ("last", "best")

    def __post_init__(self) -> None:
        self._check()
        self.rounds = RoundSettings(
            self.member,
            self.env,
            self.vec,
            self.seed,
            self.interval,
            self.eval_episodes,
            self.eval_max_steps,
            isinstance(self.member.target, KeepsFiles),
            None if self.folder is None else self.folder.absolute(),
        )
        self.space = read_space(self.explore, self.member.target, self.member.settings)
        first = self.rounds.make({}, 0)
        self.kind = type(first).__name__
        if isinstance(first, LearnsInEnv) and first.env.agent_id_feature != self.env.agent_id_feature:
            # Evaluations must show members' policies the observations that they were trained on.
            self.env = replace(self.env, agent_id_feature=first.env.agent_id_feature)
            self.rounds = replace(self.rounds, env=self.env)
        self._check_extremes(first)
        self.population = [self._make_member(number) for number in range(self.members)]
        self._events: list[Event] = []

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Train all members for one round per iteration, indefinitely; the state is complete at every yield."""
        if self.iteration == 0:
            for number, member in enumerate(self.population):
                self._note("birth", member=number, seed=member.seed, hyperparameters=member.settings)
        while True:
            begun = time.perf_counter()
            self.pool.ask(self.members)
            ends = self._learn()
            metrics = self._record_results(ends)
            scores = [member.score for member in self.population]
            settings = self._choose_leader(scores)
            exploited = self._exploit(scores)
            self.iteration += 1
            worker_s, seconds = sum(done.seconds for done in ends), time.perf_counter() - begun
            yield {
                "iteration": self.iteration,
                "step": self.step,
                **metrics,
                "eval/return_mean": max(scores),
                "eval/return_best": self.best.score if self.best else LOST,
                "pbt/best": max(scores),
                "pbt/median": float(np.median(scores)),
                "pbt/worst": min(scores),
                "pbt/leader": self.leader,
                "pbt/exploited": exploited,
                **{f"pbt/{name}": value for name, value in settings.items()},
                "system/iteration_s": seconds,
                **worker_times(worker_s, seconds, self.pool.threads),
                "system/retries": sum(done.attempts - 1 for done in ends),
            }

    def _learn(self) -> list[Done]:
        tasks = [(member, self.iteration) for member in self.population]
        dones = self.pool.imap_unordered(functools.partial(play_round, self.rounds), tasks)
        ends = sorted(dones, key=lambda done: done.index)
        for done in ends:
            # A full disk or a failed pool affects all members: stop the run and lose no round.
            if isinstance(done.error, PoolError | ReplayRefused):
                raise done.error
        return ends

    def _record_results(self, ends: Sequence[Done]) -> dict[str, float]:
        """Record the members' results; a lost member keeps its previous weights and ranks last.

        Its old score must not count: it may be another member's, and a copy of this member would fail in the same way.
        """
        lost = [done for done in ends if done.error is not None]
        for done in lost:
            reason = f"{type(done.error).__name__}: {done.error}"
            self._note("lost", member=done.index, reason=reason)
            log.warning("member %d was lost in round %d and ranks last: %s", done.index, self.iteration + 1, reason)
        if len(lost) == len(ends):
            first = lost[0].error
            raise MembersLost(f"all members were lost; first error: {type(first).__name__}: {first}") from first
        for done in lost:
            self.population[done.index] = replace(self.population[done.index], score=LOST)
        kept = [done for done in ends if done.error is None]
        for done in kept:
            before, metrics = self.population[done.index], done.value.metrics
            score = float(done.value.returns.mean())
            step = int(metrics["step"])
            self.step += step - before.step
            # Scores must be ordered, so a return that is not finite counts as the worst.
            score = score if np.isfinite(score) else LOST
            self.population[done.index] = replace(
                before, state=done.value.state, step=step, score=score, files=done.value.files
            )
        best = max(kept, key=lambda done: self.population[done.index].score).value
        means = mean_env_metrics("eval", self.env.metrics, best.env_metrics)
        for name in ("return", *self.env.metrics):
            known = [done.value.metrics[key] for done in kept if (key := f"train/{name}_mean") in done.value.metrics]
            means |= {f"train/{name}_mean": float(np.mean(known))} if known else {}
        lengths = np.concatenate([done.value.lengths for done in kept])
        return means | {"pbt/lost": len(lost)} | cut_metric(count_cut(lengths, self.eval_max_steps, self.env))

    def _choose_leader(self, scores: Sequence[float]) -> dict[str, Value]:
        """Update the leader and the best member of all rounds; return the leader's hyperparameters."""
        self.leader = rank(scores)[0]
        leader = self.population[self.leader]
        if self.best is None or leader.score > self.best.score:
            self.best, self.best_iteration = leader.without_files(), self.iteration + 1
        return leader.settings

    def _exploit(self, scores: Sequence[float]) -> int:
        """Replace the worst members by perturbed copies of the best; return the number replaced."""
        order, before, exploited = rank(scores), list(self.population), 0
        count = max(1, int(self.quantile * self.members)) if self.quantile else 0
        for number in sorted(order[len(order) - count :]):
            generator = keyed_generator(self.seed, Stream.MEMBER, self.iteration + 1, number)
            chosen = order[generator.integers(count)]
            member, source = before[number], before[chosen]
            if not source.score > member.score:
                continue
            settings = self._perturb(source.settings, generator)
            files = f"member-{number}-from-{self.iteration + 1}" if self.rounds.keep_files else ""
            self.population[number] = member.copy_from(source, settings, files)
            if files:
                self.rounds.link_files(source, files)
            exploited += 1
            self._note(
                "exploit",
                member=number,
                source=chosen,
                score=member.score,
                source_score=source.score,
                before=member.settings,
                source_hyperparameters=source.settings,
                hyperparameters=settings,
            )
        return exploited

    def _perturb(self, settings: Mapping[str, Value], generator: np.random.Generator) -> dict[str, Value]:
        return {
            name: dimension.sample(generator)
            if generator.random() < self.resample
            else dimension.perturb(settings[name], self.factors, generator)
            for name, dimension in self.space.items()
        }

    def _make_member(self, number: int) -> Member:
        generator = keyed_generator(self.seed, Stream.MEMBER, 0, number)
        seed = int(generator.integers(2**31))
        settings = {name: dimension.sample(generator) for name, dimension in self.space.items()}
        files = f"member-{number}" if self.rounds.keep_files else ""
        return Member(seed, settings, LOST, 0, self.rounds.make(settings, seed).state_dict(), files)

    def policy(self, which: Literal["last", "best"] = "last") -> Any:
        """Return the policy of the current leader, or of the best member of all rounds, if any."""
        require(
            which == "last" or self.best is not None, "which=best is unknown before the first round; use which=last"
        )
        member = self.best if which == "best" and self.best is not None else self.population[self.leader]
        algorithm = self.rounds.make(member.settings, member.seed)
        algorithm.load_state_dict(member.state)
        return algorithm.policy()

    def initial_policy(self) -> InitialPolicy:
        """Return the leader's policy; see `TakesPolicy`."""
        return self._restored_algorithm(self.population[self.leader]).initial_policy()

    def start_from(self, initial: InitialPolicy) -> None:
        """Initialize every member from a policy; see `TakesPolicy`."""
        for number, member in enumerate(self.population):
            algorithm = self._restored_algorithm(member)
            algorithm.start_from(initial)
            self.population[number] = replace(member, state=algorithm.state_dict())

    def _restored_algorithm(self, member: Member) -> Any:
        """Return a member's algorithm in its present state, if it can start from a policy."""
        algorithm = self.rounds.make(member.settings, member.seed)
        kind = type(algorithm).__name__
        require(isinstance(algorithm, TakesPolicy), f"the members' {kind} cannot start from a policy; see TakesPolicy")
        algorithm.load_state_dict(member.state)
        return algorithm

    def policy_iteration(self, which: str) -> int:
        """Return the iteration of a policy."""
        return self.best_iteration if which == "best" else self.iteration

    def drain_events(self) -> list[Event]:
        """Return the events since the last call: births, losses and exploits."""
        events, self._events = self._events, []
        return events

    def state_dict(self) -> dict[str, Any]:
        """Return the state that `plan` resumes from: arrays and plain data."""
        return {
            **{name: getattr(self, name) for name in COUNTERS},
            "members": {str(number): member.state_dict() for number, member in enumerate(self.population)},
            "best": None if self.best is None else self.best.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state, whose shapes the checkpoint has compared with `state_dict()`."""
        for name in COUNTERS:
            setattr(self, name, int(state[name]))
        self.population = [Member.restore(state["members"][str(number)]) for number in range(self.members)]
        self.best = None if state["best"] is None else Member.restore(state["best"])

    def check_disk_space(self, checkpoints: int, checkpoint_bytes: int, members: int = 1) -> None:
        """Check the space for all members, each as large as the leader; see `ChecksDiskSpace`."""
        leader = self.population[self.leader]
        algorithm = self.rounds.make(leader.settings, leader.seed, leader.files)
        if isinstance(algorithm, ChecksDiskSpace):
            algorithm.load_state_dict(leader.state)
            algorithm.check_disk_space(checkpoints, checkpoint_bytes, members * self.members)

    def describe(self) -> dict[str, str]:
        """Return a summary of the run, for `dry_run=true`."""
        ranges = [f"{name} {list(dimension.extremes)}" for name, dimension in self.space.items()]
        first = self.rounds.make({}, 0)
        own = first.describe() if isinstance(first, Describes) else {}
        return {
            "members": f"{self.members} of {self.kind}, each with {self.vec.num_envs} environments, one task per round",
            "round": f"{self.interval} iterations and {self.eval_episodes} evaluation episodes",
            "explored": ", ".join(ranges),
            **{f"{name} each": text for name, text in own.items()},
        }

    def _note(self, event: str, **what: Any) -> None:
        self._events.append({"iteration": self.iteration + 1, "step": self.step, "event": event, **what})

    def _check(self) -> None:
        check_fields(self)
        check_unshared(self.vec, "algo=pbt builds environments for each member")
        given = f"factors={list(self.factors)}"
        both = bool(self.factors) and 0 < min(self.factors) < 1 < max(self.factors)
        require(both, f"{given} must be positive, some below and some above 1; try [0.8, 1.25]")
        require(bool(self.explore), "explore is empty; set low, high and log, or choices, of a key")

    def _check_extremes(self, first: Any) -> None:
        """Check that members can be built at the extremes of each hyperparameter, and of pairs, and exchange states."""
        before = leaves(first.state_dict())
        for name, dimension in self.space.items():
            for value in dimension.extremes:
                after = leaves(self._make_explored({name: value}).state_dict())
                what = f"explore: {name}={value} changes the shapes of a member's state, so members cannot copy it"
                require(after == before, f"{what}; set it for all members: algo.member.{name}=")
        ends = {name: (min(one.extremes), max(one.extremes)) for name, one in self.space.items()}
        for (name, values), (other, others) in itertools.combinations(ends.items(), 2):
            for value, another in itertools.product(values, others):
                self._make_explored({name: value, other: another})

    def _make_explored(self, settings: Mapping[str, Value]) -> Any:
        try:
            return self.rounds.make(settings, 0)
        except ConfigError as error:
            both = " with ".join(f"{name}={value}" for name, value in settings.items())
            raise ConfigError(f"explore: {f'{both}: ' if len(settings) > 1 else ''}{error}") from error


def rank(scores: Sequence[float]) -> list[int]:
    """Return member indices from best to worst; ties keep their order."""
    return sorted(range(len(scores)), key=lambda number: -scores[number])


def leaves(state: Any, path: str = "") -> dict[str, tuple[int, ...] | None]:
    """Map the path of every leaf of a state to its shape; None if it is no array."""
    if not isinstance(state, Mapping):
        return {path: getattr(state, "shape", None)}
    return {leaf: shape for name in state for leaf, shape in leaves(state[name], f"{path}.{name}").items()}
