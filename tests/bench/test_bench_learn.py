"""The benchmark of learning counts, compares and judges as it says; how fast learning is, is for its own runs."""

import json
import math
import shutil
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import native  # noqa: F401, a fixture

from paddock.algos.ppo import PPO
from scripts.bench import learn
from scripts.bench.contenders.contest import Contender, Refused, measure
from scripts.bench.learn import AVX2, CARTPOLE, FAST, OURS, ROWS, WAYS, main, rate_claims, read_options, render_grow
from scripts.bench.limits import learn_limit
from scripts.bench.limits.learn_limit import count_operations, measure_peak, measure_products, render_products
from scripts.bench.peers import paddock_ppo
from scripts.bench.ppo import WALKER
from scripts.bench.rows import doorkey

COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
TINY = CARTPOLE | {"num_envs": 8, "num_steps": 16, "minibatch_size": 32, "anneal_steps": 256}


def test_our_settings_on_cartpole_are_those_that_paddock_plays() -> None:
    ppo: PPO = paddock_ppo.build(CARTPOLE, WAYS[0], seed=1)
    assert {name: getattr(ppo, name) for name in paddock_ppo.SAME_NAME} == {
        name: CARTPOLE[name] for name in paddock_ppo.SAME_NAME
    }
    assert (ppo.vec.num_envs, list(ppo.hidden), ppo.threads) == (CARTPOLE["num_envs"], CARTPOLE["hidden"], 2)
    assert ppo.anneal_steps == CARTPOLE["anneal_steps"]


def test_a_step_costs_three_products_of_each_weight_and_two_of_the_first_layer_s() -> None:
    # Layers of 2 x 3 and 3 x 1: forward 6 + 3, their gradients 6 + 3, and that of the hidden layer 3, each a
    # multiplication and an addition; two epochs.
    assert count_operations([[2, 3, 1]], epochs=2) == 2 * 2 * (9 + 9 + 3)
    # The walker's networks, of which 64 rows are learned from 10 times: the 63,360 an epoch and row.
    assert count_operations(learn.sizes_of(64), epochs=10) == 10 * 63_360


@needs_compiler
def test_no_product_is_faster_than_the_arithmetic_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learn_limit, "SIDES", (64,))
    products, peak = measure_products(2), measure_peak(20)
    assert 1e9 < peak < 1e12
    assert 0 < products["64"]["own"] * 1e9 < 1.5 * peak, "but for what others on the core take from the peak"
    assert products["64"]["blas"] > 0 and products["64"]["ratio"] > 0
    assert "nowhere worth 1.3 times" in render_products({"64": {"own": 10.0, "blas": 12.9, "ratio": 1.29}}, peak)
    worth = {"64": {"own": 10.0, "blas": 10.0, "ratio": 1.0}, "128": {"own": 10.0, "blas": 14.0, "ratio": 1.4}}
    assert "worth more than 1.3 times own lanes at 128" in render_products(worth, peak)


@needs_compiler
def test_blas_is_given_what_own_lanes_are_given() -> None:
    random = np.random.default_rng(1)
    a, b = (random.normal(size=(32, 32)).astype(np.float32) for _ in range(2))
    own, theirs = np.zeros((32, 32), np.float32), np.zeros((32, 32), np.float32)
    with learn_limit.built() as c:
        learn_limit.own_product(c, a, b, own)()
    learn_limit.blas_product(a, b, theirs)()
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert np.allclose(own, expected, atol=1e-4) and np.allclose(theirs, expected, atol=1e-4)


def test_rates_are_held_against_the_target_of_their_instructions() -> None:
    row = {"contenders": {OURS: {"all": [30_000, 60_000, 90_000]}, AVX2: {"all": [44_000] * 3}}}
    (reached,) = rate_claims(row, OURS, "avx512", learn.WALKER_RATES)
    assert (reached["ratio"], reached["reached"], reached["what"]) == (
        1.0,
        True,
        "paddock / 60,000 steps/s with avx512",
    )
    (missed,) = rate_claims(row, AVX2, "avx2", learn.WALKER_RATES)
    assert (missed["ratio"], missed["reached"]) == (pytest.approx(44 / 45), False)
    assert rate_claims(row, OURS, "baseline", learn.WALKER_RATES) == [], "there is no target for SSE2"
    assert rate_claims({"contenders": {}}, OURS, "avx512", learn.WALKER_RATES) == []


