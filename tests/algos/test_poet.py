"""POET by the laws of the house, and the evolution strategy of each agent; expected numbers are worked by hand."""

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
from poets import settings

from paddock.algos.common.keys import PhiloxNoise
from paddock.algos.evolution.jobs import LOST, AgentJobs, EvaluationResult, StepResult, best_candidate
from paddock.algos.evolution.niche import Niche
from paddock.algos.evolution.optimizers import Adam
from paddock.algos.evolution.population import play_members
from paddock.algos.evolution.side_by_side import AHEAD
from paddock.algos.learning.episodes import Episodes
from paddock.algos.learning.flow import ConcurrentJobs, Job
from paddock.algos.poet import POET
from paddock.algos.pool.protocol import Done, End, PoolError
from paddock.algos.pool.serial import SerialPool
from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Serial
from paddock.runs.checkpoint import Checkpoints, check_fits


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
        self._thread = threading.Thread(target=self._run, name="shuffled", daemon=True)
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


# The evolution strategy of one agent


def jobs(pool: Any, **changes: Any) -> tuple[AgentJobs, Niche, POET]:
    poet = POET(**settings(pool=pool, **changes))
    poet._create_first_niche()
    return poet.jobs, poet.niches[0], poet


def finish(pool: Any, job: Job[Any]) -> Any:
    together: ConcurrentJobs[int, Any] = ConcurrentJobs(pool, play_members)
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
    stepped: StepResult = finish(pool, here.step(niche, mean, Adam.fresh(mean.size), 3, "sgd"))
    noise = PhiloxNoise(1, mean.size)
    # Ranks of 1 4 / 3 2 are -0.5 0.5 / 1/6 -1/6: differences -1 and 1/3, over 2 pairs and sigma 0.1; rate 0.05.
    gradient = (-noise(3, 0).astype(float) + noise(3, 1).astype(float) / 3) / (2 * 0.1)
    np.testing.assert_allclose(stepped.mean, mean + 0.05 * gradient, rtol=1e-4)
    assert (stepped.steps, stepped.return_mean) == (40, 2.5)


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


@pytest.mark.parametrize(
    ("returns", "score"), [([1.0, np.nan, 3.0, np.inf], 2.0), ([np.nan, -np.inf, np.inf], LOST), ([], LOST)]
)
def test_an_episode_without_a_return_counts_for_no_score(
    returns: list[float], score: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(*_: Any, **__: Any) -> Job[Any]:
        yield []
        count = len(returns)
        return Episodes(np.array(returns), np.full(count, 5), [None] * count, np.zeros((count, 0))), []

    monkeypatch.setattr("paddock.algos.evolution.jobs.play_evaluation", play)
    here, niche, _ = jobs(SerialPool())
    # A score of NaN is above and below none: it would win a niche over those that come after it; so would infinity.
    assert finish(SerialPool(), here.score(niche, niche.mean, 0)) == EvaluationResult(score, 5 * len(returns))


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
    assert best_candidate(open_.candidates).score == max(open_.direct.score, open_.proposal.score)


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


def test_numbers_do_not_depend_on_who_was_faster(whole: tuple[POET, str, str]) -> None:
    assert advance(POET(**settings(pool=ShuffledPool(0))), ITERATIONS) == whole[1:]


def test_numbers_do_not_depend_on_how_the_work_is_cut(whole: tuple[POET, str, str]) -> None:
    assert advance(POET(**settings(pairs_per_task=3, vec=Serial(num_envs=2))), ITERATIONS) == whole[1:]


def test_resuming_between_transfers_and_reproduction_gives_the_same_run(
    tmp_path: Path, whole: tuple[POET, str, str]
) -> None:
    poet, rows, events = whole
    stop = 21  # with two niches and an accepted transfer; a birth, a retirement and a transfer follow
    first = POET(**settings())
    head, before = advance(first, stop)
    assert len(first.niches) == 2 and first.transfers == 1
    checkpoints = Checkpoints(tmp_path, keep=1)
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
    ) -> Job[StepResult]:
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
    with pytest.raises(ConfigError, match="niche=999 is not a niche of this run; known: 0, "):
        poet.policy(999)


def test_rejected_environments_are_not_niches(whole: tuple[POET, str, str]) -> None:
    poet, _, events = whole
    rejected = {e["niche"] for e in json.loads(events) if e["event"] == "reject"}
    assert rejected
    assert not rejected & {*poet.archive, *poet.niches}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"population": 7}, "population=7 is odd, but members come in pairs; try 8"),
        ({"sigma_floor": 0.2}, r"sigma_floor=0.2 must be in \[0, sigma=0.1\]"),
        ({"criterion_low": 70.0}, "criterion_low=70.0 must not be above criterion_high=59.0"),
    ],
)
def test_a_bad_setting_is_one_line(change: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        POET(**settings(**change))
