"""What agents do in environments, as jobs for a pool: learn for a step, be scored, try another's niche."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from paddock.algos.evolution.niche import Niche
from paddock.algos.evolution.optimizers import Adam
from paddock.algos.evolution.population import SearchDistribution
from paddock.algos.evolution.strategy import (
    Floats,
    StrategySettings,
    es_update,
    play_evaluation,
    play_population,
    report_lost,
)
from paddock.algos.learning.episode_metrics import count_cut
from paddock.algos.learning.flow import Job

Proposal = Literal["adam", "sgd"]  # how an agent takes its step: with the niche's moments, or by the plain gradient
LOST = float("-inf")  # the score of an evaluation that was lost: worse than any


@dataclass(frozen=True)
class Stepped:
    """An agent after one step of the evolution strategy."""

    mean: Floats  # [P]
    adam: Adam
    steps: int  # environment steps that were played for it
    return_mean: float  # over the population; NaN if all of it was lost, and the agent is as it was


@dataclass(frozen=True)
class Scored:
    """An agent's evaluation."""

    score: float  # mean return; LOST if no episode was left
    steps: int
    cut: int = 0  # of its episodes, that came to their cap


@dataclass(frozen=True)
class Candidate:
    """An agent that could live in a niche."""

    score: float  # there
    mean: Floats  # [P]
    learned: int  # environment steps that made it, since it left its own niche
    way: Literal["as it was", "after a step here"]


@dataclass(frozen=True)
class Trial:
    """What came of an agent that tried another niche."""

    direct: Candidate
    proposal: Candidate | None  # None: not tried
    steps: int  # all environment steps of it

    @property
    def offers(self) -> list[Candidate]:
        """What there is to choose from."""
        return [self.direct] if self.proposal is None else [self.direct, self.proposal]


def best_candidate(offers: Iterable[Candidate]) -> Candidate:
    """The offer of the highest score; of equals, the first."""
    return max(offers, key=lambda offer: offer.score)


@dataclass(frozen=True)
class AgentJobs:
    """What agents may be had to do: a step of learning, an evaluation, an attempt elsewhere."""

    settings: StrategySettings

    def step(self, niche: Niche, mean: Floats, adam: Adam, iteration: int, proposal: Proposal = "adam") -> Job[Stepped]:
        """One step of the evolution strategy in a niche, from `mean` [P]."""
        job = play_population(self.settings, niche.problem, mean, adam.updates, iteration, lane=niche.number)
        generation = yield from job
        report_lost(generation.ends, f"a step in niche {niche.number}")
        steps = int(generation.lengths.sum())
        if generation.lost:
            return Stepped(mean, adam, steps, float("nan"))
        result = es_update(self.settings, generation, mean, adam, plain=proposal == "sgd")
        assert isinstance(result.optimizer, Adam)
        return Stepped(mean + result.update, result.optimizer, steps, float(np.nanmean(generation.returns)))

    def score(self, niche: Niche, mean: Floats, iteration: int) -> Job[Scored]:
        """Play an agent's evaluation; all who are scored in a niche in one iteration meet the same episodes."""
        distribution = SearchDistribution(niche.problem, iteration, mean.astype(np.float32), None, lane=niche.number)
        played, ends = yield from play_evaluation(self.settings, distribution)
        report_lost(ends, f"an evaluation in niche {niche.number}")
        kept, steps = played.returns[np.isfinite(played.returns)], int(played.lengths.sum())
        cut = count_cut(played.lengths, niche.problem.eval_max_steps, niche.problem.env)
        return Scored(float(kept.mean()) if len(kept) else LOST, steps, cut)

    def attempt(
        self, niche: Niche, mean: Floats, adam: Adam, iteration: int, bound: float, proposal: Proposal
    ) -> Job[Trial]:
        """Score an agent in a niche and, if it beats the bound, what one step of learning there makes of it."""
        scored = yield from self.score(niche, mean, iteration)
        direct = Candidate(scored.score, mean, 0, "as it was")
        if not scored.score > bound:
            return Trial(direct, None, scored.steps)
        stepped = yield from self.step(niche, mean, adam, iteration, proposal)
        again = yield from self.score(niche, stepped.mean, iteration)
        learned = Candidate(again.score, stepped.mean, stepped.steps, "after a step here")
        return Trial(direct, learned, scored.steps + stepped.steps + again.steps)
