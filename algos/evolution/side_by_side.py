"""Concurrent training of niches: each takes its steps in order, and none runs far ahead of the slowest."""

from collections.abc import Iterator, Mapping
from typing import Any

from paddock.algos.evolution.jobs import AgentJobs, EvaluationResult, StepResult
from paddock.algos.evolution.niche import Niche
from paddock.algos.learning.flow import ConcurrentJobs

AHEAD = 2  # maximum lead over the slowest niche, in iterations


def learn_side_by_side(
    together: ConcurrentJobs[Any, Any], jobs: AgentJobs, niches: Mapping[int, Niche], start: int, stop: int
) -> Iterator[dict[int, tuple[StepResult, EvaluationResult]]]:
    """Train every niche for iterations start..stop-1; yield the ES steps and evaluations of each, in order."""
    niches = dict(niches)
    agents = {number: (niche.mean, niche.adam) for number, niche in niches.items()}
    reached = dict.fromkeys(niches, start)  # next iteration of each niche
    idle = set(niches)
    ends: dict[tuple[int, int], list[Any]] = {}  # results of each iteration and niche: StepResult, EvaluationResult
    t = start

    def submit() -> None:
        for number in sorted(idle):
            if reached[number] < min(stop, t + 1 + AHEAD):
                idle.discard(number)
                job = jobs.step(niches[number], *agents[number], reached[number])
                together.add((reached[number], number), job)
                reached[number] += 1

    submit()
    for (i, number), end in together:
        ends.setdefault((i, number), []).append(end)
        if isinstance(end, StepResult):
            agents[number] = end.mean, end.adam
            idle.add(number)
            submit()
            # Queued behind the next step, which does not depend on it: evaluations keep idle workers busy.
            together.add((i, number), jobs.score(niches[number], end.mean, i))
        while t < stop and all(len(ends.get((t, number), ())) == 2 for number in niches):
            stepped_and_scored = {number: ends.pop((t, number)) for number in niches}
            yield {number: (stepped, scored) for number, (stepped, scored) in stepped_and_scored.items()}
            t += 1
            submit()
