"""How POET makes environments: mutate, keep what is neither too easy nor too hard, prefer what is new.

Algorithm 4 of arXiv:1901.01753; the novelty by what agents score, PATA-EC, is of arXiv:2003.08536.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.evolution.jobs import LOST, AgentJobs, Candidate, Scored, best_candidate
from paddock.algos.evolution.niche import Niche, characterize, novelty
from paddock.algos.evolution.optimizers import Adam
from paddock.algos.learning.flow import Job, Together
from paddock.envs.family import Encoding

Niches = Mapping[int, Niche]
Make = Callable[[Niche, Encoding], Niche]  # a child of a parent, with an encoding of its own


@dataclass(frozen=True)
class Verdict:
    """What became of a child."""

    child: Niche  # with its parent's agent
    reason: str
    score: float | None = None  # of the agent that decided it; None: not played
    novelty: float | None = None
    source: int | None = None  # of the agent that it is admitted with; None: rejected
    offer: Candidate | None = None
    passed: bool = False  # admitted, and meets the criterion against the archived agents too


@dataclass(frozen=True)
class Reproduction:
    """How environments come in."""

    jobs: AgentJobs
    settings: Any  # POET's own, which conf/algo/poet.yaml explains

    def judge(
        self,
        together: Together[Any, Any],
        t: int,
        parents: Sequence[Niche],
        active: Niches,
        archive: Niches,
        make: Make,
    ) -> tuple[list[Verdict], int]:
        """What became of each child of iteration t, in the order of decision, and the environment steps it took."""
        verdicts: list[Verdict] = []
        children = self._mutate(t, parents, active, make, verdicts)
        scored: dict[int, Scored] = together.gather(
            {k: self.jobs.score(child, child.mean, t) for k, child in enumerate(children)}
        )
        steps = sum(end.steps for end in scored.values())
        fit: list[tuple[Niche, float]] = []
        for k, child in enumerate(children):
            score, reason = scored[k].score, self._misfit(scored[k].score)
            if reason is None:
                fit.append((child, score))
            else:
                verdicts.append(Verdict(child, f"{reason} with its parent's agent", score))
        distances, more = self._distances(
            together, t, [child for child, _ in fit], [*archive.values(), *active.values()]
        )
        steps += more
        ranked = [
            (child, score, novelty(far, self.settings.neighbours))
            for (child, score), far in zip(fit, distances, strict=True)
        ]
        admitted = 0
        for child, score, new in sorted(ranked, key=lambda entry: entry[2], reverse=True):
            if admitted == self.settings.max_admitted:
                verdicts.append(Verdict(child, f"newer ones were admitted, and max_admitted={admitted}", score, new))
                continue
            verdict, more = self._welcome(together, t, child, new, active, archive)
            verdicts.append(verdict)
            admitted += verdict.source is not None
            steps += more
        return verdicts, steps

    def _mutate(
        self, t: int, parents: Sequence[Niche], active: Niches, make: Make, verdicts: list[Verdict]
    ) -> list[Niche]:
        """Children of random parents; one that is there already gets its verdict at once."""
        children: list[Niche] = []
        for k in range(self.settings.max_children):
            generator = keyed_generator(self.settings.seed, Stream.MUTATION, t, k)
            parent = parents[int(generator.integers(len(parents)))]
            child = make(parent, self.settings.family.mutate(parent.encoding, generator))
            if any(child.encoding == other.encoding for other in [*active.values(), *children]):
                verdicts.append(Verdict(child, "the same environment is there already"))
            else:
                children.append(child)
        return children

    def _distances(
        self, together: Together[Any, Any], t: int, children: Sequence[Niche], known: Sequence[Niche]
    ) -> tuple[list[list[float]], int]:
        """How far each child is from every environment so far."""
        if self.settings.novelty == "encoding" or not children:
            distance = self.settings.family.distance
            return [[distance(child.encoding, other.encoding) for other in known] for child in children], 0
        grounds = [*known, *children]
        scored: dict[tuple[int, int], Scored] = together.gather(
            {
                (ground.number, agent.number): self.jobs.score(ground, agent.mean, t)
                for ground in grounds
                for agent in known
            }
        )
        characters = {
            ground.number: characterize(
                [scored[ground.number, agent.number].score for agent in known],
                self.settings.criterion_low,
                self.settings.criterion_high,
            )
            for ground in grounds
        }
        distances = [
            [_distance(characters[child.number], characters[other.number]) for other in known] for child in children
        ]
        return distances, sum(end.steps for end in scored.values())

    def _welcome(
        self, together: Together[Any, Any], t: int, child: Niche, new: float, active: Niches, archive: Niches
    ) -> tuple[Verdict, int]:
        """Let every agent try the child; it comes in with the best one if that meets the criterion again."""
        fresh = Adam.fresh(child.mean.size)
        jobs: dict[int, Job[Any]] = {
            number: self.jobs.attempt(child, niche.mean, fresh, t, LOST, self.settings.child_proposal)
            for number, niche in active.items()
        }
        former = {number: self.jobs.score(child, niche.mean, t) for number, niche in archive.items()}
        ends = together.gather(jobs | former)
        steps = sum(end.steps for end in ends.values())
        offers = {number: best_candidate(ends[number].offers) for number in jobs}
        source = max(offers, key=lambda number: offers[number].score)
        best = offers[source]
        reason = self._misfit(best.score)
        if reason is not None:
            return Verdict(child, f"{reason} after transfer", best.score, new), steps
        highest = max([best.score, *(ends[number].score for number in former)])
        passed = self._misfit(highest) is None
        return Verdict(child, f"the agent of niche {source}, {best.way}", best.score, new, source, best, passed), steps

    def _misfit(self, score: float) -> str | None:
        """Why a score does not meet the minimal criterion; None if it does."""
        if score == LOST:
            return "every evaluation was lost"
        if score < self.settings.criterion_low:
            return f"too hard: {score:.4g} is below {self.settings.criterion_low:g}"
        return (
            f"too easy: {score:.4g} is above {self.settings.criterion_high:g}"
            if score > self.settings.criterion_high
            else None
        )


def _distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Euclidean; NumPy's norm is a product of BLAS, whose last bits depend on the processor."""
    return float(np.sqrt(((one - other) ** 2).sum()))
