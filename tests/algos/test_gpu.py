"""What learns on a GPU: the laws that it obeys there as elsewhere."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import learned
import numpy as np
import pytest
import torch
from conftest import Command, Main, assert_same_run, call_main, kill_and_resume, last_of_each, rows
from learned import leaves

from paddock.runs.checkpoint import Checkpoints

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")

SMALL = ["vec.num_envs=8", "algo.eval_every_iterations=1000000", "algo.device=cuda"]
SCENES = ["env=gymnasium", "env.id=toy_envs:Scenes-v0", "env.fresh=false"]  # which convolutions see
PPO = ["algo=ppo", "algo.num_steps=16", "algo.minibatch_size=64", "algo.hidden_sizes=[64]"]
REPLAYED = [
    *(
        "algo.num_steps=4",
        "algo.log_every_steps=32",
        "algo.buffer_size=512",
        "algo.learning_starts=64",
        "algo.batch_size=32",
    ),
    *("algo.updates_per_step=0.25", "algo.hidden_sizes=[64]"),
]
DQN = ["algo=dqn", *REPLAYED, "algo.target_every=3", "algo.epsilon_steps=100"]
CONTINUOUS = [*REPLAYED, "env=pendulum", "env.max_episode_steps=30"]
VARIANTS = {
    "ppo": [*PPO, "env=pendulum"],
    "ppo-scenes": [*PPO, *SCENES],
    "ppo-minatar": [*PPO, "env=minatar_breakout", "vec=native"],
    "ppo-lstm": [*PPO, "env=recall", "algo.lstm=true"],
    "ppo-threads": [*PPO, *SCENES, "algo.rollouts=threads", "algo.staleness=1", "algo.num_actors=2"],
    "ppo-cpu-actors": [*PPO, *SCENES, "algo.rollouts=threads", "algo.num_actors=2", "algo.actor_device=cpu"],
    "ppo-bfloat16": [*PPO, *SCENES, "algo.precision=bfloat16"],
    "dqn-scenes": [*DQN, *SCENES],
    "rainbow": [
        *(*DQN, *SCENES, "algo.atoms=7", "algo.v_min=0", "algo.v_max=20", "algo.noisy_sigma=0.4", "algo.n_step=3"),
        *("algo.priority_exponent=0.6", "algo.dueling=true", "algo.rollouts=threads", "algo.num_actors=2"),
    ],
    "quantiles": [*DQN, "env=cartpole", "algo.quantiles=5"],
    "sac": ["algo=sac", *CONTINUOUS],
    "tqc": ["algo=sac", *CONTINUOUS, "algo.quantiles=5", "algo.num_dropped_quantiles=1"],
    "td3": ["algo=td3", *CONTINUOUS],
    "ddpg": ["algo=ddpg", *CONTINUOUS],
    "r2d2": [
        *("algo=r2d2", *REPLAYED, "env=recall", "algo.burn_in=2", "algo.sequence_length=8", "algo.n_step=2"),
        *("algo.learning_starts=88", "algo.batch_size=16", "algo.target_every=3"),
    ],
    "pqn": [
        *("algo=pqn", *SCENES, "algo.num_steps=8", "algo.minibatch_size=32"),
        *("algo.log_every_steps=64", "algo.epsilon_steps=100"),
    ],
}
ROWS, SOME = 8, 3


def algorithm(variant: str, folder: Path, *more: str) -> Any:
    return learned.algorithm(*last_of_each([*SMALL, *VARIANTS[variant], *more]), folder=folder)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_gpu_gives_the_same_bits_again_and_after_an_interruption(variant: str, tmp_path: Path) -> None:
    whole, again = (algorithm(variant, tmp_path / name) for name in ("whole", "again"))
    expected = learned.advance(whole, ROWS)
    assert learned.advance(again, ROWS) == expected
    assert leaves(again.state_dict()) == leaves(whole.state_dict())

    first = algorithm(variant, tmp_path / "cut")
    assert learned.advance(first, ROWS // 2) == expected[: ROWS // 2]
    (tmp_path / "cut").mkdir(exist_ok=True)
    checkpoints = Checkpoints(tmp_path / "cut" / "checkpoints", keep=1)
    checkpoints.save(1, first.state_dict())
    second = algorithm(variant, tmp_path / "cut")
    second.load_state_dict(checkpoints.load())
    assert learned.advance(second, ROWS - ROWS // 2) == expected[ROWS // 2 :]
    assert leaves(second.state_dict()) == leaves(whole.state_dict())


@pytest.mark.parametrize("variant", [name for name in VARIANTS if "bfloat16" not in name])
def test_a_gpu_learns_what_a_cpu_learns(variant: str, tmp_path: Path) -> None:
    # By priorities other rows would be drawn where last bits differ.
    uniform = ["algo.priority_exponent=0"] if "algo.priority_exponent=0.6" in VARIANTS[variant] else []
    here = algorithm(variant, tmp_path / "here", "algo.device=cpu", *uniform)
    there = algorithm(variant, tmp_path / "there", *uniform)
    first = there.weights()
    # Later on an action may differ that hung by a last bit.
    by_cpu, by_gpu = learned.advance(here, SOME), learned.advance(there, SOME)
    assert [row.keys() for row in by_cpu] == [row.keys() for row in by_gpu]
    drawn, one, other = (
        np.concatenate([each.parameters for each in of]) for of in (first, here.weights(), there.weights())
    )
    apart, moved = np.abs(one - other).max(), np.abs(one - drawn).max()
    print(f"{variant}: parameters moved by {moved:.1e} and are {apart:.1e} apart")
    assert moved > 0 and apart < 0.05 * moved


def test_what_learned_on_a_gpu_goes_on_and_is_evaluated_without_one(tmp_path: Path, call_command: Main) -> None:
    words = [*SMALL, *VARIANTS["ppo-scenes"], "compute=serial", "track=none", f"run.dir={tmp_path / 'run'}"]
    assert call_main(*words, "budget.iterations=2") == 0
    assert call_main(*[word for word in words if "device" not in word], "budget.iterations=3") == 0
    assert {row["iteration"] for row in rows(tmp_path / "run")} == {1, 2, 3}
    assert call_command("evaluate", tmp_path / "run", "episodes=2")[0] == 0


def test_a_run_that_is_killed_on_a_gpu_goes_on_to_the_same_bits(tmp_path: Path, start: Callable[..., Command]) -> None:
    words = [*SMALL, *VARIANTS["ppo-minatar"], "compute=serial", "checkpoint.every_s=0", "budget.iterations=60"]
    run, whole = tmp_path / "run", tmp_path / "whole"
    code, _, err = start(*words, f"run.dir={whole}").wait()
    assert code == 0, err
    reached = kill_and_resume(lambda: start(*words, f"run.dir={run}"), run, 2, 8, random.Random(0))
    assert 2 <= reached < 60
    assert_same_run(run, whole)
