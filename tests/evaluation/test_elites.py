"""Commands on a run of quality diversity: evaluate, export, plot, report, and the Python interface."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Main, call_main

import paddock
from paddock.evaluation.load import load

WORDS = [
    *("algo=map_elites", "env=cartpole", "env.max_episode_steps=40", "vec=serial", "compute=serial"),
    *("algo.batch_size=16", "algo.hidden_sizes=[4]", "algo.initial_std=1", "algo.eval_episodes=2"),
    "algo.descriptors=[{of: length, low: 0, high: 40, cells: 20}, {of: observation.0, low: -1, high: 1, cells: 10}]",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elites") / "run"
    assert call_main(*WORDS, "budget.iterations=3", f"run.dir={folder}") == 0
    return folder


def test_elites_are_chosen_by_cell_by_descriptors_and_by_return(run: Path, call_command: Main) -> None:
    archive = load(run)[0].elites
    cell = int(archive.occupied[0])
    near = ",".join(map(str, archive.descriptors[cell]))
    for word, expected in (("", archive.best), (f"cell={cell}", cell), (f"near={near}", cell)):
        code, out, _ = call_command("evaluate", str(run), "episodes=2", *filter(None, [word]))
        assert code == 0 and f"cell          {expected}, found in iteration" in out
        [x, y] = archive.descriptors[expected]
        assert f"length {x:.3g}, observation.0 {y:.3g}" in out
    read = paddock.load(run)
    np.testing.assert_array_equal(read.policy(cell=cell).policy.parameters, archive.solutions[cell])
    assert read.elites()["cell"].to_list() == archive.occupied.tolist()


def test_a_corrected_archive_does_not_depend_on_workers(run: Path, tmp_path: Path, call_command: Main) -> None:
    results = []
    for workers in ([], ["workers=2"]):
        file = tmp_path / "corrected.json"
        code, out, _ = call_command("evaluate", str(run), "archive=corrected", "episodes=3", *workers, f"json={file}")
        assert code == 0 and "corrected     QD score" in out
        results.append(json.loads(file.read_text()))
    assert results[0] == results[1]
    archive = load(run)[0].elites
    archive = load(run)[0].elites
    returns = [elite["return"] for elite in results[0]["stored"]["elites"]]
    assert returns == archive.objective[archive.occupied].tolist()
    # CartPole's return is its length, so each replayed elite is in the row of its mean return.
    for elite in results[0]["corrected"]["elites"]:
        assert elite["length"] == elite["return"] and min(int(elite["return"] // 2), 19) == elite["cell"] // 10


def test_archives_of_any_kind_are_drawn(run: Path, tmp_path: Path, call_command: Main) -> None:
    assert call_command("plot", str(run))[0] == 0 and (run / "archive.png").exists()
    assert call_command("plot", str(run), f"out={run}.csv")[0] == 0
    metrics = {line.split(",")[1] for line in Path(f"{run}.csv").read_text().splitlines()[1:]}
    assert metrics == {"qd/score", "qd/coverage", "qd/objective_max"}
    code, _, _ = call_command("report", str(run), f"out={tmp_path / 'report.html'}")
    assert code == 0 and "Archive of quality diversity" in (tmp_path / "report.html").read_text()
    for dimensions in (1, 2, 3):
        sources = ["length", "observation.0", "observation.2"][:dimensions]
        listed = ", ".join(f"{{of: {name}, low: -1, high: 40}}" for name in sources)
        words = [*WORDS[:-1], "algo.archive=cvt", "algo.cells=9", f"algo.descriptors=[{listed}]"]
        folder = tmp_path / str(dimensions)
        assert call_main(*words, "budget.iterations=1", f"run.dir={folder}") == 0
        assert call_command("plot", str(folder), f"out={folder}.png", "show=archive")[0] == 0
    read = paddock.load(tmp_path / "1")
    np.testing.assert_array_equal(read.policy(near=20.5).policy.parameters, read.policy(near=[20.5]).policy.parameters)


def test_a_wrong_choice_of_an_elite_is_an_error(run: Path, call_command: Main) -> None:
    empty = next(cell for cell in range(200) if cell not in load(run)[0].elites.occupied)
    for word, message in (
        (f"cell={empty}", "is empty"),
        ("near=1", "a finite value"),
        ("near=1,nan", "a finite value"),
        ("cell=999", "0 to 199"),
    ):
        code, _, err = call_command("evaluate", str(run), word)
        assert code == 2 and message in err and err.count("\n") == 1
