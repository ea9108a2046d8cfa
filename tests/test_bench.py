"""The benchmarks run: each command line is read, and one of them measures."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(
    path
    for folder in ("", "runs")
    for path in (ROOT / "scripts" / "bench" / folder).glob("*.py")
    if path.stem != "harness"
)


def load(path: Path) -> object:
    """Return the module of a script."""
    return importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_benchmark_takes_quick_and_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load(path).main(["--help"])  # type: ignore[attr-defined]
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and "--quick" in shown and "--json" in shown


def test_a_benchmark_measures_and_writes_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--rows", "CartPole-v1", "--seconds", "0.05"]
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    module = load(ROOT / "scripts" / "bench" / "native.py")
    file = tmp_path / "figures.json"
    code = module.main([*arguments, "--quick", "--repeats", "1", "--json", str(file)])  # type: ignore[attr-defined]
    rows = json.loads(file.read_text())["rows"]
    assert code in (0, 1) and list(rows) == [arguments[1]]
    assert "median" in capsys.readouterr().out
