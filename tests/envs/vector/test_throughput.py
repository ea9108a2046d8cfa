"""Where the time goes is told by the same names by every algorithm, and never in metrics.jsonl."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, call_main, rows
from omegaconf import OmegaConf

import paddock.algos.common.timing
from paddock.algos.common.timing import Clock
from paddock.algos.pool.serial import SerialPool
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm

ALWAYS = {f"system/{name}" for name in ("iteration_s", "learn_s", "wait_s", "learn_share", "wait_share")}
ACTING = {f"system/{name}" for name in ("env_s", "policy_s", "env_share", "policy_share", "eval_wait_s")}
AHEAD = {"system/ahead_wait_s", "system/queue_wait_s"}
WORKING = {"system/worker_s", "system/idle_share"}
GRADIENTS = [
    "algo.hidden_sizes=[8]",
    "algo.num_steps=8",
    "algo.minibatch_size=16",
    "vec.num_envs=2",
    "algo.eval_every_iterations=2",
    "algo.eval_episodes=2",
]


@pytest.mark.parametrize(
    ("overrides", "keys"),
    [
        (TINY, ALWAYS | WORKING),
        (["algo=ppo", *GRADIENTS], ALWAYS | ACTING),
        (["algo=ppo", *GRADIENTS, "algo.rollouts=prefetch"], ALWAYS | ACTING | AHEAD),
        (["algo=ppo", *GRADIENTS, "algo.rollouts=actors", "algo.num_actors=2"], ALWAYS | ACTING | WORKING),
    ],
    ids=["es", "ppo", "ppo prefetch", "ppo actors"],
)
def test_every_row_has_the_times_and_their_shares(overrides: list[str], keys: set[str]) -> None:
    config: Any = OmegaConf.to_container(compose_alone(overrides), resolve=True)
    with contextlib.closing(build_algorithm(config, SerialPool()).plan()) as plan:
        found = [next(plan) for _ in range(3)]
    for row in found:
        assert keys <= row.keys()
        assert all(0 <= row[key] <= 1 for key in row if key.endswith("_share"))
        assert all(row[key] >= 0 for key in row if key.endswith("_s"))
        parts = row["system/learn_s"] + row["system/wait_s"] + row.get("system/eval_wait_s", 0)
        assert parts + row.get("system/loop_s", 0) == pytest.approx(row["system/iteration_s"])


def test_a_clock_gives_each_part_what_passed_before_its_lap(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 4.0, 5.0, 10.0, 16.0, 20.0])
    monkeypatch.setattr(paddock.algos.common.timing.time, "perf_counter", lambda: next(now))
    clock = Clock()
    for name in ("loop", "wait", "learn", "wait"):  # 1, 3, 1 and 5 s
        clock.lap(name)
    # Waiting took 3 + 5 of 10 s, learning 1.
    assert clock.read() == {
        "system/iteration_s": 10.0,
        "system/loop_s": 1.0,
        "system/wait_s": 8.0,
        "system/learn_s": 1.0,
        "system/learn_share": 0.1,
        "system/wait_share": 0.8,
    }
    clock.lap("wait")
    clock.lap("learn")
    assert clock.read()["system/iteration_s"] == 10.0  # from 10 to 20


def test_system_jsonl_has_all_of_it_and_metrics_jsonl_none(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert call_main(*TINY, "compute=serial", "budget.iterations=2", f"run.dir={run}") == 0
    loop = {f"system/{name}" for name in ("seconds", "steps_per_s", "memory_gb")}
    for row in rows(run, "system.jsonl"):
        assert ALWAYS | WORKING | loop <= row.keys()
    assert not [key for row in rows(run) for key in row if key.startswith("system/")]
