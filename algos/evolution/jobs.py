"""What agents do in environments, as jobs for a pool: learn for a step, be scored, try another's place."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from algos.common.keys import PhiloxNoise
from algos.evolution.niche import Niche
from algos.evolution.population import Problem, Round, SearchDistribution
from algos.evolution.update import Adam, decayed, estimate_gradient
from algos.learning.episodes import count_cut
from algos.learning.flow import Job
from algos.pool.protocol import Done, Pool

log = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Optimizer = Literal["adam", "sgd"]

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


@dataclass(frozen=True)
class Offer:
    """An agent that could live in a niche."""

    score: float  # there
    mean: Floats  # [P]
    learned: int  # environment steps that made it, since it left its own niche
    way: Literal["as it was", "after a step here"]


@dataclass(frozen=True)
class Attempt:
    """What came of an agent in another niche."""

    direct: Offer
    proposal: Offer | None  # None: not tried
    steps: int  # all environment steps of the attempt

    @property
    def offers(self) -> list[Offer]:
        """What there is to choose from."""
        return [self.direct] if self.proposal is None else [self.direct, self.proposal]


def best_offer(offers: Iterable[Offer]) -> Offer:
    """The offer of the highest score; of equals, the first."""
    return max(offers, key=lambda offer: offer.score)


@dataclass(frozen=True)
class Place:
    """Where episodes are played, and the lane of its random draws."""

    problem: Problem
    lane: int

    @classmethod
    def of(cls, niche: Niche) -> "Place":
        return cls(niche.problem, niche.number)


@dataclass(frozen=True, kw_only=True)
class AgentJobs:
    """What agents may be had to do: a step of learning, an evaluation, an attempt elsewhere; with its settings."""

    pool: Pool
    noise: PhiloxNoise
    pairs: int  # mirrored pairs of a step's population
    sigma: float
    sigma_decay: float
    sigma_floor: float
    learning_rate: float
    learning_rate_decay: float
    learning_rate_floor: float
    weight_decay: float
    eval_episodes: int
    eval_max_steps: int
    pairs_per_task: int

    @property
    def tasks_per_step(self) -> int:
        """How many tasks a step of one agent is cut into."""
        return -(-self.pairs // self.pairs_per_task)

    def step(
        self, place: Place, mean: Floats, adam: Adam, iteration: int, optimizer: Optimizer = "adam"
    ) -> Job[Stepped]:
        """One step of the evolution strategy (Salimans et al. 2017) from `mean` [P]."""
        updates = adam.updates
        sigma = decayed(self.sigma, self.sigma_decay, self.sigma_floor, updates)
        rate = decayed(self.learning_rate, self.learning_rate_decay, self.learning_rate_floor, updates)
        distribution = SearchDistribution(iteration, mean.astype(np.float32), sigma, None, place.lane)
        shared = self.pool.broadcast(Round(place.problem, distribution, of_mean=False))
        starts = range(0, self.pairs, self.pairs_per_task)
        tasks = [(shared, start, min(start + self.pairs_per_task, self.pairs)) for start in starts]
        ends = yield tasks
        returns, steps = np.full((self.pairs, 2), np.nan), 0
        for (_, start, stop), end in zip(tasks, ends, strict=True):
            if end.error is None:
                returns[start:stop], lengths, _ = end.value
                steps += int(lengths.sum())
        _report_lost(ends, f"a step in niche {place.lane}")
        # A pair with one lost sign says nothing of its direction: both go, and no bias comes in.
        returns[~np.isfinite(returns).all(axis=1)] = np.nan
        if np.isnan(returns).all():
            return Stepped(mean, adam, steps, float("nan"))
        gradient = estimate_gradient(returns, lambda k: self.noise(iteration, distribution.key(k)), mean.size, sigma)
        gradient -= self.weight_decay * mean
        update, after = adam.apply_gradient(gradient, rate)
        if optimizer == "sgd":
            update = rate * gradient
        return Stepped(mean + update, after, steps, float(np.nanmean(returns)))

    def score(self, place: Place, mean: Floats, iteration: int) -> Job[Scored]:
        """Play an agent's evaluation; all who are scored in a place in one iteration meet the same episodes."""
        distribution = SearchDistribution(iteration, mean.astype(np.float32), 0.0, None, place.lane)
        shared = self.pool.broadcast(Round(place.problem, distribution, of_mean=True))
        size = 2 * self.pairs_per_task
        starts = range(0, self.eval_episodes, size)
        ends = yield [(shared, start, min(start + size, self.eval_episodes)) for start in starts]
        _report_lost(ends, f"an evaluation in niche {place.lane}")
        played = [end.value for end in ends if end.error is None]
        if not played:
            return Scored(LOST, 0)
        returns, lengths = (np.concatenate(parts) for parts in zip(*played, strict=True))
        count_cut(lengths, self.eval_max_steps)
        return Scored(float(returns.mean()), int(lengths.sum()))

    def attempt(
        self, place: Place, mean: Floats, adam: Adam, iteration: int, bound: float, optimizer: Optimizer
    ) -> Job[Attempt]:
        """Score an agent in a place and, if it beats the bound, what one step of learning there makes of it."""
        scored = yield from self.score(place, mean, iteration)
        direct = Offer(scored.score, mean, 0, "as it was")
        if not scored.score > bound:
            return Attempt(direct, None, scored.steps)
        stepped = yield from self.step(place, mean, adam, iteration, optimizer)
        again = yield from self.score(place, stepped.mean, iteration)
        proposal = Offer(again.score, stepped.mean, stepped.steps, "after a step here")
        return Attempt(direct, proposal, scored.steps + stepped.steps + again.steps)


def _report_lost(ends: Sequence[Done], what: str) -> None:
    lost = [end for end in ends if end.error is not None]
    if lost:
        first = lost[0].error
        log.warning("%s goes on without %d lost tasks; the first: %s: %s", what, len(lost), type(first).__name__, first)
