"""The PPO benchmark gives everyone the same work and judges what it measured; how fast they are is for its own runs."""

import importlib
import json
import math
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from paddock.algos.ppo import PPO
from scripts.bench import ppo as bench_ppo
from scripts.bench.contenders.contest import Contender, Missing, Player, failure, measure
from scripts.bench.peers import paddock_ppo, single_file_ppo
from scripts.bench.ppo import BIPEDAL, CLASSIC, OWN, WALKER, main, reach_goal

TINY = CLASSIC | {"num_steps": 16, "minibatch_size": 32, "epochs": 1}


@pytest.mark.parametrize(
    "recipe", [CLASSIC, WALKER, WALKER | {"env": BIPEDAL}, OWN], ids=["classic", "walker", "bipedal", "own"]
)
def test_paddock_plays_the_recipe(recipe: dict[str, Any]) -> None:
    ppo: PPO = paddock_ppo.build(recipe, [], seed=1)
    assert ppo.env.id == recipe["env"]
    assert ppo.vec.num_envs == recipe["num_envs"]
    assert ppo.normalize_observations is ppo.normalize_rewards is recipe["normalize"]
    assert {name: getattr(ppo, name) for name in paddock_ppo.SAME_NAME} == {
        name: recipe[name] for name in paddock_ppo.SAME_NAME
    }
    assert (ppo.hidden, ppo.activation, ppo.shared, ppo.anneal_steps) == ((64, 64), "tanh", False, None)
    assert ppo.seed == 1


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_steps_counted_are_those_after_the_first_update(env: str) -> None:
    recipe = TINY | {"env": env, "normalize": env == "Pendulum-v1"}
    for answer in (
        paddock_ppo.train(recipe, [], updates=3, seed=1),
        paddock_ppo.train(recipe, ["algo.rollouts=prefetch"], updates=3, seed=1),
        single_file_ppo.train(recipe, 1, updates=3, seed=1),
    ):
        assert answer["steps"] == 3 * 4 * 16
        assert answer["seconds"] > 0


def test_shares_of_the_time_add_up() -> None:
    row = {"system/env_s": 1.0, "system/policy_s": 2.0, "system/wait_s": 4.0, "system/learn_s": 6.0}
    shares = {"env": 0.1, "policy": 0.2, "learn": 0.6}
    assert paddock_ppo.split([row, row], 20.0, beside=False) == pytest.approx(shares | {"wait": 0.1})
    assert paddock_ppo.split([row, row], 20.0, beside=True) == pytest.approx(shares | {"wait": 0.4})
    measured = paddock_ppo.train(TINY, [], updates=5, seed=1)["split"]
    assert set(measured) == {"env", "policy", "learn", "wait"}
    assert all(share > 0 for share in measured.values()) and sum(measured.values()) <= 1


def test_stable_baselines_weighs_the_squared_error_as_we_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is value_coef * MSE / 2, Stable-Baselines3's is vf_coef * MSE."""
    fakes = ("", *(f".common{part}" for part in ("", ".callbacks", ".env_util", ".evaluation", ".vec_env")))
    for name in fakes:
        monkeypatch.setitem(sys.modules, f"stable_baselines3{name}", MagicMock())
    monkeypatch.delitem(sys.modules, "scripts.bench.peers.sb3_ppo", raising=False)
    peer = importlib.import_module("scripts.bench.peers.sb3_ppo")
    peer.build(CLASSIC, 1, 0)
    assert peer.PPO.call_args.kwargs["vf_coef"] == CLASSIC["value_coef"] / 2
    assert peer.PPO.call_args.kwargs["ent_coef"] == CLASSIC["entropy_coef"]


def test_the_single_file_learns() -> None:
    answer = single_file_ppo.train(CLASSIC, 1, updates=20, seed=1)
    assert answer["return_mean"] > 40  # a random policy has 22


def test_who_is_not_installed_is_left_out_with_a_line(tmp_path: Path) -> None:
    absent = tmp_path / "absent.py"
    absent.write_text("import nobody_has_this\n")
    contenders = [
        Contender("paddock", "paddock_ppo.py", TINY, [[], ["algo.groups=2"]], updates=1),
        Contender("absent", str(absent), TINY, [1, 2], updates=1),
    ]
    row = measure("a row", contenders, repeats=2)
    assert list(row["contenders"]) == ["paddock"]
    assert len(row["contenders"]["paddock"]["all"]) == 2
    assert row["contenders"]["paddock"]["setting"] in ([], ["algo.groups=2"])
    assert row["skipped"] == {"absent": "ModuleNotFoundError: No module named 'nobody_has_this'"}
    table = bench_ppo.render(row | {"claims": []})
    assert "left out: ModuleNotFoundError" in table
    assert "environment" in table and "policy" in table and "learning" in table and "waiting" in table


@pytest.mark.parametrize("env", ["CartPole-v9", "nobody_has_this:CartPole-v1"])
def test_a_bench_without_ours_is_an_error(env: str) -> None:
    ours = Contender("paddock", bench_ppo.OURS, TINY | {"env": env}, [[]], updates=1)
    with pytest.raises(RuntimeError, match=r"paddock could not be measured: .*(CartPole|nobody_has_this)"):
        measure("a row", [ours], repeats=1)


def test_observations_made_beforehand_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_ppo, "STRUCTURED", bench_ppo.STRUCTURED | TINY)
    row = bench_ppo.bench_structured("MiniGrid", Namespace(quick=True, repeats=1, pufferlib=None))
    assert list(row["contenders"]) == ["paddock", "paddock, flattened"]


