"""The benchmark of replay gives both sides the same work and judges what it measured; speed is for its own runs."""

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from sb3_stand_in import import_peer

from paddock.algos.pool.serial import SerialPool
from scripts.bench import replay as bench
from scripts.bench.contenders.contest import Player
from scripts.bench.peers import blank, paddock_replay
from scripts.bench.rows import whole

TINY = {"hidden": [8], "batch_size": 4, "rows": 200}
SMALL = {name: recipe | TINY for name, recipe in bench.RECIPES.items()}


@pytest.fixture(autouse=True)
def _blank_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blank", blank)  # as where the peers' folder is on the path


@pytest.mark.parametrize("name", bench.RECIPES)
def test_paddock_learns_by_the_recipe(name: str, tmp_path: Path) -> None:
    recipe = bench.RECIPES[name] | {"rows": 300}
    made = paddock_replay.build(recipe, 2, 1, tmp_path)
    inputs, head = made.learner.architecture.inputs, made.learner.architecture.head
    assert type(made).__name__.lower() == recipe["algo"]
    assert (inputs.width, head.components) == (recipe["observed"], 1 if recipe["discrete"] else recipe["actions"])
    assert (made.hidden, made.activation, made.batch_size) == (tuple(recipe["hidden"]), "relu", recipe["batch_size"])
    assert (made.threads, made.warmup, made.capacity) == (2, 300, 300)


def test_stable_baselines_is_given_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = import_peer("sb3_replay", monkeypatch)
    answer = peer.train(SMALL["td3"], 1, updates=130, seed=1)
    given, model = peer.TD3.call_args, peer.TD3.return_value
    assert given.args[1].observation_space.shape == (17,) and given.args[1].action_space.shape == (6,)
    assert given.kwargs["policy_kwargs"]["net_arch"] == [8] and given.kwargs["batch_size"] == 4
    assert model.learn.call_args.args == (200,) == (given.kwargs["learning_starts"],)
    # One call warms up, two count, as many updates each as one of ours.
    assert [call.args for call in model.train.call_args_list] == [(64, 4)] * 3 and answer["steps"] == 128
    assert peer.AT_ONCE == paddock_replay.AT_ONCE


@pytest.mark.parametrize(("updates", "counted"), [(5, 5), (130, 128)])
def test_updates_counted_are_those_after_the_first_call(
    updates: int, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []
    learn = paddock_replay.learn

    def noted(algorithm: Any, first: int, count: int) -> None:
        calls.append((first, count))
        learn(algorithm, first, count)

    monkeypatch.setattr(paddock_replay, "learn", noted)
    answer = paddock_replay.train(SMALL["dqn"], 1, updates, seed=1)
    assert answer["steps"] == counted == sum(count for first, count in calls if first) and answer["seconds"] > 0
    assert sum(count for _, count in calls) == counted + calls[0][1]


class Scripted:
    """A player who takes as long as it was told; cpprb is not installed."""

    SECONDS = {bench.OUR_FILE: 1.0, bench.PEER_FILE: 4.0}  # noqa: RUF012

    def __init__(self, file: str, python: str = "", environment: Any = None) -> None:
        self._file = file

    def ask(self, **request: Any) -> dict[str, Any]:
        if self._file == bench.CPPRB_FILE:
            raise bench.contest.Missing("ModuleNotFoundError: No module named 'cpprb'")
        if "draws" in request:
            return {"steps": request["draws"], "seconds": 1e-4 * request["draws"]}
        if "actors" in request:
            return {"steps": 900, "seconds": 1.0 if request["actors"] else 1.8, "idle": 0.05}
        if "observed" in request:
            return {"steps": 1, "seconds": 0.025 * self.SECONDS[self._file], "bytes": 2_500_000}
        if "experiment" in request or "every" in request:
            return {"steps": request["steps"], "seconds": self.SECONDS[self._file]}
        if "zeros" in request:
            return {"steps": 100, "seconds": 3.0 if request["whole"] else 1.0, "value": 0.5}
        if "lanes" in request:
            return {"steps": 20_000 * request["rows"], "seconds": request["rows"] / request["lanes"]}
        rates = {bench.OUR_FILE: 300.0, bench.PEER_FILE: 100.0 * request["setting"]}
        return {"steps": request["updates"], "seconds": request["updates"] / rates[self._file]}

    def close(self) -> None:
        pass


def test_rows_are_judged_and_who_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(whole, "Player", Scripted)
    monkeypatch.setattr(bench.contest, "Player", Scripted)
    ours = {
        "serial": {"rate": 2.0, "process_s": 2.0, "steps": 4000},
        "native": {"rate": 1.0, "process_s": 1, "steps": 4},
    }
    monkeypatch.setattr(whole, "reach_ours", lambda seed, vec: ours[vec])
    monkeypatch.setattr(whole, "reach_theirs", lambda seed, _: {"rate": 20.0, "process_s": 20.0, "steps": 6000})
    report, rows = tmp_path / "report.json", [name for name in bench.ROWS if name not in ("sac_small", "dqn_small")]
    assert bench.main(["--rows", *rows, "--repeats", "2", "--json", str(report)]) == 0
    told = capsys.readouterr().out
    assert "paddock / sb3: median 3.00 of 3.00 3.00; target 2.2 reached" in told
    assert "paddock, 2 threads / sb3: median 3.00 of 3.00 3.00; target 3 reached" in told
    assert "50 ms / paddock: median 2.00 of 2.00; target 1 reached" in told
    assert "5 MB / paddock: median 2.00 of 2.00; target 1 reached" in told
    assert "9 MB / paddock, prioritized: median 3.60 of 3.60; target 1 reached" in told
    assert "4 s / paddock: median 2.00 of 2.00 2.00; target 1 reached" in told
    assert "sb3 / paddock: median 10.00 of 10.00 10.00; target 8 reached" in told
    assert "sb3 / paddock vec=native: median 20.00 of 20.00 20.00; target 8 reached" in told
    assert "paddock / sb3: median 4.00 of 4.00 4.00; target 3 reached" in told
    assert "0.2 ms / paddock: median 2.00 of 2.00 2.00; target 1 reached" in told
    assert "LunarLander, two workers / LunarLander, inline: median 1.80 of 1.80 1.80; target 1.5 reached" in told
    assert "10% / share that the learner waits: median 2.00 of 2.00 2.00; target 1 reached" in told
    assert "without / with zeros: median 3.00 of 3.00 3.00; target 2.5 reached" in told
    assert "64 x 32 / 80,000 steps/s: median 16.00 of 16.00 16.00; target 1 reached" in told
    assert "cpprb                   left out: ModuleNotFoundError" in told
    written = json.loads(report.read_text())["rows"]
    assert list(written) == rows and written["td3"]["unit"] == "updates/s" and "cores" in written["td3"]["machine"]

    # Rows of another run come beside them, or in the place of their own.
    again = tmp_path / "again.json"
    told_once = {"machine": "another", "rows": {"apex": {"unit": "steps/s"}, "whole": {"title": "measured anew"}}}
    again.write_text(json.dumps(told_once))
    assert bench.main(["--rows", "whole", "zeros", "--repeats", "1", "--json", str(again)]) == 0
    merged = json.loads(again.read_text())["rows"]
    assert list(merged) == ["apex", "whole", "zeros"]
    assert merged["apex"] == {"unit": "steps/s", "machine": "another"}
    assert merged["whole"]["title"] == written["whole"]["title"] and "cores" in merged["whole"]["machine"]

    monkeypatch.setitem(bench.TIMES, "td3", 3.5)
    assert bench.main(["--rows", "td3", "--quick"]) == 1
    assert "target 3.5 MISSED" in capsys.readouterr().out


def test_quick_runs_are_shorter() -> None:
    asked: list[Any] = []

    def measure(title: str, who: list[Any], repeats: int) -> dict[str, Any]:
        asked.extend(who)
        return {"contenders": {}}

    options = bench.read_options(["--quick"])
    assert (options.repeats, options.peers) == (3, sys.executable)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.contest, "measure", measure)
        patch.setattr(bench.contest, "compare", lambda *given: [])
        bench.bench_updates("sac", options)
        bench.bench_threads(Namespace(quick=False, repeats=5, peers="python"))
    quick, usual = asked[:2], asked[2:]
    assert [one.updates * 16 for one in quick] == [512, 256] and [one.grid for one in usual] == [[2], [1], [2]]
    assert {one.recipe["rows"] for one in quick} == {1000} and {one.recipe["rows"] for one in usual} == {10_000}


