"""POET as a user runs it: killed at random moments and resumed, on one worker or two, it is the same run."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from conftest import Command, assert_same_run, call_main, kill_and_resume, rows

ITERATIONS = 26
TINY = [  # births, transfers and retirements within a few seconds
    "algo=poet",
    "env=poles",
    "env.step=0.4",
    "env.max_episode_steps=60",
    "vec.num_envs=4",
    "algo.population=8",
    "algo.hidden_sizes=[4]",
    "algo.learning_rate=0.05",
    "algo.eval_episodes=3",
    "algo.pairs_per_task=1",
    "algo.transfer_every=4",
    "algo.reproduce_every=6",
    "algo.reproduce_score=20",
    "algo.max_children=4",
    "algo.max_niches=2",
    "algo.criterion_low=5",
    "algo.criterion_high=59",
    "algo.solved_score=50",
    "checkpoint.every_s=0",
    f"budget.iterations={ITERATIONS}",
    "seed=1",
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert call_main(*TINY, "compute=serial", f"run.dir={run}") == 0
    return run


def test_the_run_tells_what_happened_and_why(undisturbed: Path) -> None:
    events = rows(undisturbed, "events.jsonl")
    assert {event["event"] for event in events} >= {"birth", "reject", "transfer", "solved", "retire"}
    for event in events:
        assert event["event"] in ("solved", "no parents") or event["reason"]
    births = [event for event in events if event["event"] == "birth"]
    assert births[0]["parent"] is None
    assert all(event["env"]["id"] == "CartPole-v1" and event["encoding"]["length"] > 0 for event in births)
    last = rows(undisturbed)[-1]
    retired = sum(event["event"] == "retire" for event in events)
    assert (last["poet/active"], last["poet/archived"]) == (len(births) - retired, retired)
    assert last["poet/transfers"] == sum(event.get("accepted", False) for event in events)
    assert {f"score/{number}" for number in _active(events)} == {name for name in last if name.startswith("score/")}
    assert 0 <= rows(undisturbed, "system.jsonl")[-1]["system/idle_share"] <= 1


def test_killed_and_resumed_it_has_the_same_lineage_and_the_same_bits(
    undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    begin = partial(start, *TINY, f"run.dir={run}", "compute=local")
    assert kill_and_resume(begin, run, kills=2, furthest=9, chance=random.Random(1)) < ITERATIONS
    assert_same_run(undisturbed, run)


def _active(events: list[dict[str, int | str]]) -> set[int | str]:
    active: set[int | str] = set()
    for event in events:
        if event["event"] == "birth":
            active.add(event["niche"])
        elif event["event"] == "retire":
            active.discard(event["niche"])
    return active
