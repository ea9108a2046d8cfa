"""What learns from replay reaches published scores; each test prints after how many steps, and by how much.

A score is an evaluation's while it learns, and a run ends with the first that reaches it: action values come and go.
"""

from contextlib import closing
from pathlib import Path

import pytest

from paddock.algos.pool.serial import SerialPool
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm, read_plain

CART = ["env=cartpole", "vec=native", "algo.num_steps=16", "algo.hidden_sizes=[64,64]", "algo.learning_rate=1e-3"]
CART += ["algo.log_every_steps=1024", "algo.eval_every_steps=4096"]
DQN = ["algo=dqn", *CART, "vec.num_envs=8", "algo.updates_per_step=0.25", "algo.target_every=100", "algo.n_step=3"]
DQN += ["algo.epsilon_steps=8000"]
APEX = ["algo=apex", *CART, "vec.num_envs=16", "algo.updates_per_step=0.25", "algo.target_every=200"]
APEX += ["algo.rollouts=inline", "algo.batch_size=128", "algo.learning_starts=1000"]
APEX += ["algo.learning_rate_schedule=linear", "budget.steps=100000"]
RECIPES: dict[str, tuple[list[str], float, int]] = {  # words, the mean return to reach, steps at most
    "sac": (["experiment=sac_pendulum"], -200, 20_000),
    "td3": (["experiment=td3_pendulum"], -200, 20_000),
    "ddpg": (["experiment=td3_pendulum", "algo=ddpg"], -200, 20_000),
    "dqn": (DQN, 450, 60_000),
    "apex": (APEX, 450, 100_000),
}
DISTRIBUTIONS: dict[str, list[str]] = {  # in torch
    "c51": [*DQN, "algo.atoms=51", "algo.v_min=0", "algo.v_max=100"],
    "rainbow": ["experiment=rainbow_cartpole"],
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3))])
@pytest.mark.parametrize(
    "name", ["sac", "dqn", *(pytest.param(k, marks=pytest.mark.nightly) for k in ("td3", "ddpg", "apex"))]
)
def test_the_published_score_is_reached(name: str, seed: int, tmp_path: Path) -> None:
    reach(name, *RECIPES[name], seed, tmp_path)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_of_returns_balance_the_pole(name: str, tmp_path: Path) -> None:
    reach(name, DISTRIBUTIONS[name], 450, 60_000, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_soft_choices_end_above_475(seed: int, tmp_path: Path) -> None:
    config = read_plain(compose_alone(["experiment=sac_cartpole", f"seed={seed}"]))
    algorithm = build_algorithm(config, SerialPool(), folder=tmp_path)
    with closing(algorithm.plan()) as plan:
        while next(plan)["step"] < config["budget"]["steps"]:
            pass
        last = algorithm.evaluate_last()[-1]  # of 20 episodes, by the most probable actions
    print(f"seed {seed}: {last['eval/return_mean']:.1f}, {last['eval/return_mean'] - 475:+.1f} to spare")
    assert last["eval/episodes"] == 20 and last["eval/return_mean"] >= 475


def reach(name: str, words: list[str], goal: float, most: int, seed: int, tmp_path: Path) -> None:
    config = read_plain(compose_alone([*words, f"seed={seed}", "algo.threads=1"]))
    plan = build_algorithm(config, SerialPool(), folder=tmp_path).plan()
    reached, step = -float("inf"), 0.0
    while reached < goal and step < most:
        row = next(plan)
        reached, step = row.get("eval/return_mean", reached), row["step"]
    plan.close()
    print(f"{name}, seed {seed}: {reached:.1f} after {step:,.0f} of {most:,} steps, {reached - goal:+.1f} to spare")
    assert reached >= goal
