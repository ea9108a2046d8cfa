"""The notebooks work on anybody's runs, in any folder, and are committed with what they show."""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from html import unescape
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nbformat
import numpy as np
import pytest
from conftest import ROOT, TINY, call_main, rows
from nbclient import NotebookClient
from scipy.stats import trim_mean

pytestmark = pytest.mark.xdist_group("notebooks")  # the runs are made once

NOTEBOOKS = ROOT / "notebooks"
NAMES = ("analysis", "sweep", "poet", "from_python", "replay")
MOST_BYTES = 600_000
PLACES = re.compile(r"/(work|tmp|home|root|Users|var)\b")

PPO = ["algo=ppo", "env=cartpole", "algo.num_steps=16", "algo.minibatch_size=32", "algo.eval_every=2"]
SEEDS = ["--multirun", "compute=serial", "budget.steps=2000"]
SWEEP = ["compute=serial", "budget.iterations=8", "--multirun", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=6"]
SPACE = [
    "algo.learning_rate=tag(log, interval(1e-3, 0.3))",
    "algo.sigma=interval(0.05, 0.2)",
    "algo.activation=tanh,relu",
]
POET = ["algo=poet", "env=poles", "compute=serial", "algo.hidden=[4]", "algo.population=4", "algo.eval_episodes=1"]
OFTEN = ["algo.transfer_every=1", "algo.reproduce_every=1", "budget.iterations=4"]
ALWAYS_ADMIT = ["algo.reproduce_score=0", "algo.criterion_low=0", "algo.criterion_high=1000"]

Notebook = Any
Table = list[dict[str, str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small runs of the commands that the notebooks name: `cartpole/es`, `cartpole/ppo`, `sweep` and `poet`."""
    folder = tmp_path_factory.mktemp("runs")
    commands = [
        [*TINY, *SEEDS, "hydra/launcher=local", "seed=1,2,3,4", f"hydra.sweep.dir={folder}/cartpole/es"],
        [*PPO, *SEEDS, "algo.eval_episodes=2", "seed=1,2", f"hydra.sweep.dir={folder}/cartpole/ppo"],
        [*TINY, *SPACE, *SWEEP, f"hydra.sweep.dir={folder}/sweep"],
        [*POET, *OFTEN, *ALWAYS_ADMIT, f"run.dir={folder}/poet"],
    ]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "paddock", *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        for command in commands
    ]
    for process in started:
        _, err = process.communicate(timeout=240)
        assert process.returncode == 0, err.decode()
    return folder


def test_two_algorithms_are_compared(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = execute("analysis", runs / "cartpole", tmp_path, monkeypatch)
    assert count_pictures(notebook) == 4
    lines = {
        algorithm: [evaluations(run) for run in sorted((runs / "cartpole" / algorithm).iterdir()) if run.is_dir()]
        for algorithm in ("es", "ppo")
    }
    end = min(line[0, -1] for of in lines.values() for line in of)
    final = {algorithm: [float(np.interp(end, *line)) for line in of] for algorithm, of in lines.items()}
    table = {row["algorithm"]: row for row in find_table(notebook, "IQM")}
    assert {algorithm: row["runs"] for algorithm, row in table.items()} == {"es": "4", "ppo": "2"}
    for algorithm, scores in final.items():
        assert float(table[algorithm]["IQM"]) == pytest.approx(trim_mean(scores, 0.25), abs=1e-5)
        assert float(table[algorithm]["lowest"]) == pytest.approx(min(scores), abs=1e-5)
        assert float(table[algorithm]["95 % from"]) <= float(table[algorithm]["IQM"]) <= float(table[algorithm]["to"])
    (improvement,) = find_table(notebook, "probability")
    pairs = [(x, y) for x in final[improvement["better"]] for y in final[improvement["than"]]]
    wins = np.mean([(x > y) + (x == y) / 2 for x, y in pairs])
    assert float(improvement["probability"]) == pytest.approx(wins, abs=1e-5)
    seconds = sum(row["system/learn_s"] for k in (0, 1) for row in rows(runs / f"cartpole/ppo/{k}", "system.jsonl"))
    assert float(find_table(notebook, "learning")[1]["learning"]) == pytest.approx(seconds, abs=1e-5)


def test_the_lines_of_pandas_read_the_same(runs: Path) -> None:
    pytest.importorskip("pandas")
    text = "\n".join(cell.source for cell in read("analysis").cells if cell.cell_type == "markdown")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    space: dict[str, Any] = {"RUNS": str(runs / "cartpole")}
    exec(code, space)
    assert len(space["plain"]) == sum(len(rows(run)) for run in (runs / "cartpole").glob("*/[0-9]"))
    assert space["plain"]["eval/return_mean"].notna().any()


def test_a_sweep_is_explained(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = execute("sweep", runs / "sweep", tmp_path, monkeypatch)
    assert count_pictures(notebook) == 4
    trials = find_table(notebook, "number")
    assert sorted(row["number"] for row in trials) == [str(number) for number in range(6)]
    for row in trials:
        evaluated = [m["eval/return_mean"] for m in rows(runs / "sweep" / row["number"]) if "eval/return_mean" in m]
        assert float(row["value"]) == pytest.approx(evaluated[-1], abs=1e-5)
    states = {row["state"]: int(row["trials"]) for row in find_table(notebook, "trials")}
    assert states == Counter(row["state"] for row in trials)
    best = max((row for row in trials if row["state"] == "complete"), key=lambda row: float(row["value"]))
    printed = [
        output for cell in notebook.cells for output in cell.get("outputs", ()) if output.get("name") == "stdout"
    ]
    said, command = (output.text for output in printed)
    assert said.startswith("6 trials, the best is ") and said.strip().endswith(f"with {float(best['value']):.1f}")
    words = shlex.split(command)
    assert any(word.startswith("algo.sigma=0.") for word in words) and words[-1] == "seed=1"
    assert call_main(*words[words.index("paddock") + 1 :], "dry_run=true") == 0


def test_the_history_of_poet_is_told(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "poet_laptop").mkdir()
    shutil.copy(NOTEBOOKS / "poet_laptop/events.jsonl", tmp_path / "poet_laptop")
    notebook = execute("poet", runs / "poet", tmp_path, monkeypatch)
    assert count_pictures(notebook) == 6
    events = rows(runs / "poet", "events.jsonl")
    counts = Counter(event["event"] for event in events)
    assert {row["event"]: int(row["times"]) for row in find_table(notebook, "event")} == counts
    births = [event for event in events if event["event"] == "birth"]
    niches = find_table(notebook, "born")
    assert [(row["niche"], row["born"]) for row in niches] == [(str(e["niche"]), str(e["iteration"])) for e in births]
    assert float(niches[1]["length"]) == pytest.approx(births[1]["encoding"]["length"], abs=1e-5)
    accepted = sum(event["event"] == "transfer" and event["accepted"] for event in events)
    assert sum(int(row["agents given"]) for row in find_table(notebook, "agents given")) == accepted
    admitted = [row["niche"] for row in find_table(notebook, "roughness")]
    assert (
        admitted[:3] == ["0", "6", "10"] and "88 environments admitted" in (NOTEBOOKS.parent / "README.md").read_text()
    )


def test_python_alone_does_what_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In rollouts so short that no episode ends in one of them, whose row then has no return.
    smaller = {"40_000": "512", '"algo.eval_every=4"': '"algo.eval_every=4", "algo.num_steps=8"'}
    notebook = execute("from_python", tmp_path / "made", tmp_path, monkeypatch, smaller)
    assert count_pictures(notebook) == 4
    run = tmp_path / "made/ppo"
    assert [row["step"] for row in rows(run)][-1] == 2 * 512 and (tmp_path / "made/episode.mp4").exists()
    assert any("train/return_mean" not in row for row in rows(run)[1:])
    told = json.loads((run / "provenance.json").read_text())
    assert told["command"].startswith("python -m paddock algo=ppo env=cartpole ") and "ipykernel" in told["process"]
    printed = "".join(
        output.text for cell in notebook.cells for output in cell.get("outputs", ()) if output.get("name") == "stdout"
    )
    assert "iteration 8 |" in printed and "going on in " in printed and "the same numbers: True" in printed


def test_learning_from_replay_is_shown_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = execute("replay", NOTEBOOKS / "replay", tmp_path, monkeypatch)
    assert count_pictures(notebook) == 8
    told = {(row["algorithm"], row["task"]): row for row in find_table(notebook, "of the") if row["of the"] == "end"}
    steps = {"pendulum": 20_000, "lunarlandercontinuous": 50_000, "halfcheetah": 50_000, "hopper": 50_000}
    pairs = [pair for pair in told if pair[1] in steps]
    walkers = {(algorithm, "bipedalwalker") for algorithm in ("sac", "td3")}
    assert {*(("sac", task) for task in steps), *walkers} <= set(told)
    assert len({algorithm for algorithm, _ in pairs}) == 3
    for algorithm, task in pairs:
        name, row = f"{algorithm}_{task}", told[algorithm, task]
        (zoo,), ours, peers = (
            last_evaluations(journals) for journals in (f"zoo_{name}", f"{name}[1-9]", f"sb3_{name}?")
        )
        assert {end["step"] for end in (zoo, *ours, *peers)} == {steps[task]}
        assert task != "pendulum" or (len(ours) == 5 and (len(peers) == 5 or algorithm == "ddpg"))
        assert float(row["RL-Zoo"]) == pytest.approx(zoo["eval/return_mean"], abs=1e-5)
        for of, ends in {"": ours, "SB3 ": peers}.items():
            if ends:
                expected = trim_mean([end["eval/return_mean"] for end in ends], 0.25)
                assert float(row[f"{of}IQM"]) == pytest.approx(expected, abs=1e-5)
                low, high = float(row[f"{of}95 % from"]), float(row[f"{of}to"])
                assert low <= expected <= high if len(ends) > 1 else np.isnan([low, high]).all()


def last_evaluations(name: str) -> list[dict[str, float]]:
    """The last row of each of these runs beside the notebook."""
    journals = sorted((NOTEBOOKS / "replay").glob(f"{name}.evaluations.jsonl"))
    return [json.loads(path.read_text().splitlines()[-1]) for path in journals]


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


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_notebook_tells_nothing_of_the_machine(name: str) -> None:
    notebook = read(name)
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in notebook.cells:
        assert "execution" not in cell.metadata  # times of day
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("image/png", None)
    assert not PLACES.search(json.dumps(notebook))


@pytest.mark.parametrize("name", NAMES)
def test_each_cell_comes_after_a_sentence_and_one_names_the_runs(name: str) -> None:
    cells = read(name).cells
    pairs = pairwise(cells)
    assert cells[0].cell_type == "markdown"
    assert all("markdown" in (before.cell_type, cell.cell_type) for before, cell in pairs)
    (parameters,) = [cell for cell in cells if "parameters" in cell.metadata.get("tags", ())]
    assert parameters is cells[1] and "RUNS = " in parameters.source


def evaluations(run: Path) -> Any:
    """[2, n]: environment steps of the policies that were evaluated, and their mean returns."""
    steps = {row["iteration"]: row["step"] for row in rows(run)}
    evaluated = [row for row in rows(run) if "eval/return_mean" in row]
    points = [(steps[row.get("eval/of_iteration", row["iteration"])], row["eval/return_mean"]) for row in evaluated]
    return np.array(points).T


def execute(
    name: str,
    folder: Path,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    smaller: Mapping[str, str] = MappingProxyType({}),
) -> Notebook:
    """The notebook as it is after it was run on a folder, somewhere else, with some of its words smaller."""
    monkeypatch.setenv("PADDOCK_NOTEBOOK_RUNS", str(folder))
    notebook = read(name)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(any(large in cell.source for cell in cells) for large in smaller)
    for cell in cells:
        for large, small in smaller.items():
            cell.source = cell.source.replace(large, small)
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
    """Of the cells that promise one; each must have it."""
    promised = [cell for cell in notebook.cells if cell.cell_type == "code" and draws(cell.source)]
    for cell in promised:
        assert any("image/png" in output.get("data", {}) for output in cell.outputs), cell.source
    return len(promised)


def find_table(notebook: Notebook, column: str) -> Table:
    """The rows of the first table with such a column."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            page = output.get("data", {}).get("text/html", "")
            names = re.findall(r"<th>(.*?)</th>", page)
            if column in names:
                body = page.partition("<tbody>")[2]
                lines = [re.findall(r"<td>(.*?)</td>", line) for line in re.findall(r"<tr>(.*?)</tr>", body, re.S)]
                return [dict(zip(names, (unescape(cell).strip('"') for cell in line), strict=True)) for line in lines]
    raise AssertionError(f"no table has a column {column}")
