"""Repeating a run from its folder alone: the same bytes, or the first difference in one line."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import TINY, Main, call_main, rows

from paddock.rerun import compare, explain, rerun
from paddock.runs.folder import FolderError
from paddock.runs.journal import read_rows


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rerun") / "run"
    assert call_main(*TINY, "compute=serial", "budget.iterations=4", f"run.dir={folder}") == 0
    return folder


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(run, tmp_path / "run")


def test_run_repeats_itself_elsewhere_and_from_any_folder(
    copy: Path, call_command: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy.parent)
    out = copy.with_name("run-rerun")
    said = "identical: 4 iterations of run and run-rerun have the same metrics\n"
    code, shown, err = call_command("rerun", "run", "compute=local")
    assert (code, shown.splitlines(keepends=True)[-1]) == (0, said), err
    assert (out / "metrics.jsonl").read_bytes() == (copy / "metrics.jsonl").read_bytes()
    assert json.loads((out / "provenance.json").read_text())["repeats"] == str(copy)
    code, shown, _ = call_command("rerun", str(copy))
    assert code == 0 and f"{out.name} already reached budget.iterations=4; comparing its rows" in shown


def test_other_numbers_are_named_with_their_iteration(copy: Path, call_command: Main, tmp_path: Path) -> None:
    lines = rows(copy)
    lines[2]["es/gradient_norm"] += 1e-9
    (copy / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    code, shown, _ = call_command("rerun", copy, "iterations=3", f"out={tmp_path / 'again'}")
    assert code == 1 and [row["iteration"] for row in rows(tmp_path / "again")] == [1, 2, 3, 3]
    assert "different from iteration 3 on, in metrics.jsonl: es/gradient_norm was " in shown


def test_unfinished_rows_and_final_evaluations_are_no_difference(copy: Path, tmp_path: Path) -> None:
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    last = {key: value for key, value in rows(copy)[-1].items() if key in ("iteration", "step")}
    (copy / "metrics.jsonl").write_bytes(b"".join([*lines, f"{json.dumps(last)}\n".encode(), b'{"iteration": 5, "st']))
    assert rerun(copy, tmp_path / "again", 3) is None
    assert [row["iteration"] for row in rows(tmp_path / "again")] == [1, 2, 3, 3]


def test_missing_and_further_lines_are_differences(copy: Path, tmp_path: Path) -> None:
    other = shutil.copytree(copy, tmp_path / "other")
    assert compare(copy, other, 4) is None
    (other / "events.jsonl").write_text('{"iteration": 1, "step": 2, "event": "birth"}\n')
    found = compare(copy, other, 4)
    assert found is not None
    assert (found.journal, found.iteration, found.what) == ("events.jsonl", None, "0 lines, 1 in the repetition")


def test_a_damaged_line_is_named_and_no_difference(copy: Path, tmp_path: Path) -> None:
    other = shutil.copytree(copy, tmp_path / "other")
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_bytes(b"".join([lines[0], b"\0" * 9 + b"\n", *lines[2:]]))
    with pytest.raises(FolderError, match=r"metrics.jsonl: line 2 is damaged; restore"):
        compare(copy, other, 4)
    with pytest.raises(FolderError, match=r"metrics.jsonl: line 2 is damaged; restore"):
        list(read_rows(copy / "metrics.jsonl", strict=True))
    assert [row["iteration"] for row in read_rows(copy / "metrics.jsonl")] == [1, 3, 4]


def test_what_was_not_the_same_around_the_runs_is_listed(copy: Path, tmp_path: Path) -> None:
    other = shutil.copytree(copy, tmp_path / "other")
    provenance = json.loads((other / "provenance.json").read_text())
    provenance["packages"] |= {"numpy": "0.1"}
    provenance["cpu"] = "an abacus"
    (other / "provenance.json").write_text(json.dumps(provenance))
    found = explain(copy, other)
    assert any(line.startswith("cpu was ") and line.endswith("is an abacus") for line in found)
    assert any(line.startswith("packages: numpy was ") and line.endswith("is 0.1") for line in found)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "rerun takes one RUN, got 0"),
        (["{run}", "iterations=9"], "iterations=9 must be between 1 and 4, the last of "),
        (["{run}", "out={run}"], "is the run itself; choose another folder"),
        (["nowhere"], "no such run: nowhere"),
        (["{run}", "outt=x"], "outt is not a key of rerun; did you mean 'out'?"),
    ],
)
def test_mistake_is_one_line(arguments: list[str], line: str, run: Path, call_command: Main) -> None:
    code, _, err = call_command("rerun", *(argument.format(run=run) for argument in arguments))
    assert code == 2 and line in err
    assert err.startswith("paddock: ") and err.count("\n") == 1
