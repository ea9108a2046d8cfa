"""Published results: rows are played, stored and continued; the gate decides; the page is that of the stored files."""

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.reports.comparison import REFERENCES, read_references, read_results, store_results

run: Any = importlib.import_module("scripts.results.run")
page: Any = importlib.import_module("scripts.results.page")

TINY = "experiment=es_cartpole algo.population=4 algo.eval_every_iterations=1 algo.eval_episodes=2 budget.iterations=2"
SEEDS = 3  # the least that can be compared


@pytest.fixture
def row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The only row of a matrix, which takes seconds."""
    row = run.Row("tiny", "classic", f"{TINY} budget.steps=1000", SEEDS, gate=True)
    monkeypatch.setattr(run, "STORED", tmp_path / "stored")
    monkeypatch.setattr(run, "EPISODES", 2)
    monkeypatch.setattr(run, "GATE_SEEDS", SEEDS)
    monkeypatch.setattr(run, "read_matrix", lambda: {"tiny": row})
    return row


def test_page_is_that_of_the_stored_results() -> None:
    assert page.main(["check=true"]) == 0


def test_stored_rows_have_all_seeds_and_the_configuration_of_the_matrix() -> None:
    for row in run.read_matrix().values():
        if row.file.exists():
            run.check_configuration(row)
            [result] = read_results(row.file)
            stored = json.loads(row.file.read_text())["row"]
            assert [seed.seed for seed in result.seeds] == [*range(1, row.seeds + 1)]
            assert [len(run["returns"]) for run in stored["runs"]] == [100] * row.seeds
            assert {read_references(name)[result.task].steps for name in row.published} <= {stored["steps"]}


def test_every_published_score_has_a_link_to_its_source() -> None:
    tables = yaml.safe_load(REFERENCES.read_text())
    assert all(table["url"].startswith("https://") and table["source"] for table in tables.values())
    assert {name for row in run.read_matrix().values() for name in row.published} <= tables.keys()


def test_rows_continue_and_the_gate_finds_worse_scores(
    row: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    assert run.main([f"runs={runs}", "hours=0"]) == 1 and not row.file.exists()
    assert run.main([f"runs={runs}"]) == 0
    first = row.file.read_bytes()
    [result] = read_results(row.file)
    assert [len(seed.values) for seed in result.seeds] == [2] * SEEDS
    row.file.unlink()
    monkeypatch.setattr(run.subprocess, "run", None)  # nothing is left to play
    assert run.main([f"runs={runs}"]) == 0 and row.file.read_bytes() == first

    monkeypatch.setattr(
        run, "play_seed", lambda row, seed, folder, _: bool(shutil.copytree(runs / "tiny" / str(seed), folder))
    )
    assert run.main(["gate=true"]) == 0 and "same runs" in capsys.readouterr().out
    better = json.loads(store_results([result]))
    for seed in better["results"][0]["seeds"]:
        seed |= {"values": [value + 1000 for value in seed["values"]], "digest": ""}
    row.file.write_text(json.dumps(better))
    assert run.main(["gate=true"]) == 1


def test_row_of_another_configuration_is_refused(row: Any, tmp_path: Path) -> None:
    row.file.parent.mkdir()
    settings = {"algo.population": 8}
    stored = {"steps": 1000, "episodes": row.episodes}
    row.file.write_text(json.dumps({"results": [{"settings": settings}], "row": stored}))
    assert run.main([f"runs={tmp_path / 'runs'}"]) == 2
