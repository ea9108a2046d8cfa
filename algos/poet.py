"""Paired Open-Ended Trailblazer (POET): co-evolution of environments and the agents that solve them.

Wang et al. 2019 (arXiv:1901.01753, Algorithm 2); Enhanced POET: Wang et al. 2020 (arXiv:2003.08536).

A niche pairs an environment with an agent. In each iteration all agents take one step of an evolution strategy.
Periodically, agents try to replace each other (transfer), and novel environments that are neither too easy nor too hard
are added (reproduction). All episodes are played on one pool; between transfers a niche may be two iterations ahead of
the slowest. All randomness is keyed, so results do not depend on the order in which tasks finish.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, episode_seed, keyed_generator
from paddock.algos.common.timing import WorkClock
from paddock.algos.evolution.generation import PairsPerTask, PopulationSize, check_generation, count_useful_workers
from paddock.algos.evolution.jobs import LOST, AgentJobs, Candidate, EvaluationResult, Proposal, StepResult
from paddock.algos.evolution.niche import Niche
from paddock.algos.evolution.optimizers import Adam
from paddock.algos.evolution.population import EpisodeCap, Problem, play_members
from paddock.algos.evolution.reproduction import Reproduction
from paddock.algos.evolution.side_by_side import learn_side_by_side
from paddock.algos.evolution.strategies.openai import Decay, OpenAISettings
from paddock.algos.evolution.transfer import compete
from paddock.algos.learning.episode_metrics import cut_metric
from paddock.algos.learning.flow import ConcurrentJobs
from paddock.algos.networks.flat import MLP, Activation, FlatPolicy, HiddenSizes, as_sizes
from paddock.algos.networks.initial import Initial, InitialPolicy
from paddock.algos.pool.protocol import Pool
from paddock.envs.errors import require
from paddock.envs.family import Encoding, Family
from paddock.envs.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, check_fields
from paddock.envs.vector import Vec

Floats = NDArray[np.float64]
Event = dict[str, Any]

COUNTERS = ("iteration", "step", "numbers", "transfers", "attempts")


@dataclass(kw_only=True, eq=False)
class POET:
    """POET; conf/algo/poet.yaml explains each setting."""

    family: Family
    vec: Vec
    pool: Pool
    seed: int
    population: PopulationSize
    sigma: PositiveFloat
    sigma_decay: Decay
    sigma_floor: float
    learning_rate: PositiveFloat
    learning_rate_decay: Decay
    learning_rate_floor: float
    weight_decay: NonNegativeFloat
    hidden_sizes: HiddenSizes
    activation: Activation
    initial_std: NonNegativeFloat
    episode_cap: EpisodeCap
    same_ground: bool
    eval_episodes: PositiveInt
    eval_max_steps: PositiveInt
    pairs_per_task: PairsPerTask
    transfer_every: PositiveInt
    transfer_test: Literal["original", "enhanced"]
    transfer_window: PositiveInt
    transfer_proposal: Proposal
    reproduce_every: PositiveInt
    reproduce_score: float
    max_children: PositiveInt
    max_admitted: PositiveInt
    max_niches: PositiveInt
    criterion_low: float
    criterion_high: float
    child_proposal: Proposal
    novelty: Literal["encoding", "pata_ec"]
    neighbours: PositiveInt
    solved_score: float

    iteration: int = field(init=False, default=0)
    step: int = field(init=False, default=0)  # environment steps of all episodes
    niches: dict[int, Niche] = field(init=False, default_factory=dict)  # active niches by number, oldest first
    archive: dict[int, Niche] = field(init=False, default_factory=dict)  # retired niches
    numbers: int = field(init=False, default=0)  # niche numbers used so far
    transfers: int = field(init=False, default=0)  # accepted attempts
    attempts: int = field(init=False, default=0)

    plays_on_pool = True
    takes_family = True

    def __post_init__(self) -> None:
        self._check()
        self.env = self.family.env_spec(self.family.flat(), None)
        self.vec.check(self.env)
        self.mlp = MLP.for_spaces(
            self.env.observations, self.env.spaces[1], as_sizes(self.hidden_sizes), self.activation
        )
        names = [one.name for one in fields(OpenAISettings) if one.name != "optimizer"]
        strategy = OpenAISettings(optimizer="adam", **{name: getattr(self, name) for name in names})
        self.jobs = AgentJobs(self, strategy)
        self.reproduction = Reproduction(self.jobs, self)
        initial = keyed_generator(self.seed, Stream.INITIAL).standard_normal(self.mlp.num_parameters)
        self._first = self.initial_std * initial  # agent of the first niche
        self._events: list[Event] = []

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Take one step in every niche per iteration, indefinitely; the state is complete at every yield."""
        with closing(ConcurrentJobs[Any, Any](self.pool, play_members)) as together:
            while True:
                t = self.iteration
                clock = WorkClock(together)
                if not self.niches:
                    self._create_first_niche()
                if t > 0 and t % self.reproduce_every == 0:
                    self._reproduce(together)
                self.pool.ask(count_useful_workers(self))
                for ends in learn_side_by_side(together, self.jobs, self.niches, t, self._next_barrier(t)):
                    metrics = self._record_results(ends)
                    if self.iteration % self.transfer_every == 0 and len(self.niches) > 1:
                        self._transfer(together)
                    self.iteration += 1
                    yield metrics | self._summary() | clock.read(self.pool.threads)

    @property
    def searches(self) -> int:
        """Number of niches that train concurrently."""
        return max(len(self.niches), 1)

    def _next_barrier(self, t: int) -> int:
        """Return the first iteration after t that no niche may start before all others have reached it."""
        transfer = t + -t % self.transfer_every  # the last iteration before the barrier
        return min(transfer + 1, t - t % self.reproduce_every + self.reproduce_every)

    def _record_results(self, ends: Mapping[int, tuple[StepResult, EvaluationResult]]) -> dict[str, float]:
        for number, (stepped, scored) in ends.items():
            niche = self.niches[number]
            score = niche.score if scored.score == LOST else scored.score
            recent = (*niche.recent, score)[-self.transfer_window :]
            learned = niche.learned + stepped.steps
            after = replace(niche, mean=stepped.mean, adam=stepped.adam, recent=recent, learned=learned)
            self.niches[number] = self._with_score(after, score)
            self.step += stepped.steps + scored.steps
        cut = cut_metric(sum(scored.cut for _, scored in ends.values()))
        return _mean("train/return_mean", [stepped.return_mean for stepped, _ in ends.values()]) | cut

    def _with_score(self, niche: Niche, score: float) -> Niche:
        solved = niche.solved
        if solved is None and score >= self.solved_score:
            solved = self.iteration + 1
            self._note("solved", niche=niche.number, score=score, age=self.iteration + 1 - niche.born)
        return replace(niche, score=score, best=max(niche.best, score), solved=solved)

    def _transfer(self, together: ConcurrentJobs[Any, Any]) -> None:
        """Let every agent try every other niche, then replace agents simultaneously."""
        before = dict(self.niches)
        enhanced, proposal = self.transfer_test == "enhanced", self.transfer_proposal
        competition = compete(together, self.jobs, before, self.iteration, enhanced=enhanced, proposal=proposal)
        for target, rivals in competition.items():
            for rival in rivals:
                trial = rival.trial
                self.attempts += 1
                self.step += trial.steps
                self._note(
                    "transfer",
                    source=rival.source,
                    target=target,
                    accepted=rival.accepted,
                    direct=trial.direct.score,
                    proposal=None if trial.proposal is None else trial.proposal.score,
                    incumbent=before[target].score,
                    bound=rival.bound,
                    reason=rival.reason,
                )
            for rival in rivals:
                if rival.accepted and rival.candidate is not None:
                    self.transfers += 1
                    self.niches[target] = self._replace_agent(before[target], before[rival.source], rival.candidate)

    def _replace_agent(self, niche: Niche, source: Niche, candidate: Candidate) -> Niche:
        adam, learned = Adam.fresh(candidate.mean.size), source.learned + candidate.learned
        return self._with_score(replace(niche, mean=candidate.mean, adam=adam, learned=learned), candidate.score)

    def _reproduce(self, together: ConcurrentJobs[Any, Any]) -> None:
        """Add novel environments of suitable difficulty; retire the oldest beyond `max_niches`."""
        parents = [niche for niche in self.niches.values() if niche.score >= self.reproduce_score]
        if not parents:
            best = max(niche.score for niche in self.niches.values())
            self._note("no parents", best=best, reason=f"no agent scores {self.reproduce_score:g} in its niche")
            return
        before = dict(self.niches)
        results, steps = self.reproduction.evaluate_children(
            together, self.iteration, parents, before, self.archive, self._make
        )
        self.step += steps
        for result in results:
            info = {"score": result.score, "novelty": result.novelty, "reason": result.reason}
            if result.source is None or result.candidate is None:
                self._note_environment("reject", result.child, **info)
                continue
            niche = replace(result.child, passed=result.passed)
            self._note_environment("birth", niche, **info, source=result.source, env=niche.problem.env.fields)
            self.niches[niche.number] = self._replace_agent(niche, before[result.source], result.candidate)
        while len(self.niches) > self.max_niches:
            oldest = next(iter(self.niches.values()))
            reason = f"the oldest of {len(self.niches)}, and max_niches={self.max_niches}"
            self._note(
                "retire", niche=oldest.number, score=oldest.score, age=self.iteration + 1 - oldest.born, reason=reason
            )
            self.archive[oldest.number] = replace(self.niches.pop(oldest.number), retired=self.iteration + 1)

    def _create_first_niche(self) -> None:
        """Create the first niche: the family's flat environment with a random agent, or with another run's."""
        niche = self._make(None, self.family.flat(), self._first)
        self._note_environment("birth", niche, reason="the first", env=niche.problem.env.fields)
        self.niches[niche.number] = niche

    def _make(self, parent: Niche | None, encoding: Encoding, mean: Floats | None = None) -> Niche:
        """Build a niche with a new number and an agent, by default its parent's."""
        number, self.numbers = self.numbers, self.numbers + 1
        agent = parent.mean if mean is None and parent is not None else mean
        assert agent is not None
        return Niche(
            number=number,
            parent=None if parent is None else parent.number,
            encoding=encoding,
            problem=self._problem(number, encoding),
            born=self.iteration + 1,
            mean=agent,
            adam=Adam.fresh(agent.size),
        )

    def _problem(self, number: int, encoding: Encoding) -> Problem:
        ground = episode_seed(self.seed, Stream.GROUND, 0, number) if self.same_ground else None
        return Problem(
            env=self.family.env_spec(encoding, ground),
            vec=self.vec,
            network=self.mlp,
            seed=self.seed,
            episodes_per_member=1,
            episode_cap=self.episode_cap,
            eval_max_steps=self.eval_max_steps,
            observation_sampling=0.0,
        )

    def drain_events(self) -> list[Event]:
        """Return the events since the last call: births, transfers, rejections and retirements, with reasons."""
        events, self._events = self._events, []
        return events

    def policy(self, which: int | None = None) -> FlatPolicy:
        """Return the agent of a niche, active or archived; None: of the newest niche."""
        number = max(self.niches, default=0) if which is None else which
        return FlatPolicy(self.mlp, self._known(number).mean.astype(np.float32), None)

    def initial_policy(self) -> InitialPolicy:
        """Return the agent of the newest niche; see `TakesPolicy`."""
        return InitialPolicy.of(self.policy())

    def start_from(self, initial: Initial) -> None:
        """Initialize the first niche's agent from a policy; see `TakesPolicy`."""
        self._first = initial.for_policy("").apply_to(self.mlp, self._first.astype(np.float32)).astype(np.float64)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that `plan` resumes from: arrays and plain data."""
        all_niches = [*self.archive.values(), *self.niches.values()]
        moments = [[niche.adam.momentum, niche.adam.variance] for niche in all_niches]
        size = self.mlp.num_parameters
        return {
            **{name: getattr(self, name) for name in COUNTERS},
            "niches": [niche.describe() for niche in all_niches],
            "means": np.array([niche.mean for niche in all_niches]).reshape(-1, size),
            "moments": np.array(moments).reshape(-1, 2, size),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state, whose shapes the checkpoint has compared with `state_dict()`."""
        for name in COUNTERS:
            setattr(self, name, int(state[name]))
        self.niches, self.archive = {}, {}
        for plain, mean, moments in zip(state["niches"], state["means"], state["moments"], strict=True):
            number = plain["number"]
            niches = self.niches if plain["retired"] is None else self.archive
            niches[number] = Niche.restore(plain, self._problem(number, plain["encoding"]), mean, moments)

    def describe(self) -> dict[str, str]:
        """Return a summary of the run, for `dry_run=true`."""
        return {
            "actors": f"{self.vec.num_envs} environments per worker task",
            "learners": "1, in this process, on the CPU",
            "niches": f"at most {self.max_niches}, each with {self.population} members",
            "policy": f"{self.mlp.describe()}, {self.mlp.num_parameters:,} parameters",
        }

    def _summary(self) -> dict[str, float]:
        scores = {number: niche.score for number, niche in self.niches.items()}
        all_niches = [*self.archive.values(), *self.niches.values()]
        return {
            "iteration": self.iteration,
            "step": self.step,
            **_mean("eval/return_mean", list(scores.values())),
            "eval/return_max": max(scores.values()),
            "poet/active": len(self.niches),
            "poet/archived": len(self.archive),
            # The paper's definition: passed the criterion against all agents so far, and solved since.
            "poet/annecs": sum(niche.passed and niche.solved is not None for niche in all_niches),
            # The definition of the authors' code, which does not require a solution.
            "poet/annecs_admitted": sum(niche.passed for niche in all_niches),
            "poet/transfers": self.transfers,
            "poet/transfer_attempts": self.attempts,
            **{f"score/{number}": score for number, score in scores.items()},
        }

    def _known(self, number: int) -> Niche:
        known = self.archive | self.niches
        require(number in known, f"niche={number} is not a niche of this run; known: {', '.join(map(str, known))}")
        return known[number]

    def _note(self, event: str, **what: Any) -> None:
        self._events.append({"iteration": self.iteration + 1, "step": self.step, "event": event, **what})

    def _note_environment(self, event: str, niche: Niche, **what: Any) -> None:
        self._note(event, niche=niche.number, parent=niche.parent, encoding=niche.encoding, **what)

    def _check(self) -> None:
        check_fields(self)
        check_generation(self, "poet")
        low, high = self.criterion_low, self.criterion_high
        require(low <= high, f"criterion_low={low} must not be above criterion_high={high}")


def _mean(name: str, values: Sequence[float]) -> dict[str, float]:
    finite = [value for value in values if np.isfinite(value)]
    return {name: float(np.mean(finite))} if finite else {}