def test_a_peer_that_fails_is_an_error_that_names_it(tmp_path: Path) -> None:
    failing = tmp_path / "failing.py"
    failing.write_text("raise ValueError('no such recipe')\n")
    player = Player(str(failing))
    with pytest.raises(RuntimeError, match=r"failing\.py ended with 1: ValueError: no such recipe"):
        player.ask(updates=1)
    player.close()


def test_a_missing_library_is_told_from_a_failure(tmp_path: Path) -> None:
    absent = tmp_path / "absent.py"
    absent.write_text("from json import nothing\n")
    player = Player(str(absent))
    with pytest.raises(Missing, match="ImportError: cannot import name 'nothing'"):
        player.ask(updates=1)
    player.close()


def test_an_error_of_several_lines_is_told_by_its_first() -> None:
    begin = "a warning\nTraceback (most recent call last):\n  File 'x', line 1\n    import y\n"
    missing = failure("x.py", 1, f"{begin}ImportError: libGL.so.1 cannot be opened.\n\nInstall it:\n  apt-get ...\n")
    assert isinstance(missing, Missing) and str(missing) == "ImportError: libGL.so.1 cannot be opened."
    # An import that was tried in vain before is not what ended it.
    other = failure("x.py", 1, f"{begin}ImportError: y\n\nDuring handling, another:\n\n{begin}ValueError: z\n")
    assert isinstance(other, RuntimeError) and str(other) == "x.py ended with 1: ValueError: z"
    assert str(failure("x.py", -9, "")) == "x.py ended with -9: no output"
    assert str(failure("x.py", 2, "usage: x\nx: bad\n")) == "x.py ended with 2: x: bad"


def test_claims_compare_runs_of_the_same_turn() -> None:
    def side(rates: list[float]) -> dict[str, Any]:
        return {"all": rates}

    row = {"contenders": {"paddock": side([10, 30, 20]), "sb3": side([5, 10, 11]), "single file": side([20, 20, 19])}}
    twice, ahead = bench_ppo.compare(row, "paddock")
    assert (twice["ratio"], twice["target"], twice["reached"]) == (2.0, 2.0, True)  # of 2, 3 and 20/11
    assert (ahead["ratio"], ahead["target"], ahead["reached"]) == (pytest.approx(20 / 19), 1.0, True)
    assert bench_ppo.compare({"contenders": {"paddock": side([1])}}, "paddock") == []


def test_without_pufferlib_its_published_rate_is_told_and_nothing_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    side = {"median": 50_000.0, "all": [50_000.0]}
    monkeypatch.setattr(
        bench_ppo, "measure", lambda title, who, repeats: {"contenders": {"paddock": side}, "skipped": {}}
    )
    row = bench_ppo.bench_own(Namespace(quick=True, repeats=1, pufferlib=None))
    assert row["claims"] == [], "what cannot be measured is not missed"
    why, published = row["skipped"]["pufferlib"].split("; ")
    assert "--pufferlib PYTHON" in why
    assert published == "it is published with 46,000-55,000 steps/s on two cores of another machine"


def test_a_run_that_ends_without_the_goal_counts_as_never() -> None:
    run = reach_goal(1, ["compute=serial", "budget.iterations=2"])
    assert run["rate"] == math.inf
    assert run["steps"] == 2 * 8 * 32
    assert run["process_s"] > 0
    assert all(share >= 0 for share in run["split"].values())
    assert 0 < sum(run["split"].values()) <= 1  # the rest is between iterations


@pytest.mark.parametrize(("ratio", "code"), [(1.0, 0), (0.99, 1)])
def test_exit_code_says_whether_every_target_was_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], ratio: float, code: int
) -> None:
    def fake(options: Namespace) -> dict[str, Any]:
        claims = [bench_ppo.claim("ours / theirs", [ratio], 1.0), bench_ppo.claim("ours / others", [3.0], 2.0)]
        return {"title": "a row", "unit": "steps/s", "contenders": {}, "skipped": {}, "claims": claims}

    monkeypatch.setitem(bench_ppo.ROWS, "cartpole", fake)
    path = tmp_path / "bench.json"
    assert main(["--rows", "cartpole", "--json", str(path)]) == code
    report = json.loads(path.read_text())
    assert set(report) == {"machine", "versions", "rows"}
    assert {"python", "torch", "gymnasium"} <= set(report["versions"])
    assert report["rows"]["cartpole"]["claims"][0]["reached"] is (code == 0)
    printed = capsys.readouterr().out
    assert f"ours / theirs: median {ratio:.2f}" in printed
    assert f"target 1 {'reached' if code == 0 else 'MISSED'}" in printed


def test_rows_and_repeats_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    options = bench_ppo._options(["--quick", "--rows", "own", "goal", "--pufferlib", sys.executable])
    assert (options.rows, options.repeats, options.pufferlib) == (["own", "goal"], 3, sys.executable)
    assert bench_ppo._options([]).repeats == 5
    assert bench_ppo._options(["--quick"]).rows == ["cartpole", "goal"], "in under a minute"
    assert bench_ppo._options([]).rows == ["cartpole", "walker", "own", "goal", "spaces", "minigrid"]
    with pytest.raises(SystemExit) as refused:
        main(["--rows", "nothing"])
    assert refused.value.code == 2
    assert "invalid choice: 'nothing'" in capsys.readouterr().err