def test_steps_of_a_whole_run_are_counted_behind_its_first_row() -> None:
    answer = paddock_replay.play(lanes=8, num_steps=32, rows=1, seed=0)
    assert answer["steps"] in range(20_000 - 256, 20_000 + 257) and answer["seconds"] > 0


def test_ape_x_plays_as_many_environments_with_workers_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    made, build = [], paddock_replay.build_algorithm

    def noted(config: Any, pool: Any, folder: Path) -> Any:
        made.append(build(config, SerialPool(), folder=folder))
        return made[-1]

    monkeypatch.setattr(paddock_replay, "build_algorithm", noted)
    monkeypatch.setattr(paddock_replay.LatePool, "open", lambda self, imports: None)
    answer = paddock_replay.ape(actors=2, env="cartpole", num_steps=32, updates_per_step=1 / 16, rows=1, seed=0)
    assert answer["steps"] in range(8000 - 512, 8000 + 513) and 0 <= answer["idle"] < 1
    paddock_replay.ape(actors=0, env="cartpole", num_steps=32, updates_per_step=1 / 16, rows=1, seed=0)
    assert [(one.num_rows, one.plays_on_pool) for one in made] == [(16, True), (16, False)]


def test_a_recipe_is_timed_behind_its_first_steps_and_never_evaluates() -> None:
    answer = paddock_replay.whole("dqn_cartpole", steps=2048, seed=0)
    assert answer["steps"] == 2048 and answer["seconds"] > 0


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_checkpoint_names_what_lies_beside_it(prioritized: bool) -> None:
    answer = paddock_replay.checkpoint(observed=17, rows=8000, prioritized=prioritized, saves=3)
    leaves = 4 * 8192 if prioritized else 0
    assert leaves < answer["bytes"] < leaves + 20_000 < 8000 * 17 * 4 and answer["seconds"] > 0


def test_rows_with_their_zeros_and_without_learn_the_same() -> None:
    made = [paddock_replay.gather(bench.ZEROS, whole=whole, updates=64, seed=1) for whole in (True, False)]
    assert made[0]["value"] == made[1]["value"] and [one["steps"] for one in made] == [64, 64]


def test_a_command_costs_what_it_took_of_the_processor_and_a_missing_peer_is_known() -> None:
    seconds, told = whole.spend([sys.executable, "-c", "print(sum(range(10**6)), input())"], "told")
    assert seconds > 0 and told == "499999500000 told\n"
    with pytest.raises(bench.contest.Missing, match="No module named 'nothing_of_this_name'"):
        whole.spend([sys.executable, "-c", "import nothing_of_this_name"], "")


def test_peers_answer_from_processes_of_their_own() -> None:
    player = Player(bench.OUR_FILE)
    try:
        answer = player.ask(recipe=SMALL["sac_small"], setting=1, updates=3, seed=0)
    finally:
        player.close()
    assert answer["steps"] == 3 and answer["seconds"] > 0
