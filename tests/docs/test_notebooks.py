"""The notebooks work on anybody's runs, in any folder, and are committed with what they show."""

import ast
import json
import re
from collections import Counter
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import ROOT, TINY, call_main, rows
from nbclient import NotebookClient

pytestmark = pytest.mark.xdist_group("notebooks")  # the runs are made once

NOTEBOOKS = ROOT / "notebooks"
NAMES = ("analysis", "sweep", "poet", "from_python", "replay")
MOST_BYTES = 600_000
PLACES = re.compile(r"/(work|tmp|home|root|Users|var)\b")

PPO = ["algo=ppo", "env=cartpole", "algo.num_steps=16", "algo.minibatch_size=32", "algo.eval_every_iterations=2"]
SEEDS = ["--multirun", "compute=serial", "budget.steps=1000"]
SWEEP = [
    "compute=serial",
    "budget.iterations=4",
    "--multirun",
    "hydra/sweeper=optuna",
    "hydra.sweeper.n_trials=6",
    "hydra.sweeper.finals=0",
    "hydra.sweeper.held_out=0",
]
SPACE = [
    "algo.strategy.learning_rate=tag(log, interval(1e-3, 0.3))",
    "algo.strategy.sigma=interval(0.05, 0.2)",
    "algo.activation=tanh,relu",
]
POET = [
    "algo=poet",
    "env=poles",
    "compute=serial",
    "algo.hidden_sizes=[4]",
    "algo.population=4",
    "algo.eval_episodes=1",
]
OFTEN = ["algo.transfer_every=1", "algo.reproduce_every=1", "budget.iterations=4"]
ALWAYS_ADMIT = ["algo.reproduce_score=0", "algo.criterion_low=0", "algo.criterion_high=1000"]