def test_a_setting_that_is_refused_is_none_of_the_grid_and_a_grid_of_such_is_left_out(tmp_path: Path) -> None:
    refusing = tmp_path / "refusing.py"
    refusing.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    refused = json.loads(line)['setting'] == ['bad']\n"
        "    answer = {'refused': 'bad is none'} if refused else {'steps': int(os.environ['STEPS']), 'seconds': 1.0}\n"
        "    print(json.dumps(answer), flush=True)\n"
    )
    some = Contender("some", str(refusing), TINY, [["bad"], ["good"]], updates=1, environment={"STEPS": "7"})
    row = measure("a row", [some, Contender("none", str(refusing), TINY, [["bad"]], updates=1)], repeats=1)
    assert row["contenders"].keys() == {"some"} and row["contenders"]["some"]["setting"] == ["good"]
    assert row["contenders"]["some"]["all"] == [7.0], "in the environment that was named"
    assert row["skipped"] == {"none": "bad is none"}


@pytest.mark.parametrize("setting", ["algo.epochs=0", "algo.no_such_key=1"])
def test_paddock_says_in_a_line_what_it_refuses(setting: str) -> None:
    answer = paddock_ppo.train(TINY, [setting], updates=1, seed=1)
    assert answer.keys() == {"refused"} and setting.split("=")[0] in answer["refused"] and "\n" not in answer["refused"]


def test_training_to_a_goal_stops_there_or_at_the_end_of_the_recipe() -> None:
    met = paddock_ppo.reach(TINY, [], goal=1.0, every=128, episodes=2, seed=1)
    assert met["return_mean"] >= 1.0 and met["steps"] == 2 * 128, (
        "the first evaluation ends while the second rollout does"
    )
    missed = paddock_ppo.reach(TINY, [], goal=501.0, every=128, episodes=2, seed=1)
    assert missed["return_mean"] is None and missed["steps"] == 256


def test_growth_names_the_fastest_and_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        def __init__(self, file: str) -> None:
            assert file == "paddock_ppo.py"

        def ask(self, recipe: dict[str, Any], setting: list[str], **rest: Any) -> dict[str, Any]:
            if "algo.backend=torch" in setting and "algo.threads=2" in setting:
                raise Refused("no such backend")
            assert recipe["num_envs"] * recipe["num_steps"] >= recipe["minibatch_size"]
            wide = recipe["hidden"][0] > 64 and "algo.backend=torch" in setting
            return {"steps": 100, "seconds": 1.0 if wide else 2.0, "split": {"learn": 0.5}}

        def close(self) -> None:
            pass

    monkeypatch.setattr(learn, "Player", Fake)
    monkeypatch.setattr(learn, "HIDDEN", (64, 256))
    monkeypatch.setattr(learn, "MINIBATCHES", (64, 4096))
    row = learn.bench_grow(Namespace(quick=False, repeats=1))
    assert [(cell["hidden"], cell["minibatch"]) for cell in row["cells"]] == [
        (64, 64),
        (64, 4096),
        (256, 64),
        (256, 4096),
    ]
    assert row["cells"][0]["rates"] == {"own, 1 thread": 100.0, "torch, 1 thread": 100.0, "own, 2 threads": 100.0}
    assert row["cells"][2]["rates"]["torch, 1 thread"] == 200.0
    assert row["skipped"] == {"torch, 2 threads": "no such backend"}
    lines = render_grow(row).splitlines()
    assert lines[4].startswith("2 x 256, 64") and lines[4].endswith("torch, 1 thread")
    assert lines[-1].endswith("left out: no such backend")


