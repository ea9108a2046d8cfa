"""What learns, learns; each test prints by how much."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Command

from paddock.evaluation.fresh_episodes import evaluate


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3))])
@pytest.mark.parametrize("algo", [pytest.param("es", marks=pytest.mark.nightly), "ppo"])
def test_the_cartpole_recipes_reach_475_within_a_minute(
    algo: str, seed: int, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    command = start(
        f"experiment={algo}_cartpole",
        f"seed={seed}",
        "compute=local",
        "compute.workers=2",
        "budget.minutes=1",
        f"run.dir={run}",
    )
    code, out, err = command.wait()
    assert code == 0, err
    # PPO's evaluation is of the policy some updates ago, which is the best one; ES's is of the last.
    fresh = evaluate(run, episodes=20, seed=100 + seed, which="best" if algo == "ppo" else "last")
    print(f"seed {seed}: {fresh.returns.mean():.1f} over 20 fresh episodes, {fresh.returns.mean() - 475:+.1f} to spare")
    print(out)
    assert fresh.returns.mean() >= 475


@pytest.mark.slow
def test_only_memory_solves_recall(tmp_path: Path, start: Callable[..., Command]) -> None:
    returns = {}
    for lstm, steps in (("true", 60000), ("false", 20000)):
        run = tmp_path / lstm
        budget = f"budget.steps={steps}"
        words = ["experiment=ppo_recall", f"algo.lstm={lstm}", "compute=serial", budget, f"run.dir={run}"]
        code, _, err = start(*words).wait()
        assert code == 0, err
        returns[lstm] = evaluate(run, episodes=200, seed=1).returns.mean()
    print(f"with memory {returns['true']:.2f}, without {returns['false']:.2f}")
    assert returns["true"] >= 0.95 and returns["false"] <= 0.3