Notebook = Any
Table = list[dict[str, str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small runs of the commands that the notebooks name: `cartpole/es`, `cartpole/ppo`, `sweep` and `poet`."""
    folder = tmp_path_factory.mktemp("runs")
    for command in (
        [*TINY, *SEEDS, "seed=1,2", f"hydra.sweep.dir={folder}/cartpole/es"],
        [*PPO, *SEEDS, "algo.eval_episodes=2", "seed=1,2", f"hydra.sweep.dir={folder}/cartpole/ppo"],
        [*TINY, *SPACE, *SWEEP, f"hydra.sweep.dir={folder}/sweep"],
        [*POET, *OFTEN, *ALWAYS_ADMIT, f"run.dir={folder}/poet"],
    ):
        assert call_main(*command) == 0
    return folder


def test_two_algorithms_are_compared(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = execute("analysis", runs / "cartpole", tmp_path, monkeypatch)
    assert count_pictures(notebook) == 4
    table = {row["algorithm"]: row for row in find_table(notebook, "IQM")}
    assert {algorithm: row["runs"] for algorithm, row in table.items()} == {"es": "2", "ppo": "2"}
    for row in table.values():
        assert float(row["95 % from"]) <= float(row["IQM"]) <= float(row["to"])
    seconds = sum(row["system/learn_s"] for k in (0, 1) for row in rows(runs / f"cartpole/ppo/{k}", "system.jsonl"))
    assert float(find_table(notebook, "learning")[1]["learning"]) == pytest.approx(seconds, abs=1e-5)


def test_a_sweep_is_explained(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = execute("sweep", runs / "sweep", tmp_path, monkeypatch)
    assert count_pictures(notebook) == 4
    trials = find_table(notebook, "number")
    assert sorted(row["number"] for row in trials) == [str(number) for number in range(6)]
    for row in trials:
        evaluated = [m["eval/return_mean"] for m in rows(runs / "sweep" / row["number"]) if "eval/return_mean" in m]
        assert float(row["value"]) == pytest.approx(evaluated[-1], abs=1e-5)


def test_the_history_of_poet_is_shown(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "poet_laptop").symlink_to(NOTEBOOKS / "poet_laptop")
    notebook = execute("poet", runs / "poet", tmp_path, monkeypatch)
    assert count_pictures(notebook) == 5
    events = rows(runs / "poet", "events.jsonl")
    counts = Counter(event["event"] for event in events)
    assert {row["event"]: int(row["times"]) for row in find_table(notebook, "event")} == counts
    births = [event for event in events if event["event"] == "birth"]
    niches = find_table(notebook, "born")
    assert [(row["niche"], row["born"]) for row in niches] == [(str(e["niche"]), str(e["iteration"])) for e in births]


def test_python_alone_does_what_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In rollouts so short that no episode ends in one of them, whose row then has no return.
    smaller = {
        "40_000": "512",
        '"algo.eval_every_iterations=4"': '"algo.eval_every_iterations=4", "algo.num_steps=8", "algo.minibatch_size=64"',
    }
    notebook = execute("from_python", tmp_path / "made", tmp_path, monkeypatch, smaller)
    assert count_pictures(notebook) == 4
    run = tmp_path / "made/ppo"
    assert [row["step"] for row in rows(run)][-1] == 2 * 512 and (tmp_path / "made/episode.mp4").exists()
    assert any("train/return_mean" not in row for row in rows(run)[1:])
    printed = "".join(
        output.text for cell in notebook.cells for output in cell.get("outputs", ()) if output.get("name") == "stdout"
    )
    assert "resuming in " in printed and "the same numbers: True" in printed


def test_learning_from_replay_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = execute("replay", NOTEBOOKS / "replay", tmp_path, monkeypatch)
    assert count_pictures(notebook) == 8
    ends = [row for row in find_table(notebook, "of the") if row["of the"] == "end"]
    assert {(row["algorithm"], row["task"]) for row in ends} >= {("sac", "pendulum"), ("td3", "bipedalwalker")}


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_notebook_shows_what_it_is_for(name: str) -> None:
    notebook = read(name)
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < MOST_BYTES
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]  # run once, from top to bottom
    assert all(cell.outputs for cell in cells if shows_something(cell.source))
    assert count_pictures(notebook) >= 4
    outputs = [output for cell in cells for output in cell.outputs]
    assert all(output.output_type != "error" and output.get("name") != "stderr" for output in outputs)
    pairs = pairwise(notebook.cells)
    assert notebook.cells[0].cell_type == "markdown"
    assert all("markdown" in (before.cell_type, cell.cell_type) for before, cell in pairs)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    assert parameters is notebook.cells[1] and "RUNS = " in parameters.source
    # Nothing of the machine is committed.
    assert notebook.metadata.kernelspec.name == "python3"
    assert all("execution" not in cell.metadata for cell in notebook.cells)  # times of day
    for output in outputs:
        output.get("data", {}).pop("image/png", None)
    assert not PLACES.search(json.dumps(notebook))


def execute(
    name: str, folder: Path, here: Path, monkeypatch: pytest.MonkeyPatch, smaller: dict[str, str] | None = None
) -> Notebook:
    """Return the notebook as it is after it was run on a folder, somewhere else, with some of its words replaced."""
    monkeypatch.setenv("PADDOCK_NOTEBOOK_RUNS", str(folder))
    notebook = read(name)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for large, small in (smaller or {}).items():
        assert any(large in cell.source for cell in cells)
        for cell in cells:
            cell.source = cell.source.replace(large, small)
    for cell in cells:
        cell.outputs = []  # what is committed must not pass for a result
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(here)}}).execute()
    assert all(cell.outputs for cell in notebook.cells if cell.cell_type == "code" and shows_something(cell.source))
    return notebook


def read(name: str) -> Notebook:
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def shows_something(source: str) -> bool:
    """Whether a cell ends with a value, prints one, or draws."""
    last = ast.parse(re.sub(r"^%.*", "", source, flags=re.M)).body[-1]
    return draws(source) or "print(" in source or (isinstance(last, ast.Expr) and not source.rstrip().endswith(";"))


def draws(source: str) -> bool:
    return bool(re.search(r"plt\.subplots\(|^draw_\w+\(", source, re.M))


def count_pictures(notebook: Notebook) -> int:
    """Count the cells that promise a picture; each must have it."""
    promised = [cell for cell in notebook.cells if cell.cell_type == "code" and draws(cell.source)]
    for cell in promised:
        assert any("image/png" in output.get("data", {}) for output in cell.outputs), cell.source
    return len(promised)


def find_table(notebook: Notebook, column: str) -> Table:
    """Return the rows of the first table with such a column."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            page = output.get("data", {}).get("text/html", "")
            names = re.findall(r"<th>(.*?)</th>", page)
            if column in names:
                body = page.partition("<tbody>")[2]
                lines = [re.findall(r"<td>(.*?)</td>", line) for line in re.findall(r"<tr>(.*?)</tr>", body, re.S)]
                return [dict(zip(names, (unescape(cell).strip('"') for cell in line), strict=True)) for line in lines]
    raise AssertionError(f"no table has a column {column}")
