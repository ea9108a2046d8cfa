"""POET, by the rules of its papers and the laws of the house; expected numbers are worked by hand."""

import json
import queue
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import deterministic

from algos.common.keys import PhiloxNoise
from algos.evolution.jobs import LOST, AgentJobs, Candidate, Scored, Stepped, Trial, best_candidate
from algos.evolution.niche import Niche, characterize, novelty
from algos.evolution.population import play_members
from algos.evolution.side_by_side import AHEAD
from algos.evolution.update import Adam
from algos.learning.episodes import Episodes
from algos.learning.flow import Job, Together
from algos.poet import POET
from algos.pool.protocol import Done, End, PoolError
from algos.pool.serial import SerialPool
from envs.errors import ConfigError
from envs.spec import EnvSpec
from envs.tasks.poles import Poles
from envs.vector import Serial
from paddock.runs.checkpoint import Checkpoints, check_fits

POLES = Poles(start=0.5, step=0.4, min=0.05, max=3.0, max_episode_steps=60)


def settings(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "family": POLES,
        "vec": Serial(num_envs=4),
        "pool": SerialPool(),
        "seed": 1,
        "population": 8,
        "sigma": 0.1,
        "sigma_decay": 0.99,
        "sigma_floor": 0.01,
        "learning_rate": 0.05,
        "learning_rate_decay": 0.99,
        "learning_rate_floor": 0.01,
        "weight_decay": 0.01,
        "hidden": (4,),
        "activation": "tanh",
        "initial_std": 0.1,
        "episode_cap": None,
        "same_ground": True,
        "eval_episodes": 3,
        "eval_max_steps": 100_000,
        "pairs_per_task": 1,
        "transfer_every": 4,
        "transfer_test": "enhanced",
        "transfer_window": 5,
        "transfer_proposal": "adam",
        "reproduce_every": 6,
        "reproduce_score": 20.0,
        "max_children": 4,
        "max_admitted": 1,
        "max_niches": 2,
        "criterion_low": 5.0,
        "criterion_high": 59.0,
        "child_proposal": "sgd",
        "novelty": "pata_ec",
        "neighbours": 2,
        "solved_score": 50.0,
    }
    return given | changes


def advance(poet: POET, iterations: int) -> tuple[str, str]:
    """The deterministic part of so many rows, and the events."""
    plan = poet.plan()
    rows = [next(plan) for _ in range(iterations)]
    plan.close()
    return json.dumps([deterministic(row) for row in rows]), json.dumps(poet.drain_events())


