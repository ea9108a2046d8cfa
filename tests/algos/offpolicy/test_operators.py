"""The operators of plans that learn from replay: lazy, closed once, and wrong where it went wrong."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from transitions import OBS, World

from paddock.algos.learning.flow import prefetch
from paddock.algos.learning.offpolicy.learned_policy import LearnedPolicy
from paddock.algos.learning.offpolicy.operators import (
    Update,
    count,
    interleave,
    report,
    reprioritize,
    sample,
    store,
    train,
)
from paddock.algos.learning.offpolicy.update_schedule import UpdateSchedule
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.envs.spaces.layout import Layout

LAYOUT = Layout.of(spaces.Box(-np.inf, np.inf, OBS.shape), {}, ())  # of the rollouts' observations


@dataclass
class Stage:
    """Stands for environments, replay, learner and actors, and keeps what they were asked for, in order.

    A rollout has 8 steps. Learning begins after 8 of them, with 5 updates for each 8, drawn 2 at a time.
    """

    fails: str = ""  # what raises
    told: list[str] = field(default_factory=list)
    closed: int = 0
    schedule: UpdateSchedule = field(default_factory=lambda: UpdateSchedule(8, Fraction(5, 8), 2))
    prioritized = True

    def tell(self, what: str) -> None:
        if what == self.fails:
            raise ZeroDivisionError(what)
        self.told.append(what)

    @property
    def policy(self) -> LearnedPolicy:
        learner: Any = self
        self.first = self
        self.architecture = SimpleNamespace(inputs=SimpleNamespace(layout=LAYOUT))
        return LearnedPolicy("", 1, 2, learner, self.schedule, True, learner)

    def rollouts(self) -> Generator[list[Rollout], None, None]:
        world = World(num_envs=2, seed=1)
        try:
            for k in range(6):
                self.tell(f"play {k}")
                yield [world.play(4)]
        finally:
            self.closed += 1

    def append(self, rollout: Rollout) -> None:
        self.tell("store")

    def sample(self, first: int, updates: int, batch_size: int) -> Any:
        self.tell(f"draw {first}+{updates}")
        return SimpleNamespace(ids=np.full((updates, batch_size), first))

    def update(self, batch: Any, rate: float) -> tuple[Any, Any]:
        self.tell(f"learn {batch.ids[0, 0]}")
        return {"rate": np.full(len(batch.ids), rate)}, batch.ids / 2

    def set_priorities(self, ids: Any, distance: Any) -> None:
        np.testing.assert_array_equal(distance, ids / 2)
        self.tell(f"weigh {ids[0, 0]}")

    def plan(self, ahead: int = 0) -> Generator[tuple[dict[str, float], Any], None, None]:
        """DQN's, whole."""
        policy = self.policy
        played = prefetch(self.rollouts(), ahead) if ahead else self.rollouts()
        stored = store(count(played, [policy]), [policy])
        learning = train(sample(policy, 3), policy, lambda: self.schedule.step / 100)
        steps = interleave(stored, [reprioritize(learning, policy)], [policy], lambda: self.tell("publish"))
        return report(steps, [policy], 8, "dqn", ())


def updates(first: int, *sizes: int) -> list[str]:
    """What is told of updates drawn in parts."""
    starts = [first + sum(sizes[:k]) for k in range(len(sizes))]
    return [
        f"{word} {at}{f'+{size}' if word == 'draw' else ''}"
        for at, size in zip(starts, sizes, strict=True)
        for word in ("draw", "learn", "weigh")
    ]


def test_a_plan_computes_only_what_the_pulled_row_needs() -> None:
    stage = Stage()
    plan = stage.plan()
    assert stage.told == []
    row, _ = next(plan)
    assert row == {"iteration": 1, "step": 8, "train/episodes": 0, "train/updates": 0}
    assert stage.told == ["play 0", "store", "publish"]
    row, _ = next(plan)
    # Rows tell the mean of what five updates reported, at a rate that is 16 / 100 by then.
    assert (row["train/updates"], row["dqn/rate"]) == (5, pytest.approx(0.16))
    assert stage.told[3:] == ["play 1", "store", *updates(0, 2, 2, 1), "publish"]
    next(plan)
    assert stage.told[12 + 3 :] == ["play 2", "store", *updates(5, 2, 2, 1), "publish"]
    plan.close()


@pytest.mark.parametrize("rows", [0, 1, 3, 7], ids=["never pulled", "once", "some", "to its end"])
@pytest.mark.parametrize("ahead", [0, 1])
def test_whoever_pulls_closes_the_source_once(rows: int, ahead: int) -> None:
    stage = Stage()
    plan = stage.plan(ahead)
    with closing(plan):
        found = [row for row, _ in (next(plan, ({}, None)) for _ in range(rows)) if row]
    plan.close()
    assert len(found) == min(rows, 6)
    assert stage.closed == (1 if rows else 0)  # what has not begun has nothing to end


@pytest.mark.parametrize(
    ("what", "rows", "ahead"), [("play 3", 3, 1), ("draw 0+2", 1, 0), ("learn 7", 2, 0), ("publish", 0, 1)]
)
def test_what_goes_wrong_comes_out_at_its_row_and_ends_the_rest(what: str, rows: int, ahead: int) -> None:
    stage = Stage(fails=what)
    plan = stage.plan(ahead)
    assert [next(plan)[0]["iteration"] for _ in range(rows)] == [*range(1, rows + 1)]
    with pytest.raises(ZeroDivisionError, match=what.replace("+", r"\+")):
        next(plan)
    assert stage.closed == 1 and next(plan, None) is None


def test_a_row_is_told_once_so_many_steps_were_passed() -> None:
    stage = Stage()
    stage.schedule.learning_starts = 1000
    nothing: list[Update] = []
    learning = (update for update in nothing)
    policies = [stage.policy]
    steps = interleave(count(stage.rollouts(), policies), [learning], policies, lambda: None)
    with closing(report(steps, policies, 20, "dqn", ())) as plan:
        assert [row["step"] for row, _ in plan] == [24, 40]  # 20 and 40 are passed by rollouts of 8 steps
