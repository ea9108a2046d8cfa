"""Niches that learn side by side: each takes its steps one after another, and none is far ahead of the slowest."""

from collections.abc import Iterator, Mapping
from typing import Any

from paddock.algos.evolution.jobs import AgentJobs, Scored, Stepped
from paddock.algos.evolution.niche import Niche
from paddock.algos.learning.flow import Together

AHEAD = 2  # iterations by which a niche may be ahead of the slowest


def learn_side_by_side(
    together: Together[Any, Any], jobs: AgentJobs, niches: Mapping[int, Niche], start: int, stop: int
) -> Iterator[dict[int, tuple[Stepped, Scored]]]:
    """Let every niche learn for iterations start..stop-1.

    Yields:
        For each iteration, once all have ended it: the step of each niche, and the score of its agent then.
    """
    niches = dict(niches)
    agents = {number: (niche.mean, niche.adam) for number, niche in niches.items()}
    reached = dict.fromkeys(niches, start)  # the iteration that each may begin next
    resting = set(niches)
    ends: dict[tuple[int, int], list[Any]] = {}  # what each niche came to in each iteration: Stepped, Scored
    t = start

    def begin() -> None:
        for number in sorted(resting):
            if reached[number] < min(stop, t + 1 + AHEAD):
                resting.discard(number)
                job = jobs.step(niches[number], *agents[number], reached[number])
                together.add((reached[number], number), job)
                reached[number] += 1

    begin()
    for (i, number), end in together:
        ends.setdefault((i, number), []).append(end)
        if isinstance(end, Stepped):
            agents[number] = end.mean, end.adam
            resting.add(number)
            begin()
            # Behind the next step, which does not wait for it: what is left to play fills the workers.
            together.add((i, number), jobs.score(niches[number], end.mean, i))
        while t < stop and all(len(ends.get((t, number), ())) == 2 for number in niches):
            stepped_and_scored = {number: ends.pop((t, number)) for number in niches}
            yield {number: (stepped, scored) for number, (stepped, scored) in stepped_and_scored.items()}
            t += 1
            begin()
