"""POET's transfer: every agent tries every other niche, and the best may replace the agent there.

Algorithm 2 of arXiv:1901.01753; the enhanced test, of the scores before and after one ES step, is of arXiv:2003.08536.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.algos.evolution.jobs import LOST, AgentJobs, Candidate, Proposal, TransferAttempt, best_candidate
from paddock.algos.evolution.niche import Niche
from paddock.algos.learning.flow import ConcurrentJobs


@dataclass(frozen=True)
class Rival:
    """Agent that tried to transfer from niche `source`, and whether it was accepted."""

    source: int
    trial: TransferAttempt
    bound: float  # score to beat
    candidate: Candidate | None  # its best; None: rejected at the first test
    accepted: bool

    @property
    def reason(self) -> str:
        """The reason for accepting or rejecting it, for the event log."""
        if self.candidate is None:
            return "unchanged, it does not beat the bound"
        if self.accepted:
            return f"best score of all, {self.candidate.how}"
        beaten = self.candidate.score <= self.bound
        return f"{self.candidate.how}, it does not beat the bound" if beaten else "another agent scores higher"


def compete(
    together: ConcurrentJobs[Any, Any],
    jobs: AgentJobs,
    niches: Mapping[int, Niche],
    t: int,
    *,
    enhanced: bool,
    proposal: Proposal,
) -> dict[int, list[Rival]]:
    """Evaluate every agent in every other niche in iteration t; return the rivals of each niche's agent, by niche.

    If `enhanced`, a rival must beat the niche's best recent score, both unchanged and after one ES step with the
    optimizer `proposal`; otherwise, one of the two scores must beat the niche's last score.
    """
    bounds = {number: max(niche.recent) if enhanced else niche.score for number, niche in niches.items()}
    trials: dict[tuple[int, int], TransferAttempt] = together.gather(
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
        # Enhanced: the unchanged agent only qualifies; the score after one ES step decides.
        candidates = {source: trial.candidates[1:] if enhanced else trial.candidates for source, trial in tried.items()}
        best = {source: best_candidate(candidate) for source, candidate in candidates.items() if candidate}
        winner = max(best, key=lambda source: best[source].score, default=None)
        if winner is not None and best[winner].score <= bound:
            winner = None
        rivals[target] = [
            Rival(source, trial, bound, best.get(source), source == winner) for source, trial in tried.items()
        ]
    return rivals
