"""The game that docs/native_game.md adds, built as it says and played beside its Python."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compiled import COMPILER, NATIVE, extension
from conftest import ROOT, env_spec
from gymnasium.vector import AutoresetMode
from native_laws import maker, native  # noqa: F401
from test_native_worlds import play_both

import paddock.envs.tasks
from paddock.envs.native import library
from paddock.envs.native.boards import worlds
from scripts import native_fingerprint

PAGE = (ROOT / "docs" / "native_game.md").read_text()
BLOCKS = {
    (kind, title): body
    for kind, title, body in re.findall(r"^```(\w+) title=\"([^\"\n]+)\"\n(.*?)^```", PAGE, re.M | re.S)
}


def patched(name: str) -> str:
    """Return a file of ours with the lines that the page adds."""
    text = (ROOT / name).read_text()
    for hunk in BLOCKS["diff", name].split("...\n"):
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture
def nim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the game's Python, and a library with it, as long as the test takes."""
    if COMPILER is None:
        pytest.skip("there is no C compiler (cc, gcc)")
    source = shutil.copytree(NATIVE / "src", tmp_path / "src")
    (source / "boards" / "nim.h").write_text(BLOCKS["c", "envs/native/src/boards/nim.h"])
    tasks = "envs/native/src/runtime/tasks.h"
    (source / "runtime" / "tasks.h").write_text(patched(tasks))
    stubs = tmp_path / "stubs.c"
    stubs.write_text('#include "simd/sets.h"\nconst struct set *const avx2_set, *const avx512_set;\n')
    files = [source.parent / Path(name).relative_to("envs/native") for name in extension()["sources"]]
    files = [stubs, *(file for file in files if not file.stem.startswith("avx"))]
    command = [COMPILER, "-O0", "-std=gnu11", "-ffp-contract=off", "-Wno-psabi", "-fPIC", "-shared", "-pthread"]
    target = tmp_path / f"_lanes{library.EXTENSION_SUFFIXES[0]}"
    subprocess.run([*command, f"-I{source}", *map(str, files), "-o", str(target)], check=True)
    (tmp_path / "nim.py").write_text(BLOCKS["python", "envs/tasks/nim.py"])
    monkeypatch.setattr(paddock.envs.tasks, "__path__", [*paddock.envs.tasks.__path__, str(tmp_path)])
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    monkeypatch.setenv(library.CHOICE, "baseline")
    line = next(line[1:] for line in BLOCKS["diff", "envs/native/boards/worlds.py"].splitlines() if line[0] == "+")
    assert line in patched("envs/native/boards/worlds.py")
    monkeypatch.setattr(worlds, "WORLDS", worlds.WORLDS)
    entry = eval("{" + line + "}", vars(worlds))
    monkeypatch.setitem(worlds.WORLDS, *next(iter(entry.items())))
    library.load.cache_clear()
    yield
    library.load.cache_clear()
    sys.modules.pop("paddock.envs.tasks.nim", None)


def test_the_game_of_the_page_has_the_same_numbers_in_python_and_in_c(
    make: Any, nim: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert '    "nim": 0,\n' in patched("envs/native/library.py")
    monkeypatch.setattr(library, "RECORDED", {"nim": 0})
    refused = "baseline instructions are refused, as they compute nim to other bits"
    assert library.refusal("baseline").startswith(refused)
    assert native_fingerprint.main() == 0
    printed = capsys.readouterr().out
    monkeypatch.setattr(library, "RECORDED", eval(printed[printed.index("{") : printed.index("}") + 1]))
    library._compare.cache_clear()
    assert [*library.RECORDED] == ["nim"] and library.refusal("baseline") == ""
    assert play_both(make, env_spec("paddock.envs.tasks.nim:Nim"), 40, 2, AutoresetMode.SAME_STEP) > 4
