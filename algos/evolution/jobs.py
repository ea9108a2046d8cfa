"""Pool jobs of POET's agents: one ES step, an evaluation, or an attempt to transfer to another niche."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from paddock.algos.evolution.generation import GenerationSettings, play_evaluation, play_population, report_lost, update
from paddock.algos.evolution.niche import Niche
from paddock.algos.evolution.optimizers import SGD, Adam
from paddock.algos.evolution.strategies.openai import OpenAI, OpenAISettings
from paddock.algos.evolution.strategies.protocol import Floats
from paddock.algos.learning.episode_metrics import count_cut
from paddock.algos.learning.flow import Job

Proposal = Literal["adam", "sgd"]  # optimizer of a step: Adam with the niche's moments, or the plain gradient
LOST = float("-inf")  # score of a lost evaluation


@dataclass(frozen=True)
class StepResult:
    """Agent after one step of the evolution strategy."""

    mean: Floats  # [P]
    adam: Adam
    steps: int  # environment steps played
    return_mean: float  # over the population; NaN if all of it was lost, which leaves the agent unchanged


@dataclass(frozen=True)
class EvaluationResult:
    """Result of an agent's evaluation."""

    score: float  # mean return; LOST if all episodes were lost
    steps: int
    cut: int = 0  # number of episodes that reached their step limit


@dataclass(frozen=True)
class Candidate:
    """Agent that may replace the agent of a niche."""

    score: float  # in that niche
    mean: Floats  # [P]
    learned: int  # environment steps of training since it left its own niche
    how: Literal["unchanged", "after one step here"]


@dataclass(frozen=True)
class TransferAttempt:
    """Result of an agent's attempt to transfer to another niche."""

    direct: Candidate
    proposal: Candidate | None  # None: not tried
    steps: int  # total environment steps

    @property
    def candidates(self) -> list[Candidate]:
        """The candidates of the attempt."""
        return [self.direct] if self.proposal is None else [self.direct, self.proposal]


def best_candidate(candidates: Iterable[Candidate]) -> Candidate:
    """Return the first candidate with the highest score."""
    return max(candidates, key=lambda candidate: candidate.score)


@dataclass(frozen=True)
class AgentJobs:
    """Factory of agents' jobs: ES steps, evaluations and transfer attempts."""

    settings: GenerationSettings
    strategy: OpenAISettings

    def step(
        self, niche: Niche, mean: Floats, adam: Adam, iteration: int, proposal: Proposal = "adam"
    ) -> Job[StepResult]:
        """Take one step of the evolution strategy in a niche, from `mean` [P]."""
        optimizer = adam if proposal == "adam" else SGD(np.zeros(mean.size), adam.updates)
        agent = OpenAI(self.strategy, mean, optimizer)
        members = agent.sample(niche.problem.noise(iteration, niche.number))
        generation = yield from play_population(
            self.settings, niche.problem, members, iteration, niche_index=niche.number
        )
        report_lost(generation.ends, f"a step in niche {niche.number}")
        steps = int(generation.lengths.sum())
        if generation.lost:
            return StepResult(mean, adam, steps, float("nan"))
        after, _ = update(agent, generation)
        adam = after.optimizer if isinstance(after.optimizer, Adam) else adam
        return StepResult(after.mean, adam, steps, float(np.nanmean(generation.returns)))

    def score(self, niche: Niche, mean: Floats, iteration: int) -> Job[EvaluationResult]:
        """Evaluate an agent; all agents in a niche and an iteration play the same episodes."""
        played, ends = yield from play_evaluation(
            self.settings, niche.problem, mean, iteration, niche_index=niche.number
        )
        report_lost(ends, f"an evaluation in niche {niche.number}")
        kept, steps = played.returns[np.isfinite(played.returns)], int(played.lengths.sum())
        cut = count_cut(played.lengths, niche.problem.eval_max_steps, niche.problem.env)
        return EvaluationResult(float(kept.mean()) if len(kept) else LOST, steps, cut)

    def attempt(
        self, niche: Niche, mean: Floats, adam: Adam, iteration: int, bound: float, proposal: Proposal
    ) -> Job[TransferAttempt]:
        """Evaluate an agent in a niche and, if it beats the bound, again after one ES step there."""
        scored = yield from self.score(niche, mean, iteration)
        direct = Candidate(scored.score, mean, 0, "unchanged")
        if not scored.score > bound:
            return TransferAttempt(direct, None, scored.steps)
        stepped = yield from self.step(niche, mean, adam, iteration, proposal)
        again = yield from self.score(niche, stepped.mean, iteration)
        learned = Candidate(again.score, stepped.mean, stepped.steps, "after one step here")
        return TransferAttempt(direct, learned, scored.steps + stepped.steps + again.steps)
