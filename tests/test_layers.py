"""Imports run from platform/ to algos/ to envs/, never back, and never in a circle."""

import ast
import graphlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("platform", "algos", "envs")  # from the top


def module_name(path: Path) -> str:
    """Return the name that a source file is imported by."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "platform" else parts
    return ".".join(("paddock", *(part for part in parts if part != "__init__")))


SOURCES = {module_name(path): path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))}


def layer_of(module: str) -> str:
    """Return the layer of a module."""
    name = module.split(".")[1] if "." in module else ""
    return name if name in LAYERS else "platform"


@cache
def imports(path: Path) -> list[str]:
    """Return the absolute names that a module imports, wherever in it."""
    module, found = module_name(path), list[str]()
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            found += [f"{base}.{alias.name}" for alias in node.names]
    return found


@pytest.fixture(scope="module")
def modules() -> dict[str, set[str]]:
    """The modules of ours that each of them imports."""
    return {
        module: {name if name in SOURCES else name.rpartition(".")[0] for name in imports(path)}
        & SOURCES.keys() - {module}
        for module, path in SOURCES.items()
    }


@pytest.mark.parametrize("layer", LAYERS[1:])
def test_imports_run_downward_only(layer: str, modules: dict[str, set[str]]) -> None:
    above = LAYERS[: LAYERS.index(layer)]
    upward = {(a, b) for a, names in modules.items() if layer_of(a) == layer for b in names if layer_of(b) in above}
    assert upward - {(a, "paddock") for a in SOURCES} == set()


def test_nothing_is_imported_in_a_circle(modules: dict[str, set[str]]) -> None:
    graph = {module: names - {"paddock"} for module, names in modules.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_nothing_is_imported_by_the_name_of_a_folder() -> None:
    places = [
        ROOT / "paddock.py",
        *(path for name in (*LAYERS, "tests", "scripts") for path in (ROOT / name).rglob("*.py")),
    ]
    folders = {path.stem for path in (ROOT / "platform").iterdir()} - {"__init__"}
    pattern = re.compile(rf"(algos|envs)\b|platform\.({'|'.join(sorted(folders))})\b")
    assert {(str(path), name) for path in places for name in imports(path) if pattern.match(name)} == set()
