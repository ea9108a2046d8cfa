"""Paired Open-Ended Trailblazer: environments and the agents that solve them, co-evolved.

Wang et al. 2019 (arXiv:1901.01753, Algorithm 2); Enhanced POET: Wang et al. 2020 (arXiv:2003.08536).

Every niche is an environment with an agent. In each iteration all agents take one step of an evolution strategy; now
and then agents try to replace each other (transfer), and environments that are neither too easy nor too hard, and new,
are added (reproduction). All that any of this plays goes to one pool, and between transfers a niche may be two
iterations ahead of the slowest. Every draw is keyed, so no number depends on who was faster.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, episode_seed, keyed_generator
from paddock.algos.common.timing import WorkClock
from paddock.algos.evolution.gradient import Decay
from paddock.algos.evolution.jobs import LOST, AgentJobs, Candidate, Proposal, Scored, Stepped
from paddock.algos.evolution.niche import Niche
from paddock.algos.evolution.optimizers import Adam
from paddock.algos.evolution.population import EpisodeCap, Problem, play_members
from paddock.algos.evolution.reproduction import Reproduction
from paddock.algos.evolution.side_by_side import learn_side_by_side
from paddock.algos.evolution.strategy import (
    PairsPerTask,
    PopulationSize,
    check_strategy,
    count_useful_workers,
)
from paddock.algos.evolution.transfer import compete
from paddock.algos.learning.episode_metrics import cut_metric
from paddock.algos.learning.flow import Together
from paddock.algos.networks.flat import MLP, Activation, FlatPolicy
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
    """The algorithm: its settings (conf/algo/poet.yaml explains each), its parts, and its state."""

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
    hidden_sizes: tuple[int, ...]
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
    step: int = field(init=False, default=0)  # environment steps of everything that was played
    niches: dict[int, Niche] = field(init=False, default_factory=dict)  # active ones by number, the oldest first
    archive: dict[int, Niche] = field(init=False, default_factory=dict)  # retired ones
    numbers: int = field(init=False, default=0)  # given out so far
    transfers: int = field(init=False, default=0)  # accepted
    attempts: int = field(init=False, default=0)

    plays_on_pool = True
    takes_family = True

    def __post_init__(self) -> None:
        self._check()
        self.env = self.family.env_spec(self.family.flat(), None)
        self.vec.check(self.env)
        self.mlp = MLP.for_spaces(self.env.observations, self.env.spaces[1], tuple(self.hidden_sizes), self.activation)
        self.jobs = AgentJobs(self)
        self.reproduction = Reproduction(self.jobs, self)
        initial = keyed_generator(self.seed, Stream.INITIAL).standard_normal(self.mlp.num_parameters)
        self._first = self.initial_std * initial  # the agent of the first niche
        self._events: list[Event] = []

    def plan(self) -> Generator[dict[str, float], None, None]:
        """One step of every niche an iteration, for ever; the state is complete at every yield."""
        with closing(Together[Any, Any](self.pool, play_members)) as together:
            while True:
                t = self.iteration
                clock = WorkClock(together)
                if not self.niches:
                    self._found()
                if t > 0 and t % self.reproduce_every == 0:
                    self._reproduce(together)
                self.pool.ask(count_useful_workers(self))
                for ends in learn_side_by_side(together, self.jobs, self.niches, t, self._next_meeting(t)):
                    metrics = self._settle(ends)
                    if self.iteration % self.transfer_every == 0 and len(self.niches) > 1:
                        self._transfer(together)
                    self.iteration += 1
                    yield metrics | self._summary() | clock.read(self.pool.threads)

    @property
    def searches(self) -> int:
        """How many niches learn side by side."""
        return max(len(self.niches), 1)

    def _next_meeting(self, t: int) -> int:
        """The first iteration after t that no niche may begin before the others have caught up."""
        transfer = t + -t % self.transfer_every  # its iteration is the last before the meeting
        return min(transfer + 1, t - t % self.reproduce_every + self.reproduce_every)

    def _settle(self, ends: Mapping[int, tuple[Stepped, Scored]]) -> dict[str, float]:
        """Enter what one iteration brought every niche."""
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
        """The niche with a new score of its agent."""
        solved = niche.solved
        if solved is None and score >= self.solved_score:
            solved = self.iteration + 1
            self._note("solved", niche=niche.number, score=score, age=self.iteration + 1 - niche.born)
        return replace(niche, score=score, best=max(niche.best, score), solved=solved)

    def _transfer(self, together: Together[Any, Any]) -> None:
        """Let every agent try every other niche; the best takes over there, all at the same moment."""
        before = dict(self.niches)
        enhanced, proposal = self.transfer_test == "enhanced", self.transfer_proposal
        met = compete(together, self.jobs, before, self.iteration, enhanced=enhanced, proposal=proposal)
        for target, rivals in met.items():
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
                if rival.accepted and rival.offer is not None:
                    self.transfers += 1
                    self.niches[target] = self._moved_in(before[target], before[rival.source], rival.offer)

    def _moved_in(self, niche: Niche, source: Niche, offer: Candidate) -> Niche:
        """The niche with another agent: its optimizer and its noise begin anew."""
        adam, learned = Adam.fresh(offer.mean.size), source.learned + offer.learned
        return self._with_score(replace(niche, mean=offer.mean, adam=adam, learned=learned), offer.score)

    def _reproduce(self, together: Together[Any, Any]) -> None:
        """Add environments that are neither too easy nor too hard, and new; retire the oldest where there are many."""
        parents = [niche for niche in self.niches.values() if niche.score >= self.reproduce_score]
        if not parents:
            best = max(niche.score for niche in self.niches.values())
            self._note("no parents", best=best, reason=f"no agent scores {self.reproduce_score:g} in its niche")
            return
        before = dict(self.niches)
        verdicts, steps = self.reproduction.judge(together, self.iteration, parents, before, self.archive, self._make)
        self.step += steps
        for verdict in verdicts:
            told = {"score": verdict.score, "novelty": verdict.novelty, "reason": verdict.reason}
            if verdict.source is None or verdict.offer is None:
                self._note_environment("reject", verdict.child, **told)
                continue
            niche = replace(verdict.child, passed=verdict.passed)
            self._note_environment("birth", niche, **told, source=verdict.source, env=niche.problem.env.fields)
            self.niches[niche.number] = self._moved_in(niche, before[verdict.source], verdict.offer)
        while len(self.niches) > self.max_niches:
            oldest = next(iter(self.niches.values()))
            reason = f"the oldest of {len(self.niches)}, and max_niches={self.max_niches}"
            self._note(
                "retire", niche=oldest.number, score=oldest.score, age=self.iteration + 1 - oldest.born, reason=reason
            )
            self.archive[oldest.number] = replace(self.niches.pop(oldest.number), retired=self.iteration + 1)

    def _found(self) -> None:
        """Make the first niche: the family's flat environment, and a random agent, or one that another run has."""
        niche = self._make(None, self.family.flat(), self._first)
        self._note_environment("birth", niche, reason="the first", env=niche.problem.env.fields)
        self.niches[niche.number] = niche

    def _make(self, parent: Niche | None, encoding: Encoding, mean: Floats | None = None) -> Niche:
        """A niche with a new number and, where none is given, its parent's agent."""
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
            mlp=self.mlp,
            seed=self.seed,
            noise_table_size=None,
            episodes_per_member=1,
            episode_cap=self.episode_cap,
            eval_max_steps=self.eval_max_steps,
            observation_sampling=0.0,
        )

    # What is known of it

    def drain_events(self) -> list[Event]:
        """What happened since this was asked last: births, transfers, rejections, retirements, with their reasons."""
        events, self._events = self._events, []
        return events

    def policy(self, which: int | None = None) -> FlatPolicy:
        """The agent of a niche, as it is now or was when it retired; None: of the newest niche.

        Raises:
            ConfigError: there never was such a niche.
        """
        number = max(self.niches, default=0) if which is None else which
        return FlatPolicy(self.mlp, self._known(number).mean.astype(np.float32), None)

    def initial_policy(self) -> InitialPolicy:
        """See `TakesPolicy`: the agent of the newest niche."""
        return InitialPolicy.of(self.policy())

    def start_from(self, initial: Initial) -> None:
        """See `TakesPolicy`: the first niche's agent."""
        self._first = initial.for_policy("").apply_to(self.mlp, self._first.astype(np.float32)).astype(np.float64)

    def state_dict(self) -> dict[str, Any]:
        """Everything that `plan` goes on from: arrays and plain data."""
        everyone = [*self.archive.values(), *self.niches.values()]
        moments = [[niche.adam.momentum, niche.adam.variance] for niche in everyone]
        size = self.mlp.num_parameters
        return {
            **{name: getattr(self, name) for name in COUNTERS},
            "niches": [niche.describe() for niche in everyone],
            "means": np.array([niche.mean for niche in everyone]).reshape(-1, size),
            "moments": np.array(moments).reshape(-1, 2, size),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; shapes have been compared with `state_dict()` by the checkpoint."""
        for name in COUNTERS:
            setattr(self, name, int(state[name]))
        self.niches, self.archive = {}, {}
        for plain, mean, moments in zip(state["niches"], state["means"], state["moments"], strict=True):
            number = plain["number"]
            there = self.niches if plain["retired"] is None else self.archive
            there[number] = Niche.restore(plain, self._problem(number, plain["encoding"]), mean, moments)

    def describe(self) -> dict[str, str]:
        """What a run would assemble, for `dry_run=true`."""
        sizes = "-".join(map(str, self.mlp.sizes))
        return {
            "actors": f"{self.vec.num_envs} environments side by side on each worker",
            "learners": "1, in this process, on the CPU",
            "niches": f"at most {self.max_niches}, each with {self.population} members",
            "policy": f"{sizes} {self.activation}, {self.mlp.num_parameters:,} parameters",
        }

    def _summary(self) -> dict[str, float]:
        scores = {number: niche.score for number, niche in self.niches.items()}
        everyone = [*self.archive.values(), *self.niches.values()]
        return {
            "iteration": self.iteration,
            "step": self.step,
            **_mean("eval/return_mean", list(scores.values())),
            "eval/return_max": max(scores.values()),
            "poet/active": len(self.niches),
            "poet/archived": len(self.archive),
            # As the paper counts: admitted against every agent so far, and solved since.
            "poet/annecs": sum(niche.passed and niche.solved is not None for niche in everyone),
            # As the authors' code counts: it does not wait for the solution.
            "poet/annecs_admitted": sum(niche.passed for niche in everyone),
            "poet/transfers": self.transfers,
            "poet/transfer_attempts": self.attempts,
            **{f"score/{number}": score for number, score in scores.items()},
        }

    def _known(self, number: int) -> Niche:
        known = self.archive | self.niches
        require(number in known, f"niche={number} is not a niche of this run; there are {', '.join(map(str, known))}")
        return known[number]

    def _note(self, event: str, **what: Any) -> None:
        self._events.append({"iteration": self.iteration + 1, "step": self.step, "event": event, **what})

    def _note_environment(self, event: str, niche: Niche, **what: Any) -> None:
        self._note(event, niche=niche.number, parent=niche.parent, encoding=niche.encoding, **what)

    def _check(self) -> None:
        check_fields(self)
        check_strategy(self, "poet")
        low, high = self.criterion_low, self.criterion_high
        require(low <= high, f"criterion_low={low} must not be above criterion_high={high}")


def _mean(name: str, values: Sequence[float]) -> dict[str, float]:
    """The mean of what was not lost, as a metric; none where all was."""
    finite = [value for value in values if np.isfinite(value)]
    return {name: float(np.mean(finite))} if finite else {}
