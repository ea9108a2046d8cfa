"""How agents of POET try to replace each other: every one tries every other niche, and the best may take over there.

Algorithm 2 of arXiv:1901.01753; the test that both scores must pass, before and after a step of learning, is of
arXiv:2003.08536.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.algos.evolution.jobs import LOST, AgentJobs, Candidate, Proposal, Trial, best_candidate
from paddock.algos.evolution.niche import Niche
from paddock.algos.learning.flow import Together


@dataclass(frozen=True)
class Rival:
    """An agent in another niche than its own, and whether it takes over there."""

    source: int
    trial: Trial
    bound: float  # that its score had to beat
    offer: Candidate | None  # its best; None: it was not even let in
    accepted: bool

    @property
    def reason(self) -> str:
        """Why it was accepted or not."""
        if self.offer is None:
            return "as it was, it does not beat the bound"
        if self.accepted:
            return f"the best of all, {self.offer.way}"
        beaten = self.offer.score <= self.bound
        return f"{self.offer.way}, it does not beat the bound" if beaten else "another agent is better"


def compete(
    together: Together[Any, Any],
    jobs: AgentJobs,
    niches: Mapping[int, Niche],
    t: int,
    *,
    enhanced: bool,
    proposal: Proposal,
) -> dict[int, list[Rival]]:
    """Let every agent try every other niche in iteration t; return the rivals of each niche's own agent, by niche.

    Args:
        enhanced: a rival's score has to beat the best of late, as it is and after a step of learning; else the last,
            either way.
        proposal: how it learns in that step.
    """
    bounds = {number: max(niche.recent) if enhanced else niche.score for number, niche in niches.items()}
    trials: dict[tuple[int, int], Trial] = together.gather(
        {
            (source, target): jobs.attempt(
                there, here.mean, there.adam, t, bounds[target] if enhanced else LOST, proposal
            )
            for target, there in niches.items()
            for source, here in niches.items()
            if source != target
        }
    )
    rivals: dict[int, list[Rival]] = {}
    for target, bound in bounds.items():
        tried = {source: trials[source, target] for source in niches if source != target}
        # Enhanced: what an agent scores as it is only opens the door; what a step of learning makes of it counts.
        offers = {source: trial.offers[1:] if enhanced else trial.offers for source, trial in tried.items()}
        best = {source: best_candidate(offer) for source, offer in offers.items() if offer}
        winner = max(best, key=lambda source: best[source].score, default=None)
        if winner is not None and best[winner].score <= bound:
            winner = None
        rivals[target] = [
            Rival(source, trial, bound, best.get(source), source == winner) for source, trial in tried.items()
        ]
    return rivals
