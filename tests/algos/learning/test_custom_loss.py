"""Losses of a user's own, in a package outside the repository."""

import shutil
from pathlib import Path

import pytest
from conftest import ROOT, call_main, rows

PPO = ["algo=ppo", "env=cartpole", "compute=serial", "vec.num_envs=2", "algo.num_steps=16", "algo.hidden_sizes=[8]"]
PPO += ["algo.minibatch_size=32"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with the loss of the tutorial."""
    (tmp_path / "my_package").mkdir()
    shutil.copy(ROOT / "docs/tutorial/corridor/losses.py", tmp_path / "my_package")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_documented_loss_of_a_users_package_learns(package: Path) -> None:
    words = [*PPO, "algo.loss=my_package.losses.spo_loss", "algo.target_kl=0.5", "budget.iterations=3"]
    assert call_main(*words, f"run.dir={package}/run") == 0
    last = rows(package / "run")[0]
    assert last["ppo/value_loss"] > 0 and last["ppo/approx_kl"] > 0 and last["ppo/gradient_norm"] > 0
    assert "ppo/clip_fraction" not in last


def test_a_custom_loss_of_a2c_learns(package: Path) -> None:
    words = [word for word in PPO if word not in ("algo=ppo", "algo.minibatch_size=32")]
    loss = "algo.loss=my_package.losses.spo_loss"
    assert call_main("algo=a2c", *words, loss, "budget.iterations=2", f"run.dir={package}/run") == 0
    assert rows(package / "run")[0]["a2c/value_loss"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algo.backend=dense"], "algo.loss=my_package.losses.spo_loss: only torch supports this"),
        (["algo.loss=my_package.losses.sppo_loss"], "did you mean 'spo_loss'?"),
        (["algo.loss=builtins.slice"], "algo.loss: slice must return (loss, metrics)"),
    ],
    ids=["dense", "unknown", "no loss"],
)
def test_a_loss_that_cannot_be_used_is_refused_in_one_line(
    words: list[str], said: str, package: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = [] if "algo.loss" in words[0] else ["algo.loss=my_package.losses.spo_loss"]
    assert call_main(*PPO, *mine, *words, "budget.iterations=1", f"run.dir={package}/run") != 0
    err = capfd.readouterr().err
    assert said in err and len(err.strip().splitlines()) == 1, err