class ShuffledPool(SerialPool):
    """Runs what waits in a random order, on a thread of its own."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def open_batch(self, fn: Any, deliver: Callable[[Sequence[End]], None], **place: Any) -> Any:
        return _Shuffled(fn, deliver, self._chance)


class _Shuffled:
    def __init__(self, fn: Any, deliver: Callable[[Sequence[End]], None], chance: random.Random) -> None:
        self._fn, self._deliver, self._chance = fn, deliver, chance
        self._inbox: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        self._count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, task: Any) -> int:
        self._inbox.put((self._count, task))
        self._count += 1
        return self._count - 1

    def cancel(self) -> None:
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        waiting: list[tuple[int, Any]] = []
        while True:
            while not waiting or not self._inbox.empty():
                item = self._inbox.get()
                if item is None:
                    return
                waiting.append(item)
            index, task = waiting.pop(self._chance.randrange(len(waiting)))
            done = Done(index, self._fn(task), seconds=0.001)
            self._deliver([lambda done=done: done])  # type: ignore[misc]


class ScriptedJobs:
    """Scores as a table tells; `direct[source_mean, place]` and `proposal[...]`, agents being vectors of one number."""

    def __init__(self, direct: dict[tuple[int, int], float], proposal: dict[tuple[int, int], float] | None = None):
        self.direct, self.proposed = direct, proposal or {}
        self.tried: list[tuple[int, int]] = []

    def score(self, niche: Niche, mean: Any, iteration: int) -> Job[Scored]:
        return Scored(self.direct[int(mean[0]), niche.number], 10)
        yield

    def attempt(self, niche: Niche, mean: Any, adam: Adam, iteration: int, bound: float, optimizer: str) -> Job[Trial]:
        key = int(mean[0]), niche.number
        direct = Candidate(self.direct[key], mean, 0, "as it was")
        if not direct.score > bound or key not in self.proposed:
            return Trial(direct, None, 10)
        self.tried.append(key)
        proposal = Candidate(self.proposed[key], mean + 0.5, 7, "after a step here")
        return Trial(direct, proposal, 27)
        yield


def scripted(jobs: ScriptedJobs, scores: dict[int, float], **changes: Any) -> tuple[POET, Together[Any, Any]]:
    """A POET with one niche for each score, whose agent is the vector [number]."""
    poet = POET(**settings(**changes))
    for number, score in scores.items():
        poet.numbers = number
        niche = poet._make(None, {"length": 0.5 + 0.1 * number}, np.array([float(number)]))
        poet.niches[number] = replace(niche, score=score, recent=(score,), best=score, learned=100 * (number + 1))
    poet.numbers = 10
    poet.jobs = jobs  # type: ignore[assignment]
    poet.reproduction = replace(poet.reproduction, jobs=jobs)  # type: ignore[arg-type]
    return poet, Together(SerialPool(), play_members)


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


def test_the_original_transfer_takes_an_agent_as_it_is_where_a_step_makes_it_worse() -> None:
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
    assert reasons[1, 0] == "the best of all, after a step here"
    assert reasons[2, 0] == "as it was, it does not beat the bound"
    assert reasons[0, 1] == "after a step here, it does not beat the bound"


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
    assert set(reasons(poet).values()) == {"newer ones were admitted, and max_admitted=1"}


def test_a_child_that_is_too_easy_after_transfer_leaves_its_place_to_the_next() -> None:
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
    same = "the same environment is there already"
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


# The evolution strategy of one agent


def jobs(pool: Any, **changes: Any) -> tuple[AgentJobs, Niche, POET]:
    poet = POET(**settings(pool=pool, **changes))
    poet._found()
    return poet.jobs, poet.niches[0], poet


def finish(pool: Any, job: Job[Any]) -> Any:
    together: Together[int, Any] = Together(pool, play_members)
    return together.gather({0: job})[0]


class TablePool(SerialPool):
    """Gives pairs the returns of a table in place of playing them; None is lost."""

    def __init__(self, table: Sequence[tuple[float, float] | None]) -> None:
        self.table = table

    def open_batch(self, fn: Any, deliver: Any, **place: Any) -> Any:
        def play(task: Any) -> Any:
            _, start, stop = task
            assert stop == start + 1
            if self.table[start] is None:
                raise RuntimeError("gone")
            return np.array([self.table[start]]), np.full((1, 2), 10), [], np.zeros((1, 2, 1, 0))

        return super().open_batch(play, deliver, **place)


def test_a_step_follows_the_ranked_noise() -> None:
    pool = TablePool([(1.0, 4.0), (3.0, 2.0)])
    here, niche, _ = jobs(pool, population=4, weight_decay=0.0)
    mean = niche.mean
    stepped: Stepped = finish(pool, here.step(niche, mean, Adam.fresh(mean.size), 3, "sgd"))
    noise = PhiloxNoise(1, mean.size)
    # Ranks of 1 4 / 3 2 are -0.5 0.5 / 1/6 -1/6: differences -1 and 1/3, over 2 pairs and sigma 0.1; rate 0.05.
    gradient = (-noise(3, 0).astype(float) + noise(3, 1).astype(float) / 3) / (2 * 0.1)
    np.testing.assert_allclose(stepped.mean, mean + 0.05 * gradient, rtol=1e-4)
    assert (stepped.steps, stepped.return_mean) == (40, 2.5)


def test_adam_takes_a_step_of_the_learning_rate_first() -> None:
    pool = TablePool([(1.0, 4.0), (3.0, 2.0)])
    here, niche, _ = jobs(pool, population=4)
    mean = niche.mean
    stepped = finish(pool, here.step(niche, mean, Adam.fresh(mean.size), 0))
    np.testing.assert_allclose(np.abs(stepped.mean - mean), 0.05, atol=1e-5)
    assert stepped.adam.updates == 1


def test_niches_draw_apart() -> None:
    pool = TablePool([(1.0, 4.0), (3.0, 2.0)])
    here, niche, _ = jobs(pool, population=4)
    mean = niche.mean
    means = [
        finish(pool, here.step(replace(niche, number=lane), mean, Adam.fresh(mean.size), 0)).mean for lane in (0, 1)
    ]
    assert not np.allclose(*means)


def test_a_lost_pair_leaves_the_others_and_losing_all_leaves_the_agent() -> None:
    pool = TablePool([None, (1.0, 2.0)])
    here, niche, _ = jobs(pool, population=4, weight_decay=0.0)
    mean, fresh = niche.mean, Adam.fresh(niche.mean.size)
    stepped = finish(pool, here.step(niche, mean, fresh, 0, "sgd"))
    expected = mean - 0.05 * PhiloxNoise(1, mean.size)(0, 1).astype(float) / 0.1
    np.testing.assert_allclose(stepped.mean, expected, rtol=1e-4)
    pool.table = [None, None]
    lost = finish(pool, here.step(niche, mean, fresh, 0))
    assert lost.mean is mean
    assert lost.adam is fresh
    assert np.isnan(lost.return_mean)


def test_a_lost_niche_counts_for_no_mean() -> None:
    poet, _ = scripted(ScriptedJobs({}), {0: LOST, 1: 20.0, 2: 30.0})
    niches, fresh = dict(poet.niches), Adam.fresh(1)

    def settle(*ends: tuple[float, float]) -> dict[str, float]:
        poet.niches = dict(niches)
        given = [(Stepped(np.zeros(1), fresh, 10, trained), Scored(score, 5)) for trained, score in ends]
        return poet._settle(dict(enumerate(given))) | poet._summary()

    row = settle((float("nan"), LOST), (10.0, 40.0), (14.0, LOST))
    assert (row["train/return_mean"], row["eval/return_mean"], row["eval/return_max"]) == (12.0, 35.0, 40.0)
    poet.niches = {0: niches[0]}
    niches = dict(poet.niches)
    row = settle((float("nan"), LOST))
    assert not {"train/return_mean", "eval/return_mean"} & row.keys()


@pytest.mark.parametrize(
    ("returns", "score"), [([1.0, np.nan, 3.0, np.inf], 2.0), ([np.nan, -np.inf, np.inf], LOST), ([], LOST)]
)
def test_an_episode_without_a_return_counts_for_no_score(
    returns: list[float], score: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(*_: Any) -> Job[Any]:
        yield []
        count = len(returns)
        return Episodes(np.array(returns), np.full(count, 5), [None] * count, np.zeros((count, 0))), []

    monkeypatch.setattr("algos.evolution.jobs.play_evaluation", play)
    here, niche, _ = jobs(SerialPool())
    # A score of NaN is above and below none: it would win a niche over those that come after it; so would infinity.
    assert finish(SerialPool(), here.score(niche, niche.mean, 0)) == Scored(score, 5 * len(returns))


def test_evaluations_that_come_to_their_cap_are_counted() -> None:
    poet = POET(**settings(eval_max_steps=2))
    rows = [row for _, row in zip(range(5), poet.plan(), strict=False)]
    # No pole falls within two steps. The fifth row has transfers behind it, which are not counted.
    assert [row["eval/cut"] for row in rows] == [3] * 5
    assert "eval/cut" not in next(POET(**settings()).plan())


def test_an_attempt_that_does_not_beat_the_bound_learns_nothing() -> None:
    here, niche, _ = jobs(SerialPool())
    shut = finish(SerialPool(), here.attempt(niche, niche.mean, niche.adam, 0, 1e9, "adam"))
    assert shut.proposal is None
    open_ = finish(SerialPool(), here.attempt(niche, niche.mean, niche.adam, 0, LOST, "adam"))
    assert open_.direct.score == shut.direct.score  # the same episodes
    assert open_.proposal is not None
    assert open_.steps > shut.steps
    assert best_candidate(open_.offers).score == max(open_.direct.score, open_.proposal.score)


# Laws

ITERATIONS = 26


@pytest.fixture(scope="module")
def whole() -> tuple[POET, str, str]:
    """A run, its rows and its events."""
    poet = POET(**settings())
    return poet, *advance(poet, ITERATIONS)


def test_the_run_of_these_tests_has_everything_in_it(whole: tuple[POET, str, str]) -> None:
    poet, _, events = whole
    assert {e["event"] for e in json.loads(events)} >= {"birth", "reject", "transfer", "solved", "retire"}
    assert poet.transfers > 0


@pytest.mark.parametrize("seed", [0, 1])
def test_numbers_do_not_depend_on_who_was_faster(seed: int, whole: tuple[POET, str, str]) -> None:
    assert advance(POET(**settings(pool=ShuffledPool(seed))), ITERATIONS) == whole[1:]


@pytest.mark.parametrize("change", [{"pairs_per_task": 3}, {"vec": Serial(num_envs=1)}])
def test_numbers_do_not_depend_on_how_the_work_is_cut(change: dict[str, Any]) -> None:
    assert advance(POET(**settings(**change)), 14) == advance(POET(**settings()), 14)


def test_resumed_after_any_iteration_it_is_the_run_that_was_not_interrupted(
    tmp_path: Path, whole: tuple[POET, str, str]
) -> None:
    poet, rows, events = whole
    for stop in (1, 6, 13, 18):  # among them before and after transfers and reproduction
        first = POET(**settings())
        head, before = advance(first, stop)
        checkpoints = Checkpoints(tmp_path / str(stop), keep=1)
        checkpoints.save(stop, {"algorithm": first.state_dict()})
        second = POET(**settings(pool=ShuffledPool(stop)))
        state = checkpoints.load()
        assert state is not None
        check_fits(state["algorithm"], second.state_dict())
        second.load_state_dict(state["algorithm"])
        tail, after = advance(second, ITERATIONS - stop)
        assert json.loads(head) + json.loads(tail) == json.loads(rows)
        assert json.loads(before) + json.loads(after) == json.loads(events)
        np.testing.assert_array_equal(second.state_dict()["means"], poet.state_dict()["means"])
        np.testing.assert_array_equal(second.state_dict()["moments"], poet.state_dict()["moments"])


def test_a_niche_is_at_most_so_far_ahead_and_never_beyond_a_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[tuple[int, int]] = []  # (iteration begun, rows given)
    step = AgentJobs.step

    def spy(
        self: AgentJobs, niche: Niche, mean: Any, adam: Adam, iteration: int, optimizer: Any = "adam"
    ) -> Job[Stepped]:
        began.append((iteration, poet.iteration))
        return step(self, niche, mean, adam, iteration, optimizer)

    poet = POET(**settings(pool=ShuffledPool(3)))
    monkeypatch.setattr(AgentJobs, "step", spy)
    advance(poet, 20)
    assert max(iteration - given for iteration, given in began) == AHEAD
    for iteration, given in began:
        # Transfers end iterations 0, 4, 8, ...; reproduction begins 6, 12, ...
        assert not any(given <= meeting < iteration for meeting in range(0, 40, 4))
        assert not any(given < meeting <= iteration for meeting in range(6, 40, 6))


def test_a_pool_that_fails_ends_the_plan_with_its_error() -> None:
    class Broken(SerialPool):
        def open_batch(self, fn: Any, deliver: Any, **place: Any) -> Any:
            def fail(task: Any) -> Any:
                raise PoolError("the scheduler is gone")

            return super().open_batch(fail, deliver, **place)

    with pytest.raises(PoolError, match="scheduler is gone"):
        advance(POET(**settings(pool=Broken())), 1)


def test_the_pool_is_asked_for_more_workers_as_niches_grow() -> None:
    asked: list[int] = []

    class Elastic(SerialPool):
        def ask(self, workers: int) -> None:
            asked.append(workers)

    poet = POET(**settings(pool=Elastic()))
    advance(poet, 20)
    tasks = 4  # of a step: a population of 8, a pair a task
    assert asked[0] == tasks
    assert asked[-1] == len(poet.niches) * tasks == 2 * tasks


def test_closing_the_plan_gives_up_what_is_in_flight() -> None:
    pool = ShuffledPool(0)
    plan = POET(**settings(pool=pool)).plan()
    next(plan)
    plan.close()
    plan.close()
    assert not any(thread.is_alive() and thread.name == "shuffled" for thread in threading.enumerate())


# What it knows


def test_environment_and_agent_of_every_niche_are_kept(whole: tuple[POET, str, str]) -> None:
    poet = whole[0]
    assert poet.archive
    for number in [*poet.archive, *poet.niches]:
        assert isinstance(poet._known(number).problem.env, EnvSpec)
        actions, _, _ = poet.policy(number).act(np.zeros((2, 4), np.float32))
        assert actions.shape == (2,)
    with pytest.raises(ConfigError, match="niche=999 is not a niche of this run; there are 0, "):
        poet.policy(999)


def test_rejected_environments_are_not_niches(whole: tuple[POET, str, str]) -> None:
    poet, _, events = whole
    rejected = {e["niche"] for e in json.loads(events) if e["event"] == "reject"}
    assert rejected
    assert not rejected & {*poet.archive, *poet.niches}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"population": 7}, "population=7 is odd, and members come in mirrored pairs; try 8"),
        ({"pairs_per_task": 0}, "pairs_per_task=0 must be at least 1, or null for as many as keep workers busy"),
        ({"sigma": 0.0}, "sigma=0.0 must be positive"),
        ({"sigma_floor": 0.2}, r"sigma_floor=0.2 must lie in \[0, sigma=0.1\]"),
        ({"learning_rate_decay": 0.0}, r"learning_rate_decay=0.0 must lie in \(0, 1\]"),
        ({"criterion_low": 70.0}, "criterion_low=70.0 must not be above criterion_high=59.0"),
        ({"neighbours": 0}, "neighbours=0 must be at least 1"),
        ({"transfer_every": 0}, "transfer_every=0 must be at least 1"),
        ({"episode_cap": 0}, "episode_cap=0 must be at least 1 step, or null for no cap"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0 must not be negative"),
    ],
)
def test_a_bad_setting_is_one_line(change: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        POET(**settings(**change))