def test_the_goal_counts_training_and_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(seed: int, overrides: list[str]) -> dict[str, Any]:
        asked.append((seed, overrides))
        process_s = 5.0 if overrides == FAST else 3.0
        return {"rate": 0.5, "process_s": process_s, "steps": 10, "return_mean": 475.0, "split": {}}

    monkeypatch.setattr(learn.ppo, "reach_goal", run)
    row = learn.bench_goal(Namespace(quick=False, repeats=2))
    serial = [*FAST, "compute=serial"]
    assert asked == [(1, FAST), (1, serial), (2, FAST), (2, serial)]
    training, process = row["claims"]
    assert (training["ratio"], training["reached"]) == (2.0, True)
    assert (process["ratios"], process["reached"]) == ([pytest.approx(4 / 3)] * 2, True)
    assert process["what"] == "4 s of the process / paddock, compute=serial", "the faster one of the two"


def test_a_seed_that_never_reached_the_key_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def reach(seed: int, overrides: list[str], experiment: str, goal: float) -> dict[str, Any]:
        assert (overrides, experiment, goal) == ([], "ppo_doorkey", 0.9)
        return {"process_s": 15.0, "steps": 1000, "return_mean": 0.95 if seed else 0.89}

    sides = {"paddock": {"all": [50.0]}, "torch learns": {"all": [10.0]}}
    monkeypatch.setattr(learn.ppo, "reach_goal", reach)
    monkeypatch.setattr(learn.contest, "measure", lambda *_: {"contenders": sides, "title": "", "skipped": {}})
    torch, seconds = doorkey.bench_doorkey(Namespace(quick=False, repeats=1))["claims"]
    assert torch["ratios"] == [5.0] and torch["reached"]
    assert seconds["ratios"] == [0.0, 2.0, 2.0]


def test_the_walker_s_learner_is_held_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        def __init__(self, file: str) -> None:
            self.hidden = 0

        def ask(self, recipe: dict[str, Any], setting: list[str], **rest: Any) -> dict[str, Any]:
            assert recipe["epochs"] == WALKER["epochs"] and setting == learn.NATIVE
            shares = {"env": 0.25, "policy": 0.25, "learn": 0.5, "wait": 0.0}
            return {"steps": 1000, "seconds": 0.1, "split": shares}

        def close(self) -> None:
            pass

    monkeypatch.setattr(learn, "Player", Fake)
    monkeypatch.setattr(learn_limit, "measure_peak", lambda: 100e9)
    row = learn.bench_limit(Namespace(quick=True, repeats=1))
    narrow = row["networks"]["64"]
    assert narrow["learn_us"] == pytest.approx(50.0) and narrow["of_limit"] == pytest.approx(633_600 / 50e-6 / 100e9)
    assert "13% of the limit" in learn.render_limit(row)


@pytest.mark.parametrize(("ratio", "code"), [(1.0, 0), (0.99, 1)])
def test_exit_code_says_whether_every_target_was_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], ratio: float, code: int
) -> None:
    def fake(options: Namespace) -> dict[str, Any]:
        return {"claims": [learn.claim("ours / theirs", [ratio], 1.0)]}

    monkeypatch.setitem(ROWS, "walker", (fake, lambda row: "a table"))
    path = tmp_path / "bench.json"
    assert main(["--rows", "walker", "--json", str(path)]) == code
    report = json.loads(path.read_text())
    assert set(report) == {"machine", "instructions", "versions", "rows"}
    assert report["rows"]["walker"]["claims"][0]["reached"] is (code == 0)
    printed = capsys.readouterr().out
    assert "a table" in printed and f"instructions: {report['instructions']}" in printed


def test_rows_repeats_and_pufferlib_are_options() -> None:
    quick, full = (
        read_options(["--quick", "--rows", "wide", "--pufferlib", sys.executable, "--pufferlib-source", "d"]),
        read_options([]),
    )
    assert (quick.rows, quick.repeats, quick.pufferlib, quick.pufferlib_source) == (["wide"], 3, sys.executable, "d")
    assert read_options(["--quick"]).rows == ["walker", "classic", "cartpole"], "in under a minute"
    assert (full.rows, full.repeats, full.pufferlib) == (list(ROWS), 5, None)
    assert list(ROWS) == [
        "walker",
        "classic",
        "cartpole",
        "goal",
        "doorkey",
        "selfplay",
        "spread",
        "memory",
        "pictures",
        "limit",
        "wide",
        "grow",
    ]
    assert math.isclose(max(learn.HIDDEN), 512) and max(learn.MINIBATCHES) == 32_768
