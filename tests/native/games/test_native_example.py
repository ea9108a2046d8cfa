"""The game that docs/native_game.md adds, built as it says and played beside its Python."""

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from compiled import COMPILER, NATIVE, extension
from conftest import ROOT, env_spec
from gymnasium.vector import AutoresetMode
from native_laws import maker, native  # noqa: F401
from test_native_worlds import play_both

import paddock.envs.tasks
from paddock.envs.native import library
from paddock.envs.registration import VERSIONS

PAGE = (ROOT / "docs" / "native_game.md").read_text()
FILES = dict(re.findall(r"^```\w+ title=\"([^\"\n]+)\"\n(.*?)^```", PAGE, re.M | re.S))
RULES, IN_C, OPTION = "envs/tasks/nim.py", "envs/native/src/tasks/nim.c", "conf/env/nim.yaml"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the game's Python, and a library with its C."""
    if COMPILER is None:
        pytest.skip("there is no C compiler (cc, gcc)")
    source = shutil.copytree(NATIVE / "src", tmp_path / "src")
    game, stubs = source / "tasks" / "nim.c", tmp_path / "stubs.c"
    stubs.write_text('#include "simd/sets.h"\nconst struct set *const avx2_set, *const avx512_set;\n')
    files = [source.parent / Path(name).relative_to("envs/native") for name in extension().sources]
    command = [COMPILER, "-O0", "-std=gnu11", "-ffp-contract=off", "-Wno-psabi", "-fPIC", "-pthread", f"-I{source}"]
    kept = [stubs, *(file for file in files if not file.stem.startswith("avx"))]
    subprocess.run([*command, "-c", *map(str, kept)], cwd=tmp_path, check=True)
    objects = [str(path) for path in tmp_path.glob("*.o")]

    game.write_text(FILES[IN_C])
    target = tmp_path / "built" / f"_lanes{library.EXTENSION_SUFFIXES[0]}"
    target.parent.mkdir()
    subprocess.run([*command, "-shared", str(game), *objects, "-o", str(target)], check=True)
    monkeypatch.setattr(library, "FOLDER", target.parent)
    library.load.cache_clear()
    (tmp_path / "nim.py").write_text(FILES[RULES])
    monkeypatch.setattr(paddock.envs.tasks, "__path__", [*paddock.envs.tasks.__path__, str(tmp_path)])
    monkeypatch.setenv(library.SET_VARIABLE, "baseline")
    importlib.import_module("paddock.envs.tasks.nim")
    yield
    library.load.cache_clear()
    VERSIONS.pop("paddock.envs.tasks.nim:Nim")
    sys.modules.pop("paddock.envs.tasks.nim")


def test_the_page_s_three_files_add_a_game_with_the_same_numbers_in_c(make: Any, built: None) -> None:
    assert FILES.keys() == {RULES, IN_C, OPTION}
    assert play_both(make, env_spec(yaml.safe_load(FILES[OPTION])["id"]), 40, 2, AutoresetMode.SAME_STEP) > 4
