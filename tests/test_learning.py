"""What learns, learns; each test prints by how much."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Command

from paddock.evaluate import evaluate


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_cartpole_recipe_reaches_475_within_a_minute(
    seed: int, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    command = start("experiment=es_cartpole", f"seed={seed}", "compute.workers=2", "budget.minutes=1", f"run.dir={run}")
    code, out, err = command.wait()
    assert code == 0, err
    fresh = evaluate(run, episodes=20, seed=100 + seed)
    print(f"seed {seed}: {fresh.returns.mean():.1f} over 20 fresh episodes, {fresh.returns.mean() - 475:+.1f} to spare")
    print(out)
    assert fresh.returns.mean() >= 475
