"""Run folders, multiruns and sweeps as data frames, by the laws they obey; expected numbers are worked by hand."""

import fcntl
import glob
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import polars as pl
import pytest
from conftest import TINY, call_main
from run_folders import write, write_sweep

from paddock.envs.errors import ConfigError
from paddock.runs.folder import FolderError
from paddock.runs.identity import short_name
from paddock.runs.results import find_sweeps, read_columns, read_metrics, read_runs
from paddock.sweep.study import open_storage, open_study, read_trials


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the real thing."""
    folder = tmp_path_factory.mktemp("real")
    for seed in (1, 2):
        overrides = [*TINY, "compute=serial", "budget.iterations=4", f"seed={seed}", f"run.dir={folder / str(seed)}"]
        assert call_main(*overrides) == 0
    return folder


# Runs


def test_real_runs_become_a_row_each(real: Path) -> None:
    frame = read_runs(real)
    assert frame["run"].to_list() == [str(real / "1"), str(real / "2")]
    assert frame["state"].to_list() == ["done", "done"]
    assert frame["seed"].to_list() == [1, 2]
    assert frame["algo.hidden_sizes"].to_list() == ["[8]", "[8]"]
    assert frame["algo.population"].to_list() == [16, 16]
    assert frame["started"].dtype == pl.Datetime("us", "UTC")
    for k, seed in enumerate("12"):
        assert frame["eval/return_mean"][k] == read_columns(real / seed)["eval/return_mean"][-1]


def test_rows_are_those_of_the_journals(real: Path) -> None:
    frame = read_metrics(real)
    assert frame.columns[:3] == ["run", "iteration", "step"]
    assert frame.height == 8
    for seed in "12":
        columns = read_columns(real / seed)
        rows = frame.filter(pl.col("run") == str(real / seed))
        assert set(columns) == set(rows.columns) - {"run"}
        for name, values in columns.items():
            np.testing.assert_array_equal(rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy(), values, name)


def test_three_lines_of_plain_polars_read_the_same(real: Path) -> None:
    paths = sorted(glob.glob(f"{real}/*/metrics.jsonl"))
    plain = pl.concat([pl.read_ndjson(path).with_columns(run=pl.lit(path)) for path in paths], how="diagonal_relaxed")
    assert plain["train/return_mean"].to_list() == read_metrics(real)["train/return_mean"].to_list()


def test_last_values_are_those_that_there_are(tmp_path: Path) -> None:
    write(tmp_path / "run", [{"a": 1, "b": 2.5}, {"a": None}, {"b": 7}])
    row = read_runs(tmp_path).row(0, named=True)
    assert (row["a"], row["b"], row["iteration"], row["step"], row["system/seconds"]) == (1.0, 7.0, 3, 30, 2.5)


def test_runs_lie_at_any_depth_and_count_once(tmp_path: Path) -> None:
    runs = [write(tmp_path / name) for name in ("a/10", "a/9", "b/c/run")]
    frame = read_runs(tmp_path, tmp_path / "a", runs[0])
    assert frame["run"].to_list() == [str(tmp_path / name) for name in ("a/9", "a/10", "b/c/run")]
    assert read_metrics(tmp_path).height == 0


def test_keys_of_several_types_and_of_taken_names(tmp_path: Path) -> None:
    first: dict[str, Any] = {
        "algo": {"rate": 1, "encoder": "auto", "norm": True, "big": 2**70},
        "env": {},
        "state": "mine",
        "seed": 0,
    }
    second: dict[str, Any] = {"algo": {"rate": 0.5, "encoder": 3}, "env": {}, "seed": None}
    write(tmp_path / "1", [{"state": 4.0, "seed": 5.0}], first)
    write(tmp_path / "2", [], second)
    frame = read_runs(tmp_path)
    assert frame["algo.rate"].to_list() == [1.0, 0.5]
    assert frame["algo.encoder"].to_list() == ["auto", "3"]
    assert frame["algo.norm"].to_list() == [True, None]
    assert frame["algo.big"].to_list() == [float(2**70), None]
    assert frame["state"].to_list() == ["done", "done"]
    assert frame["config.state"].to_list() == ["mine", None]
    assert (frame["seed"].to_list(), frame["metric.seed"].to_list()) == ([0, None], [5.0, None])
    assert frame["metric.state"].to_list() == [4.0, None]


def test_damaged_and_unfinished_runs_are_read_as_far_as_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    going = write(tmp_path / "going", [{"a": 1}, {"a": 2}], ended=False)
    with open(going / "metrics.jsonl", "a") as journal:
        journal.write('{"iteration": 3, "st')
    damaged = write(tmp_path / "damaged", [{"a": 1}, {"a": 2}, {"a": 3}])
    lines = (damaged / "metrics.jsonl").read_text().splitlines()
    (damaged / "metrics.jsonl").write_text("\n".join(["5", lines[0], "\0\0\0", "{}", "[]", lines[2]]) + "\n")
    (damaged / "system.jsonl").write_text("[1]\n")
    (damaged / "config.yaml").write_text("a: [")
    (write(tmp_path / "empty") / "system.jsonl").unlink()
    failed = write(tmp_path / "failed")
    (failed / "done.json").write_text(json.dumps({"reason": "failed: it burned"}))
    with open(going / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        states = dict(read_runs(tmp_path).select("run", "state").iter_rows())
    assert {Path(run).name: state for run, state in states.items()} == {
        "going": "running",
        "damaged": "done",
        "empty": "done",
        "failed": "failed",
    }
    rows = [(Path(run).name, i, a) for run, i, a in read_metrics(tmp_path).select("run", "iteration", "a").iter_rows()]
    assert rows == [("damaged", 1, 1.0), ("damaged", 3, 3.0), ("going", 1, 1.0), ("going", 2, 2.0)]
    assert read_columns(going)["a"].tolist() == [1, 2]
    caplog.clear()
    assert read_columns(damaged)["a"].tolist() == [1, 3]
    said = [
        f"{damaged}/metrics.jsonl: lines 1, 3, 4 and 1 more are damaged and skipped",
        f"{damaged}/system.jsonl: line 1 is damaged and skipped",
    ]
    assert caplog.messages == said
    caplog.clear()
    read_metrics(tmp_path)
    assert caplog.messages == said


def test_a_row_of_one_journal_alone_is_a_row(tmp_path: Path) -> None:
    run = write(tmp_path / "run", [{"a": 1}, {"a": 2}])
    (run / "system.jsonl").write_text('{"iteration": 1, "step": 10, "system/x": 3}\n{"iteration": 3, "step": 30}\n')
    frame = read_metrics(run)
    assert frame.select("iteration", "step", "a", "system/x").rows() == [
        (1, 10, 1.0, 3.0),
        (2, 20, 2.0, None),
        (3, 30, None, None),
    ]


def test_rows_are_in_order_where_a_journal_lacks_one(tmp_path: Path) -> None:
    run = write(tmp_path / "run", [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}])
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([lines[0], "\0\0\0", *lines[2:]]) + "\n")
    columns = read_columns(run)
    assert columns["iteration"].tolist() == read_metrics(run)["iteration"].to_list() == [1, 2, 3, 4]
    np.testing.assert_array_equal(columns["a"], [1, np.nan, 3, 4])


def test_an_evaluation_stands_in_the_row_of_the_policy_evaluated(tmp_path: Path) -> None:
    late = [{"a": 1}, {"a": 2}, {"a": 3, "eval/return_mean": 50, "eval/of_iteration": 1}, {"a": 4}]
    late += [{"a": 5, "eval/return_mean": 70, "eval/of_iteration": 3}, {"a": 6}]
    run = write(tmp_path / "late", late)
    # At the end of the budget, what has not been reported yet follows the last row.
    with open(run / "metrics.jsonl", "a") as journal:
        for row in ({"eval/return_mean": 75, "eval/of_iteration": 5}, {"eval/return_mean": 95, "eval/of_iteration": 6}):
            journal.write(json.dumps({"iteration": 6, "step": 60} | row) + "\n")
    write(tmp_path / "unknown", [{"eval/return_mean": 1, "eval/of_iteration": 0}])
    write(tmp_path / "prompt", [{"a": 1}, {"a": 2, "eval/return_mean": 60}])
    frame = read_metrics(tmp_path)
    assert frame.columns == ["run", "iteration", "step", "a", "eval/return_mean", "eval/of_iteration", "system/seconds"]
    evaluated = frame.drop_nulls("eval/return_mean").select(
        pl.col("run").str.split("/").list.last(), "step", "a", "eval/return_mean", "eval/of_iteration"
    )
    assert evaluated.rows() == [
        ("late", 10, 1, 50, 1),
        ("late", 30, 3, 70, 3),
        ("late", 50, 5, 75, 5),
        ("late", 60, 6, 95, 6),
        ("prompt", 20, 2, 60, None),
        ("unknown", 10, None, 1, 0),
    ]
    assert frame.height == 6 + 2 + 1
    for name in ("late", "prompt", "unknown"):
        rows = frame.filter(pl.col("run") == str(tmp_path / name))
        for metric, values in read_columns(tmp_path / name).items():
            np.testing.assert_array_equal(rows[metric].cast(pl.Float64).fill_null(np.nan).to_numpy(), values, metric)
    assert read_runs(tmp_path / "late")["eval/return_mean"].to_list() == [95]


def test_slurm_is_not_asked_of_runs_that_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write(tmp_path / "run")
    noted = {"job": "1", "name": "n", "submitted": "t", "command": "c", "code": None, "log": "l"}
    (run / "submission.json").write_text(json.dumps(noted))
    asked: list[list[str]] = []
    monkeypatch.setattr("paddock.runs.state.subprocess.run", lambda command, **_: asked.append(command))
    assert read_runs(tmp_path)["state"].to_list() == ["done"]
    assert asked == []


def test_wrong_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder given"):
        read_runs()
    with pytest.raises(ConfigError, match="nowhere is not a folder"):
        read_runs(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no run in"):
        read_metrics(tmp_path)


# Sweeps


def test_trials_are_a_row_each(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep")
    frame = read_trials(sweep)
    assert frame.columns == ["number", "state", "value", "algo.rate", "algo.kind", "steps", "seconds", "run"]
    assert frame.rows() == [
        (0, "complete", 0.0, 0.0, "a", 0, 2.5, str(sweep / "0")),
        (1, "complete", 100.0, 0.1, "a", 1000, 2.5, str(sweep / "1")),
        (2, "pruned", 100.0, 0.2, "a", 2000, 2.5, str(sweep / "2")),
    ]
    assert read_runs(sweep).height == 3
    assert find_sweeps(tmp_path) == find_sweeps(sweep) == [sweep]


def test_a_study_is_read_while_a_trial_is_written(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep")
    with open(sweep / "study.journal", "a") as journal:
        journal.write('{"op_code": 4, "wor')
    assert len(open_study(sweep).trials) == 3


def test_several_objectives_bear_the_names_of_their_metrics(tmp_path: Path) -> None:
    objectives = {"eval/return_mean": "maximize", "step": "minimize"}
    sweep: dict[str, Any] = {"study": "s", "objectives": objectives}
    sweep |= {"pruner": "none", "pruner_options": {}, "fixed": [], "command": "python"}
    sweep |= {"sources": [], "num_envs": None, "parameters": [], "n_trials": 1, "finals": 0, "held_out": 0}
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    study = optuna.create_study(study_name="s", storage=open_storage(tmp_path), directions=["maximize", "minimize"])
    study.tell(study.ask(), [3.0, 4.0])
    study.ask()
    frame = read_trials(tmp_path).select("state", "eval/return_mean", "step", "steps", "run")
    assert frame.rows() == [("complete", 3.0, 4.0, None, None), ("running", None, None, None, None)]


def test_damaged_sweeps_are_named_and_unchanged(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a sweep folder"):
        open_study(tmp_path)
    (tmp_path / "sweep.json").write_text('{"study": "s"}')
    with pytest.raises(ConfigError, match=r"sweep.json is damaged \(TypeError: "):
        read_trials(tmp_path)
    sweep = write_sweep(tmp_path / "sweep", trials=1)
    os.remove(sweep / "study.journal")
    with pytest.raises(FolderError, match=r"study\.journal does not exist yet; wait"):
        open_study(sweep)
    assert not (sweep / "study.journal").exists()
    (sweep / "study.journal").write_text("no\nno\n")
    with pytest.raises(FolderError, match="cannot read"):
        open_study(sweep)


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("paddock.envs.bipedal:paddock/BipedalWalker-v3", "BipedalWalker-v3"),
        ("ale_py:ALE/Pong-v5", "Pong-v5"),
        ("pettingzoo.classic.connect_four_v3:env", "connect_four_v3"),
        ("paddock.envs.tasks.snake:Snake", "Snake"),
    ],
)
def test_environments_have_short_names(id: str, name: str) -> None:
    assert short_name(id) == name
