"""POET's niches: novelty, transfer and reproduction by the rules of its papers; expected numbers are worked by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from poets import POLES, settings

from paddock.algos.evolution.jobs import LOST, Candidate, EvaluationResult, StepResult, TransferAttempt
from paddock.algos.evolution.niche import Niche, characterize, novelty
from paddock.algos.evolution.optimizers import Adam
from paddock.algos.evolution.population import play_members
from paddock.algos.learning.flow import ConcurrentJobs, Job
from paddock.algos.poet import POET
from paddock.algos.pool.serial import SerialPool
from paddock.envs.tasks.poles import Poles


class ScriptedJobs:
    """Scores as a table tells; `direct[source_mean, place]` and `proposal[...]`, agents being vectors of one number."""

    def __init__(self, direct: dict[tuple[int, int], float], proposal: dict[tuple[int, int], float] | None = None):
        self.direct, self.proposed = direct, proposal or {}
        self.tried: list[tuple[int, int]] = []

    def score(self, niche: Niche, mean: Any, iteration: int) -> Job[EvaluationResult]:
        return EvaluationResult(self.direct[int(mean[0]), niche.number], 10)
        yield

    def attempt(
        self, niche: Niche, mean: Any, adam: Adam, iteration: int, bound: float, optimizer: str
    ) -> Job[TransferAttempt]:
        key = int(mean[0]), niche.number
        direct = Candidate(self.direct[key], mean, 0, "unchanged")
        if not direct.score > bound or key not in self.proposed:
            return TransferAttempt(direct, None, 10)
        self.tried.append(key)
        proposal = Candidate(self.proposed[key], mean + 0.5, 7, "after one step here")
        return TransferAttempt(direct, proposal, 27)
        yield


def scripted(jobs: ScriptedJobs, scores: dict[int, float], **changes: Any) -> tuple[POET, ConcurrentJobs[Any, Any]]:
    """A POET with one niche for each score, whose agent is the vector [number]."""
    poet = POET(**settings(**changes))
    for number, score in scores.items():
        poet.numbers = number
        niche = poet._make(None, {"length": 0.5 + 0.1 * number}, np.array([float(number)]))
        poet.niches[number] = replace(niche, score=score, recent=(score,), best=score, learned=100 * (number + 1))
    poet.numbers = 10
    poet.jobs = jobs  # type: ignore[assignment]
    poet.reproduction = replace(poet.reproduction, jobs=jobs)  # type: ignore[arg-type]
    return poet, ConcurrentJobs(SerialPool(), play_members)


def told(poet: POET, event: str) -> list[dict[str, Any]]:
    return [entry for entry in poet._events if entry["event"] == event]


# Novelty


def test_novelty_is_the_mean_distance_to_the_nearest() -> None:
    # The two nearest of 5 1 4 2 are 1 and 2.
    assert novelty([5.0, 1.0, 4.0, 2.0], 2) == 1.5
    assert novelty([3.0], 5) == 3.0
    assert novelty([], 5) == 0.0


def test_an_environment_is_characterized_by_the_ranks_of_clipped_scores() -> None:
    # Clipped to [0, 300]: 0 300 100 300; ranks 0 and 1, and 2 and 3 shared: (0, 2.5, 1, 2.5) / 3 - 0.5.
    expected = np.array([0, 2.5, 1, 2.5]) / 3 - 0.5
    np.testing.assert_allclose(characterize([-50.0, 350.0, 100.0, 900.0], 0, 300), expected, rtol=1e-6)


def test_a_lost_evaluation_characterizes_as_the_lower_bound() -> None:
    np.testing.assert_array_equal(characterize([LOST, 5.0], 0, 10), characterize([0.0, 5.0], 0, 10))
    np.testing.assert_array_equal(characterize([float("nan"), 5.0], 0, 10), characterize([0.0, 5.0], 0, 10))


# Transfer


def test_the_original_transfer_takes_the_best_score_before_or_after_a_step() -> None:
    # In niche 0 (its agent scores 50): agent 1 has 60 and 55, agent 2 has 40 and 70. In the others nobody is better.
    direct = {(1, 0): 60.0, (2, 0): 40.0, (0, 1): 1.0, (2, 1): 1.0, (0, 2): 1.0, (1, 2): 1.0}
    proposal = {(1, 0): 55.0, (2, 0): 70.0, (0, 1): 2.0, (2, 1): 2.0, (0, 2): 2.0, (1, 2): 2.0}
    poet, together = scripted(ScriptedJobs(direct, proposal), {0: 50.0, 1: 90.0, 2: 90.0}, transfer_test="original")
    poet._transfer(together)
    assert [niche.mean[0] for niche in poet.niches.values()] == [2.5, 1.0, 2.0]
    assert (poet.niches[0].score, poet.niches[0].learned) == (70.0, 300 + 7)
    assert [(e["source"], e["target"]) for e in told(poet, "transfer") if e["accepted"]] == [(2, 0)]
    assert (poet.transfers, poet.attempts, poet.step) == (1, 6, 6 * 27)


def test_the_original_transfer_takes_an_agent_that_a_step_makes_worse() -> None:
    direct, proposal = {(1, 0): 60.0, (0, 1): 0.0}, {(1, 0): 55.0, (0, 1): 0.0}
    poet, together = scripted(ScriptedJobs(direct, proposal), {0: 50.0, 1: 90.0}, transfer_test="original")
    poet._transfer(together)
    assert (poet.niches[0].mean[0], poet.niches[0].score, poet.niches[0].learned) == (1.0, 60.0, 200)


def test_the_enhanced_transfer_asks_both_to_beat_the_best_of_late() -> None:
    # Niche 0 had 80 of late: 75 is not even tried; niche 1's agent gets in with 85, and 82 after a step wins.
    direct = {(1, 0): 85.0, (2, 0): 75.0, (0, 1): 95.0, (2, 1): 1.0, (0, 2): 1.0, (1, 2): 1.0}
    proposal = {(1, 0): 82.0, (2, 0): 99.0, (0, 1): 90.0}
    jobs = ScriptedJobs(direct, proposal)
    poet, together = scripted(jobs, {0: 50.0, 1: 90.0, 2: 90.0})
    poet.niches[0] = replace(poet.niches[0], recent=(80.0, 50.0))
    poet._transfer(together)
    assert sorted(jobs.tried) == [(0, 1), (1, 0)]
    assert (poet.niches[0].mean[0], poet.niches[0].score) == (1.5, 82.0)
    assert poet.niches[1].mean[0] == 1.0  # 95 opened the door, 90 after a step does not beat 90
    reasons = {(e["source"], e["target"]): e["reason"] for e in told(poet, "transfer")}
    assert reasons[1, 0] == "best score of all, after one step here"
    assert reasons[2, 0] == "unchanged, it does not beat the bound"
    assert reasons[0, 1] == "after one step here, it does not beat the bound"


def test_all_transfers_happen_at_the_same_moment() -> None:
    # Each is better in the other's place: they change places, and nobody is overwritten first.
    direct, proposal = {(1, 0): 60.0, (0, 1): 60.0}, {(1, 0): 70.0, (0, 1): 70.0}
    poet, together = scripted(ScriptedJobs(direct, proposal), {0: 50.0, 1: 50.0})
    poet._transfer(together)
    assert [niche.mean[0] for niche in poet.niches.values()] == [1.5, 0.5]


def test_a_newcomers_optimizer_and_noise_begin_anew() -> None:
    direct, proposal = {(1, 0): 60.0, (0, 1): 0.0}, {(1, 0): 70.0}
    poet, together = scripted(ScriptedJobs(direct, proposal), {0: 50.0, 1: 50.0})
    poet.niches[0] = replace(poet.niches[0], adam=Adam(np.ones(1), np.ones(1), 9))
    poet._transfer(together)
    adam = poet.niches[0].adam
    assert (adam.updates, adam.momentum[0], adam.variance[0]) == (0, 0.0, 0.0)


def test_a_lost_evaluation_never_wins() -> None:
    direct = {(1, 0): LOST, (0, 1): LOST}
    for test in ("original", "enhanced"):
        poet, together = scripted(ScriptedJobs(direct), {0: -1e9, 1: -1e9}, transfer_test=test)
        poet._transfer(together)
        assert poet.transfers == 0


# Reproduction


def reproduce(
    child_scores: Sequence[float],
    after: Sequence[float],
    former: Sequence[float] = (),
    lengths: Sequence[float] = (0.6, 0.8, 1.2, 2.0),
    **changes: Any,
) -> POET:
    """One attempt of a single parent whose children score as told with its agent, then after transfer."""
    count = len(child_scores)
    direct = {(0, 10 + k): score for k, score in enumerate(child_scores)}
    direct |= {(5, 10 + k): score for k, score in enumerate(former)}
    proposal = {(0, 10 + k): score for k, score in enumerate(after)}
    given = {"max_children": count, "novelty": "encoding", "criterion_low": 50.0, "criterion_high": 150.0}
    poet, together = scripted(ScriptedJobs(direct, proposal), {0: 100.0}, **given | changes)
    if former:
        old = replace(poet.niches[0], number=5, mean=np.array([5.0]), encoding={"length": 9.0}, retired=1)
        poet.archive[5] = old
    todo = iter(lengths)

    class Family(Poles):
        def mutate(self, encoding: Any, generator: Any) -> Any:
            return {"length": next(todo)}

    poet.family = Family(**vars(POLES))
    poet._reproduce(together)
    return poet


def reasons(poet: POET) -> dict[int, str]:
    return {entry["niche"]: entry["reason"] for entry in told(poet, "reject")}


def test_no_parent_below_the_score_and_the_events_say_so() -> None:
    poet, together = scripted(ScriptedJobs({}), {0: 19.9})
    poet._reproduce(together)
    assert list(poet.niches) == [0]
    assert told(poet, "no parents")[0]["best"] == 19.9


def test_the_criterion_admits_its_own_bounds_and_nothing_beyond() -> None:
    poet = reproduce([49.9, 50.0, 150.0, 150.1], [49.0, 50.0, 150.0, 160.0], max_admitted=4, max_niches=5)
    assert sorted(poet.niches) == [0, 11, 12]
    assert reasons(poet) == {
        10: "too hard: 49.9 is below 50 with its parent's agent",
        13: "too easy: 150.1 is above 150 with its parent's agent",
    }


def test_the_newest_child_is_admitted_first_and_the_rest_is_not_played() -> None:
    # Distances to the parent's 0.5 are 0.1, 0.3, 0.7 and 1.5.
    poet = reproduce([60, 60, 60, 60], [70, 70, 70, 70])
    assert list(poet.niches) == [0, 13]
    assert told(poet, "birth")[0]["novelty"] == pytest.approx(1.5)
    assert set(reasons(poet).values()) == {"less novel than max_admitted=1 others"}


def test_a_child_too_easy_after_transfer_gives_its_place_to_the_next() -> None:
    poet = reproduce([60, 60, 60, 60], [70, 70, 70, 200])
    assert list(poet.niches) == [0, 12]
    assert reasons(poet)[13] == "too easy: 200 is above 150 after transfer"


def test_a_child_starts_with_the_best_agent_and_what_it_learned_from() -> None:
    born = reproduce([60, 60, 60, 60], [55, 70, 70, 65]).niches[13]
    assert (born.mean[0], born.score, born.learned, born.parent) == (0.5, 65.0, 100 + 7, 0)
    worse = reproduce([60, 60, 60, 60], [55, 70, 70, 58]).niches[13]
    assert (worse.mean[0], worse.score, worse.learned) == (0.0, 60.0, 100)


def test_an_environment_that_is_there_already_is_not_played() -> None:
    poet = reproduce([60, 60, 60], [70, 70, 70], lengths=(0.5, 0.8, 0.8))
    same = "this environment exists already"
    assert reasons(poet) == {10: same, 12: same}
    assert list(poet.niches) == [0, 11]


def test_what_an_archived_agent_finds_too_easy_is_admitted_and_not_counted() -> None:
    easy = reproduce([60], [70], [151.0], lengths=(2.0,))
    fair = reproduce([60], [70], [149.0], lengths=(2.0,))
    assert [easy.niches[10].passed, fair.niches[10].passed] == [False, True]
    assert [poet._summary()["poet/annecs_admitted"] for poet in (easy, fair)] == [0, 1]


def test_annecs_counts_what_was_admitted_and_solved_since() -> None:
    poet = reproduce([60], [70], lengths=(2.0,), solved_score=100.0)
    assert poet._summary()["poet/annecs"] == 0
    poet.niches[10] = poet._with_score(poet.niches[10], 99.9)
    assert poet._summary()["poet/annecs"] == 0
    poet.niches[10] = poet._with_score(poet.niches[10], 100.0)
    assert poet._summary()["poet/annecs"] == 1
    # It stays solved when it is left behind; the first niche, which nobody made, never counts.
    poet.niches[10] = poet._with_score(poet.niches[10], 10.0)
    poet.niches[0] = poet._with_score(poet.niches[0], 100.0)
    assert poet._summary()["poet/annecs"] == 1


def test_the_oldest_retires_with_its_agent() -> None:
    poet = reproduce([60], [70], lengths=(2.0,), max_niches=1)
    assert (list(poet.niches), list(poet.archive)) == ([10], [0])
    assert poet.archive[0].retired == 1
    assert poet.archive[0].mean[0] == 0.0
    assert told(poet, "retire")[0]["reason"] == "the oldest of 2, and max_niches=1"


def test_pata_ec_prefers_where_agents_rank_otherwise() -> None:
    # Two agents. At home each is best: characters (-.5, .5) and (.5, -.5). Child 10 ranks them like niche 0: distances
    # 0 and sqrt(2). Child 11 cannot tell them apart: (0, 0), at sqrt(.5) from both. With one neighbour 11 is newer.
    home = {(0, 0): 100.0, (1, 0): 120.0, (0, 1): 120.0, (1, 1): 100.0}
    direct = home | {(0, 10): 80.0, (1, 10): 90.0, (0, 11): 85.0, (1, 11): 85.0}
    poet, together = scripted(
        ScriptedJobs(direct), {0: 100.0, 1: 100.0}, neighbours=1, criterion_low=50.0, criterion_high=150.0
    )
    children = [poet._make(poet.niches[0], {"length": length}) for length in (1.0, 2.0)]
    far, steps = poet.reproduction._distances(together, 0, children, list(poet.niches.values()))
    assert [novelty(distances, 1) for distances in far] == pytest.approx([0.0, 0.5**0.5])
    assert steps == 8 * 10


def test_a_lost_niche_counts_for_no_mean() -> None:
    poet, _ = scripted(ScriptedJobs({}), {0: LOST, 1: 20.0, 2: 30.0})
    niches, fresh = dict(poet.niches), Adam.fresh(1)

    def settle(*ends: tuple[float, float]) -> dict[str, float]:
        poet.niches = dict(niches)
        given = [(StepResult(np.zeros(1), fresh, 10, trained), EvaluationResult(score, 5)) for trained, score in ends]
        return poet._record_results(dict(enumerate(given))) | poet._summary()

    row = settle((float("nan"), LOST), (10.0, 40.0), (14.0, LOST))
    assert (row["train/return_mean"], row["eval/return_mean"], row["eval/return_max"]) == (12.0, 35.0, 40.0)
    poet.niches = {0: niches[0]}
    niches = dict(poet.niches)
    row = settle((float("nan"), LOST))
    assert not {"train/return_mean", "eval/return_mean"} & row.keys()
