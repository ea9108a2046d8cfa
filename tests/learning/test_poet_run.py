"""POET as a user runs it: killed at random moments and resumed, on one worker or two, it is the same run."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Command, final_state, rows

ITERATIONS = 26
TINY = [  # births, transfers and retirements within a few seconds
    "algo=poet",
    "env=poles",
    "env.step=0.4",
    "env.max_episode_steps=60",
    "vec.num_envs=4",
    "algo.population=8",
    "algo.hidden=[4]",
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
    code, _, err = Command(*TINY, "compute=serial", f"run.dir={run}").wait()
    assert code == 0, err
    return run


def assert_same(run: Path, other: Path) -> None:
    for journal in ("metrics.jsonl", "events.jsonl"):
        assert (run / journal).read_bytes() == (other / journal).read_bytes()
    assert final_state(run) == final_state(other)


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


@pytest.mark.parametrize("compute", ["serial", "local"])
def test_killed_and_resumed_it_has_the_same_lineage_and_the_same_bits(
    compute: str, undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    chance = random.Random(compute)
    reached = 0
    for _ in range(2):
        command = start(*TINY, f"run.dir={run}", f"compute={compute}")
        goal = reached + chance.randint(1, 9)
        command.wait_for(run, goal)
        assert command.process.poll() is None
        command.kill()
        reached = len(rows(run))
    code, out, err = start(*TINY, f"run.dir={run}", f"compute={compute}").wait()
    assert code == 0, err
    assert "going on in" in out
    assert_same(undisturbed, run)


def _active(events: list[dict[str, int | str]]) -> set[int | str]:
    active: set[int | str] = set()
    for event in events:
        if event["event"] == "birth":
            active.add(event["niche"])
        elif event["event"] == "retire":
            active.discard(event["niche"])
    return active
