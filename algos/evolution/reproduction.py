"""POET's reproduction: mutate environments, apply the minimal criterion, and rank children by novelty.

Algorithm 4 of arXiv:1901.01753; PATA-EC, novelty by agents' scores, is of arXiv:2003.08536.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.evolution.jobs import LOST, AgentJobs, Candidate, EvaluationResult, best_candidate
from paddock.algos.evolution.niche import Niche, characterize, novelty
from paddock.algos.evolution.optimizers import Adam
from paddock.algos.learning.flow import ConcurrentJobs, Job
from paddock.envs.family import Encoding

Niches = Mapping[int, Niche]
Make = Callable[[Niche, Encoding], Niche]  # makes a child of a parent, with this encoding


@dataclass(frozen=True)
class ChildResult:
    """Decision on a child: admitted or rejected."""

    child: Niche  # with its parent's agent
    reason: str
    score: float | None = None  # the score that decided; None: not evaluated
    novelty: float | None = None
    source: int | None = None  # niche of the agent that it is admitted with; None: rejected
    candidate: Candidate | None = None
    passed: bool = False  # admitted, and meets the criterion against archived agents too


@dataclass(frozen=True)
class Reproduction:
    """Reproduction step: creates, evaluates and admits children."""

    jobs: AgentJobs
    settings: Any  # the POET algorithm's, see conf/algo/poet.yaml

    def evaluate_children(
        self,
        together: ConcurrentJobs[Any, Any],
        t: int,
        parents: Sequence[Niche],
        active: Niches,
        archive: Niches,
        make: Make,
    ) -> tuple[list[ChildResult], int]:
        """Return the children's results of iteration t, in the order of decision, and the environment steps played."""
        results: list[ChildResult] = []
        children = self._mutate(t, parents, active, make, results)
        scored: dict[int, EvaluationResult] = together.gather(
            {k: self.jobs.score(child, child.mean, t) for k, child in enumerate(children)}
        )
        steps = sum(end.steps for end in scored.values())
        fit: list[tuple[Niche, float]] = []
        for k, child in enumerate(children):
            score, reason = scored[k].score, self._criterion_failure(scored[k].score)
            if reason is None:
                fit.append((child, score))
            else:
                results.append(ChildResult(child, f"{reason} with its parent's agent", score))
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
                results.append(ChildResult(child, f"less novel than max_admitted={admitted} others", score, new))
                continue
            result, more = self._try_to_admit(together, t, child, new, active, archive)
            results.append(result)
            admitted += result.source is not None
            steps += more
        return results, steps

    def _mutate(
        self, t: int, parents: Sequence[Niche], active: Niches, make: Make, results: list[ChildResult]
    ) -> list[Niche]:
        """Mutate random parents; add the results of children whose environment exists already."""
        children: list[Niche] = []
        for k in range(self.settings.max_children):
            generator = keyed_generator(self.settings.seed, Stream.MUTATION, t, k)
            parent = parents[int(generator.integers(len(parents)))]
            child = make(parent, self.settings.family.mutate(parent.encoding, generator))
            if any(child.encoding == other.encoding for other in [*active.values(), *children]):
                results.append(ChildResult(child, "this environment exists already"))
            else:
                children.append(child)
        return children

    def _distances(
        self, together: ConcurrentJobs[Any, Any], t: int, children: Sequence[Niche], known: Sequence[Niche]
    ) -> tuple[list[list[float]], int]:
        """Return each child's distances to all environments so far, and the environment steps played."""
        if self.settings.novelty == "encoding" or not children:
            distance = self.settings.family.distance
            return [[distance(child.encoding, other.encoding) for other in known] for child in children], 0
        grounds = [*known, *children]
        scored: dict[tuple[int, int], EvaluationResult] = together.gather(
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

    def _try_to_admit(
        self, together: ConcurrentJobs[Any, Any], t: int, child: Niche, new: float, active: Niches, archive: Niches
    ) -> tuple[ChildResult, int]:
        """Evaluate every agent in the child; admit it with the best one, if that meets the criterion again."""
        fresh = Adam.fresh(child.mean.size)
        jobs: dict[int, Job[Any]] = {
            number: self.jobs.attempt(child, niche.mean, fresh, t, LOST, self.settings.child_proposal)
            for number, niche in active.items()
        }
        former = {number: self.jobs.score(child, niche.mean, t) for number, niche in archive.items()}
        ends = together.gather(jobs | former)
        steps = sum(end.steps for end in ends.values())
        candidates = {number: best_candidate(ends[number].candidates) for number in jobs}
        source = max(candidates, key=lambda number: candidates[number].score)
        best = candidates[source]
        reason = self._criterion_failure(best.score)
        if reason is not None:
            return ChildResult(child, f"{reason} after transfer", best.score, new), steps
        highest = max([best.score, *(ends[number].score for number in former)])
        passed = self._criterion_failure(highest) is None
        reason = f"the agent of niche {source}, {best.how}"
        return ChildResult(child, reason, best.score, new, source, best, passed), steps

    def _criterion_failure(self, score: float) -> str | None:
        """Return the reason why a score fails the minimal criterion; None if it passes."""
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
    """Return the Euclidean distance; NumPy's norm uses BLAS, whose last bits depend on the processor."""
    return float(np.sqrt(((one - other) ** 2).sum()))
