"""Repeating a run from its folder alone: the same bytes, or the first difference in one line."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, TINY, Main, rows

from paddock.rerun import compare, explain, rerun
from paddock.runs.folder import FolderError
from paddock.runs.journal import read_rows


def paddock(*arguments: str, where: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rerun") / "run"
    done = paddock("paddock", *TINY, "compute=serial", "budget.iterations=4", f"run.dir={folder}")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(run, tmp_path / "run")


def test_a_run_repeats_itself_elsewhere_and_from_any_folder(copy: Path) -> None:
    done = paddock("paddock.rerun", str(copy), "compute=local", where=copy.parent)
    assert done.returncode == 0, done.stderr
    out = copy.with_name("run-rerun")
    assert (out / "metrics.jsonl").read_bytes() == (copy / "metrics.jsonl").read_bytes()
    assert f"identical: the metrics of 4 iterations in {copy} and {out} are the same bytes" in done.stdout


def test_a_run_that_is_the_folder_one_is_in_is_repeated_beside_it(
    copy: Path, call_command: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    outs: list[Path] = []
    monkeypatch.setattr("paddock.rerun.rerun", lambda run, out, *_: outs.append(out))
    for here, arguments in ((copy, ["."]), (copy, [".", "out=../mine"]), (copy / "checkpoints", [".."])):
        monkeypatch.chdir(here)
        assert call_command("rerun", *arguments)[0] == 0
    beside = copy.with_name("run-rerun")
    assert outs == [beside, Path("../mine"), beside]
    monkeypatch.chdir(copy.parent)
    assert call_command("rerun", "run")[:2] == (
        0,
        "identical: the metrics of 4 iterations in run and run-rerun are the same bytes\n",
    )


def test_fewer_iterations_are_compared_as_far_as_they_go(copy: Path, tmp_path: Path) -> None:
    done = paddock("paddock.rerun", str(copy), "iterations=2", f"out={tmp_path / 'short'}")
    assert done.returncode == 0, done.stderr
    assert len(rows(tmp_path / "short")) == 2


def test_a_second_time_it_compares_what_was_repeated_and_asks_for_no_budget(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "again"
    assert rerun(copy, out, 2) is None and rerun(copy, out, 2) is None
    assert json.loads((out / "provenance.json").read_text())["repeats"] == str(copy)
    said = f"{out} has reached budget.iterations=2 before; its rows are compared as they are, and once it is deleted "
    assert said in capsys.readouterr().out


def test_other_numbers_are_named_with_their_iteration_and_exit_code_1(copy: Path) -> None:
    lines = rows(copy)
    lines[2]["es/gradient_norm"] += 1e-9
    (copy / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = paddock("paddock.rerun", str(copy))
    assert done.returncode == 1
    assert "different from iteration 3 on, in metrics.jsonl: es/gradient_norm was " in done.stdout


def test_a_run_that_is_still_going_on_is_compared_to_its_last_whole_line(copy: Path) -> None:
    with open(copy / "metrics.jsonl", "a") as journal:
        journal.write('{"iteration": 5, "st')
    assert paddock("paddock.rerun", str(copy)).returncode == 0


def test_evaluations_that_the_end_of_a_run_added_are_no_difference(copy: Path, tmp_path: Path) -> None:
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    last = {key: value for key, value in rows(copy)[-1].items() if key in ("iteration", "step")}
    (copy / "metrics.jsonl").write_bytes(b"".join([*lines, f"{json.dumps(last)}\n".encode()]))
    out = tmp_path / "again"
    assert paddock("paddock.rerun", str(copy), "iterations=3", f"out={out}").returncode == 0
    assert [row["iteration"] for row in rows(out)] == [1, 2, 3, 3]
    assert paddock("paddock.rerun", str(copy), "iterations=4", f"out={tmp_path / 'whole'}").returncode == 0
    refused = paddock("paddock.rerun", str(copy), "iterations=5")
    assert refused.returncode == 2 and "must be from 1 to 4" in refused.stderr


def test_missing_and_further_lines_are_differences(copy: Path, tmp_path: Path) -> None:
    other = shutil.copytree(copy, tmp_path / "other")
    assert compare(copy, other, 4) is None
    (other / "events.jsonl").write_text('{"iteration": 1, "step": 2, "event": "birth"}\n')
    found = compare(copy, other, 4)
    assert found is not None
    assert (found.journal, found.iteration, found.what) == ("events.jsonl", None, "0 lines were 1 the second time")


def test_a_damaged_line_is_named_and_no_difference(copy: Path, tmp_path: Path) -> None:
    other = shutil.copytree(copy, tmp_path / "other")
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_bytes(b"".join([lines[0], b"\0" * 9 + b"\n", *lines[2:]]))
    with pytest.raises(FolderError, match=r"metrics.jsonl: line 2 is damaged; mend it"):
        compare(copy, other, 4)
    with pytest.raises(FolderError, match=r"metrics.jsonl: line 2 is damaged; mend it"):
        list(read_rows(copy / "metrics.jsonl", strict=True))
    assert [row["iteration"] for row in read_rows(copy / "metrics.jsonl")] == [1, 3, 4]


def test_what_was_not_the_same_around_the_runs_is_listed(copy: Path, tmp_path: Path) -> None:
    other = shutil.copytree(copy, tmp_path / "other")
    provenance = json.loads((other / "provenance.json").read_text())
    provenance["packages"] |= {"numpy": "0.1"}
    provenance["cpu"] = "an abacus"
    (other / "provenance.json").write_text(json.dumps(provenance))
    found = explain(copy, other)
    assert any(line.startswith("cpu: ") and line.endswith("now an abacus") for line in found)
    assert any(line.startswith("packages: numpy ") and line.endswith("now 0.1") for line in found)


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_a_difference_is_told_where_nothing_is_known_of_what_was_around_it(
    copy: Path, tmp_path: Path, text: str | None
) -> None:
    (copy / "provenance.json").unlink()
    if text is not None:
        (copy / "provenance.json").write_text(text)
    assert explain(copy, copy)[0].startswith(f"{copy / 'provenance.json'} is missing or damaged")


def test_packages_that_another_version_did_not_note_are_not_listed(copy: Path, tmp_path: Path) -> None:
    other = shutil.copytree(copy, tmp_path / "other")
    (copy / "provenance.json").write_text('{"cpu": "an abacus"}')
    found = explain(copy, other)
    assert found[-1].startswith(("cpu: an abacus, now ", "code: ")) and not any("packages" in line for line in found)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "rerun repeats one RUN, and 0 are given"),
        (["{run}", "iterations=9"], "iterations=9 must be from 1 to 4, as far as "),
        (["{run}", "iterations=many"], "iterations=many cannot be read; allowed: iterations=a whole number >= 1"),
        (["{run}", "out={run}"], "is the run itself; choose another folder"),
        (["{run}", "compute=abacus"], "abacus"),
        (["nowhere"], "nowhere is not a run folder"),
        (["{run}", "outt=x"], "outt is not a key of rerun; did you mean 'out'?"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], line: str, run: Path) -> None:
    done = paddock("paddock.rerun", *(argument.format(run=run) for argument in arguments))
    assert done.returncode == 2, done.stdout
    assert line in done.stderr
    assert done.stderr.startswith("paddock: ") and done.stderr.count("\n") == 1
