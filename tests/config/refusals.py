"""The checks that hold for all bad input, for several test files."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from conftest import call_main

Refused = Callable[..., str]


def traces(folder: Path) -> dict[str, int]:
    """Every file below a folder, with its size."""
    return {str(path): path.stat().st_size if path.is_file() else -1 for path in folder.rglob("*")}


@pytest.fixture(name="refused")
def refused_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Refused:
    """Call the command in tmp_path; the one line that it says, after the checks that hold for all bad input."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 2) -> str:
        before, children = traces(tmp_path), set(psutil.Process().children(recursive=True))
        capfd.readouterr()
        ended = call_main(*arguments)
        out, err = capfd.readouterr()
        assert ended == code, (out, err)
        assert err.startswith("paddock: ") and err.endswith("\n") and err.count("\n") == 1, err
        assert out == ""
        assert traces(tmp_path) == before
        assert set(psutil.Process().children(recursive=True)) <= children
        return err

    return call
