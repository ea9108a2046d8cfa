"""The laws of the name: the folder platform/ hides nothing of the standard library's and answers to `paddock` only."""

import ast
import graphlib
import json
import operator
import os
import pickle
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import paddock
from paddock.config import vocabulary

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("platform", "algos", "envs")
MINORS = (11, 12, 13, 14)

pytestmark = [pytest.mark.real_start, pytest.mark.xdist_group("name")]  # one wheel for all

PROBE = r"""
import inspect, json, platform, re

def show(value):
    if inspect.isclass(value):
        return [value.__module__, value.__qualname__, sorted(vars(value))]
    value = inspect.unwrap(value) if callable(value) else value
    if inspect.isfunction(value):
        code = value.__code__
        return [value.__module__, value.__qualname__, code.co_filename, code.co_firstlineno, code.co_code.hex()]
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))

def answers(function):
    return not any(p.default is p.empty and p.kind <= 1 for p in inspect.signature(function).parameters.values())

module = {"__name__", "__doc__", "__package__", "__loader__", "__spec__", "__file__", "__cached__", "__path__",
          "__builtins__"}
names = {name: show(value) for name, value in vars(platform).items() if name not in module}
results = {name: repr(value()) for name, value in sorted(vars(platform).items())
           if inspect.isfunction(value) and not name.startswith("_") and answers(value)}
print(json.dumps({"file": platform.__file__, "names": names, "results": results}))
"""


def run(*command: str | Path, cwd: Path, path: Path | None = None, status: int = 0) -> str:
    """What the command printed; PYTHONPATH is `path` alone."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    env = clean | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}
    if path:
        env["PYTHONPATH"] = str(path)
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@cache
def find_python(minor: int) -> str | None:
    """An interpreter of Python 3.`minor`: this one, pyenv's or one on PATH."""
    if sys.version_info[:2] == (3, minor):
        return sys.executable
    pyenv = (Path.home() / ".pyenv/versions").glob(f"3.{minor}.*/bin/python")
    for found in (*map(str, pyenv), shutil.which(f"python3.{minor}")):
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return found
    return None


@pytest.fixture(params=MINORS, ids=lambda minor: f"3.{minor}")
def python(request: pytest.FixtureRequest) -> str:
    return find_python(request.param) or pytest.skip(f"no Python 3.{request.param} on this machine")


# The stand-in


def test_stand_in_has_every_name_and_value_of_the_standard_library(python, tmp_path):
    inside = json.loads(run(python, "-c", PROBE, cwd=ROOT))
    outside = json.loads(run(python, "-c", PROBE, cwd=tmp_path))
    assert Path(inside["file"]) == ROOT / "platform/__init__.py" != Path(outside["file"])
    assert inside["names"] == outside["names"]
    assert inside["results"] == outside["results"]
    assert {"system", "uname", "_sys_version", "_uname_cache"} <= inside["names"].keys()
    assert {"system", "machine", "platform", "python_version"} <= inside["results"].keys()


def test_stand_in_keeps_the_attributes_of_a_package(python):
    code = "import platform; print(platform.__doc__.split()[2], platform.__spec__.name, *platform.__path__)"
    assert run(python, "-c", code, cwd=ROOT).split() == ["library's", "platform", str(ROOT / "platform")]


def test_stand_in_can_be_patched_pickled_and_reloaded(python):
    code = """
import importlib, pickle, platform
from unittest import mock
system = platform.system()
with mock.patch("platform.uname") as uname:
    uname.return_value.system = "Plan 9"
    assert platform.system() == "Plan 9"
assert importlib.reload(platform).system() == system
print(pickle.dumps((platform.system, platform.uname())).hex())
"""
    system, uname = pickle.loads(bytes.fromhex(run(python, "-c", code, cwd=ROOT)))
    assert system() == uname.system


def test_packages_that_ask_for_the_platform_import_in_the_root():
    code = "import torch, wandb, distributed, numpy, pip, platform; print(platform.__file__)"
    assert Path(run(sys.executable, "-c", code, cwd=ROOT).strip()) == ROOT / "platform/__init__.py"


def test_forked_and_spawned_children_share_the_stand_in_and_the_import_name(python, tmp_path):
    (tmp_path / "probe.py").write_text("""
import multiprocessing, platform

def look(_):
    import paddock
    return platform.system(), platform.__file__, paddock.__file__

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(*pool.map(look, [0])[0])
""")
    lines = run(python, "-m", "probe", cwd=ROOT, path=tmp_path).splitlines()
    system = run(python, "-c", "import platform; print(platform.system())", cwd=tmp_path).strip()
    assert lines == [f"{system} {ROOT / 'platform/__init__.py'} {ROOT / 'paddock.py'}"] * 3


@pytest.mark.parametrize("start", [["-m", "pytest"], ["pytest"]], ids=" ".join)
def test_pytest_starts_either_way(start, tmp_path):
    (tmp_path / "test_tiny.py").write_text("""
import platform
import algos, envs, paddock

def test_platform():
    assert platform.system() and paddock.CONF.is_dir()
""")
    tail = ["-q", "-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider", tmp_path / "test_tiny.py"]
    command = [sys.executable, *start] if start[0] == "-m" else [Path(sys.executable).parent / "pytest"]
    assert "1 passed" in run(*command, *tail, cwd=ROOT)


# The door


@pytest.fixture
def small_house(tmp_path) -> Path:
    """The real door and stand-in before a launch that needs the standard library only."""
    (tmp_path / "platform").mkdir()
    for name in ("paddock.py", "platform/__init__.py", "platform/__main__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "platform/room.py").write_text("def work():\n    return __name__\n")
    (tmp_path / "platform/evaluate.py").write_text("""
from .room import work

if __name__ == "__main__":
    print(__spec__.name, work())
""")
    (tmp_path / "platform/launch.py").write_text("""
import multiprocessing, sys
from .room import work

def main():
    print("opened", flush=True)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(*pool.starmap(work, [()] * 2))
    print(*sorted(name for name in sys.modules if name.startswith(("paddock.", "platform."))))
    return 3
""")
    return tmp_path


@pytest.mark.parametrize("name", ["platform", "paddock"])
def test_door_opens_once_loads_nothing_twice_and_passes_the_status_on(name, python, small_house):
    lines = run(python, "-m", name, cwd=small_house, status=3).splitlines()
    assert lines == ["opened", "paddock.room paddock.room", "paddock.launch paddock.room"]


def test_door_opens_from_another_folder(python, small_house, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert run(python, "-m", "paddock", cwd=elsewhere, path=small_house, status=3).startswith("opened\n")
    assert run(python, "-m", "paddock.evaluate", cwd=elsewhere, path=small_house) == "paddock.evaluate paddock.room\n"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("paddock.doctr", "did you mean python -m paddock.doctor?"),
        ("paddock.eval", "did you mean python -m paddock.evaluate?"),
        ("paddock.runs.loop", "there are paddock, paddock.evaluate, "),  # a module of ours, which runs nothing
        ("paddock.compute", "there are paddock, paddock.evaluate, "),
        ("paddock.xyz", "there are paddock, paddock.evaluate, "),
        (".".join(("platform", "status")), "did you mean python -m paddock.status?"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_nearest(name, answer):
    done = subprocess.run([sys.executable, "-B", "-m", name, "x"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith(f"paddock: python -m {name} is not a command; {answer}")


def test_the_commands_that_a_mistyped_one_may_stand_for_are_those_there_are():
    guard = '\nif __name__ == "__main__":\n'
    guarded = {path.stem for path in find_sources("platform") if guard in path.read_text()}
    assert set(paddock.COMMANDS) == guarded - {"__main__"}
    assert set(vocabulary.COMMANDS) == {"paddock", *(f"paddock.{name}" for name in paddock.COMMANDS)}


def test_a_module_that_another_program_imports_as_it_starts_need_not_be_a_command(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").write_text("import paddock.config.vocabulary")
    (tmp_path / "mine/train.py").write_text("print('trained')")
    assert run(sys.executable, "-m", "mine.train", cwd=tmp_path, path=ROOT) == "trained\n"


@pytest.mark.parametrize("name", ["platform.__main__", "paddock.__main__", "paddock"])
def test_door_that_is_only_imported_stays_shut(name, python, small_house):
    assert run(python, "-c", f"import {name}", cwd=small_house) == ""


@pytest.mark.parametrize("name", ["platform", "paddock"])
def test_help_answers_in_the_root(name):
    assert "paddock" in run(sys.executable, "-m", name, "--help", cwd=ROOT).lower()


def test_no_folder_of_the_working_directory_hides_an_editable_install(small_house, tmp_path_factory):
    for floor in ("algos", "envs"):
        (small_house / floor).mkdir()
        (small_house / floor / "__init__.py").touch()
    (small_house / "conf").mkdir()
    (small_house / "platform/stubs").mkdir()
    # Without the native environments, which take a compiler many seconds.
    project, _, tools = (ROOT / "pyproject.toml").read_text().partition("[[tool.setuptools.ext-modules]]")
    (small_house / "pyproject.toml").write_text(project)
    assert "-ffp-contract=off" in tools
    for name in ("setup.py", "README.md"):
        shutil.copy(ROOT / name, small_house)
    environment, elsewhere = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("elsewhere")
    venv.create(environment, symlinks=True)
    packages = next(environment.glob("lib/python3*/site-packages"))
    build = f"from setuptools import build_meta; print(build_meta.build_editable({str(environment)!r}))"
    wheel = run(sys.executable, "-c", build, cwd=small_house).splitlines()[-1]
    zipfile.ZipFile(environment / wheel).extractall(packages)
    for name in ("paddock", "algos", "envs"):  # as in the folder that a clone of the repository lies in
        (elsewhere / name).mkdir()
    look = "import algos, envs, platform; print(algos.__file__, envs.__file__, platform.__file__)"
    python = environment / "bin/python"
    assert run(python, "-c", look, cwd=elsewhere).split() == [
        str(small_house / "algos/__init__.py"),
        str(small_house / "envs/__init__.py"),
        str(Path(os.__file__).parent / "platform.py"),
    ]
    assert run(python, "-m", "paddock", cwd=elsewhere, status=3).startswith("opened\n")
    assert run(python, "-m", "paddock.evaluate", cwd=elsewhere) == "paddock.evaluate paddock.room\n"


# Elsewhere: a Dask worker, a wheel, a notebook


def test_dask_worker_started_elsewhere_runs_what_the_house_defines(tmp_path):
    from distributed import Client, LocalCluster

    module, name = next(find_functions("algos"))
    function = getattr(import_module(module), name)
    with (
        LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        worker = subprocess.Popen(
            [sys.executable, "-m", "dask", "worker", cluster.scheduler_address, "--nthreads=1", "--no-dashboard"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        try:
            client.wait_for_workers(1, timeout=60)
            seen = client.submit(operator.attrgetter("__module__", "__name__"), function)
            house = client.submit(eval, "__import__('paddock').__file__, __import__('platform').system()")
            assert seen.result(timeout=60) == (module, name)
            assert house.result(timeout=60)[0] == str(ROOT / "paddock.py")
        finally:
            worker.terminate()
            worker.wait(30)


def find_functions(floor: str) -> Iterator[tuple[str, str]]:
    """Module and name of every public function of a floor."""
    for path in find_sources(floor):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield name_module(path), node.name


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel built from a copy of the house, by way of an archive of its sources."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, source)
    for folder in (*FLOORS, "conf"):
        shutil.copytree(
            ROOT / folder,
            source / folder,
            ignore=shutil.ignore_patterns("__pycache__", "_lanes*", "_dense.*", "_replay.*"),
        )
    settings = (source / "pyproject.toml").read_text()
    assert '"-O3"' in settings
    (source / "pyproject.toml").write_text(settings.replace('"-O3"', '"-O0"'))  # which compiles in a sixth of the time
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, cwd=out)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel]
    run(*pip, cwd=target)
    return target


def test_wheel_holds_every_file_and_shadows_nothing(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    ours = {path.relative_to(ROOT) for floor in FLOORS for path in find_sources(floor)}
    ours |= {path.relative_to(ROOT) for path in (ROOT / "conf").rglob("*.yaml")}
    ours |= {path.relative_to(ROOT) for path in (ROOT / "envs/native").rglob("*.[ch]")}
    hidden = ("platform", "conf")
    moved = {f"_paddock/{path.as_posix()}" if path.parts[0] in hidden else path.as_posix() for path in ours}
    typed = {f"{folder}/py.typed" for folder in ("_paddock/platform", "algos", "envs", "paddock-stubs")}
    assert held >= moved | typed | {"paddock.py", "paddock-stubs/__init__.pyi"}
    assert {name.split("/")[0] for name in held} == {"paddock.py", "_paddock", "paddock-stubs", "algos", "envs"}


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")
def test_wheel_holds_the_native_environments_for_its_own_machine(wheel, installed, tmp_path):
    library = f"envs/native/_lanes{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert library in zipfile.ZipFile(wheel).namelist()
    assert not wheel.name.endswith("-none-any.whl")
    code = "from envs.native import library; print(library.built()[0], library.widest())"
    built, instructions = run(sys.executable, "-c", code, cwd=tmp_path, path=installed).split()
    assert Path(built) == installed / library and instructions in ("baseline", "avx2", "avx512")


LOOK = """
import platform
import paddock, paddock.launch, paddock.compute, algos, envs
print(paddock.__file__, paddock.launch.__file__, platform.__file__, any(paddock.CONF.rglob("*.yaml")), sep="\\n")
"""


def check_look(printed: str, installed: Path) -> None:
    paddock, launch, platform, configured = printed.splitlines()
    assert Path(paddock) == installed / "paddock.py"
    assert Path(launch) == installed / "_paddock/platform/launch.py"
    assert Path(platform) == Path(os.__file__).parent / "platform.py"
    assert configured == "True"


def test_installed_wheel_works_from_another_folder(installed, tmp_path):
    check_look(run(sys.executable, "-c", LOOK, cwd=tmp_path, path=installed), installed)


def test_installed_wheel_answers_help(installed, tmp_path):
    module = run(sys.executable, "-m", "paddock", "--help", cwd=tmp_path, path=installed)
    script = run(installed / "bin/paddock", "--help", cwd=tmp_path, path=installed)
    assert "paddock" in module.lower()
    assert "paddock" in script.lower()


def test_notebook_in_another_folder_imports_the_house(installed, tmp_path, monkeypatch):
    import nbclient
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(installed))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(LOOK)])
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    check_look("".join(output.text for output in notebook.cells[0].outputs if output.name == "stdout"), installed)


# The house rules


def find_sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_module(path: Path) -> str:
    first, *rest = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("paddock" if first == "platform" else first, *(part for part in rest if part != "__init__")))


def find_statements(tree: ast.AST, package: str) -> Iterator[str]:
    """Absolute dotted names that the statements of a module import, wherever they stand in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def find_imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Absolute dotted names a module imports, and any in its strings: `import_module` and `_target_` take those."""
    yield from find_statements(tree, package)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and re.fullmatch(r"[a-z_]\w*(\.\w+)+", str(node.value)):
            yield str(node.value)


@cache
def read_imports(path: Path, find: Callable[[ast.AST, str], Iterator[str]] = find_imports) -> list[str]:
    module = name_module(path)
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    return list(find(ast.parse(path.read_text()), package))


def find_rooms() -> set[str]:
    found = [path for path in (ROOT / "platform").iterdir() if path.is_dir() or path.suffix == ".py"]
    return {path.stem for path in found} - {"__init__", "__main__", "__pycache__"}


@pytest.mark.parametrize(
    ("source", "package", "name"),
    [
        ("import paddock.runs.loop", "envs", "paddock.runs.loop"),
        ("from paddock.runs import loop", "envs", "paddock.runs.loop"),
        ("def f():\n    from algos.es import ES", "envs", "algos.es.ES"),
        ("from ..returns import gae", "algos.learning.more", "algos.learning.returns.gae"),
        ("from . import flow", "algos.learning", "algos.learning.flow"),
        ("from platform import launch", "tests", ".".join(("platform", "launch"))),
        ("import_module('paddock.launch')", "algos", "paddock.launch"),
    ],
)
def test_imports_are_found_however_they_are_written(source, package, name):
    assert name in list(find_imports(ast.parse(source), package))


@pytest.mark.parametrize(("floor", "above"), [("envs", {"algos", "paddock"}), ("algos", {"paddock"})])
def test_imports_run_downward_only(floor, above):
    barred = above | {"tests", "scripts", "notebooks"}
    imports = {(str(path), name) for path in find_sources(floor) for name in read_imports(path)}
    assert not {(path, name) for path, name in imports if name.split(".")[0] in barred}


# From the roof down: a room imports those on lines below its own. "" is the top of a floor: commands, and algorithms.
ROOMS = {
    "paddock": ["", "reports health", "evaluation slurm", "sweep", "compute", "config", "tracking", "runs"],
    "algos": ["", "evolution", "learning", "common", "pool networks"],
}
MOST_FILES = 14  # of Python in a room


@cache
def draw_arrows() -> dict[str, set[str]]:
    """Module of the house -> those that it imports, inside functions and for types alone too."""
    modules = {name_module(path): path for path in find_sources(*FLOORS)}
    arrows = {}
    for module, path in modules.items():
        names = read_imports(path, find_statements)
        arrows[module] = {name if name in modules else name.rpartition(".")[0] for name in names} & modules.keys() - {
            module
        }
    return arrows


def find_room(module: str, floor: str) -> str:
    first, *rest = module.removeprefix(floor).strip(".").split(".")
    return first if rest or any(first in line.split() for line in ROOMS[floor]) else ""


def find_upward(arrows: dict[str, set[str]], floor: str) -> set[tuple[str, str]]:
    """The imports from one room of a floor into another that is not below it."""
    height = {room: -k for k, line in enumerate(ROOMS[floor]) for room in line.split(" ")}
    pairs = {
        (a, b) for a, imported in arrows.items() for b in imported if {a.split(".")[0], b.split(".")[0]} == {floor}
    }
    rooms = {(a, b): (find_room(a, floor), find_room(b, floor)) for a, b in pairs if b != floor}
    return {pair for pair, (a, b) in rooms.items() if a != b and height[a] <= height[b]}


@pytest.mark.parametrize("floor", list(ROOMS))
def test_rooms_import_only_those_below_them(floor):
    assert not find_upward(draw_arrows(), floor)


def test_an_import_between_rooms_is_seen():
    arrows = {
        "algos.common.timing": {"algos.learning.rollouts.rollout", "algos.common.keys"},
        "algos.pool.worker": {"algos.networks", "algos"},
        "algos.es": {"algos.pool.serial"},
        "algos.learning.flow": {"algos.es"},
    }
    upward = {("algos.common.timing", "algos.learning.rollouts.rollout"), ("algos.learning.flow", "algos.es")}
    assert find_upward(arrows, "algos") == upward | {("algos.pool.worker", "algos.networks")}


def test_nothing_is_imported_in_a_circle():
    try:
        graphlib.TopologicalSorter(draw_arrows()).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_a_room_holds_few_files():
    full = {path.parent for path in find_sources(*FLOORS, "scripts")}
    # But for the door, which hands over at once.
    count = {folder: len([path for path in folder.glob("*.py") if path.stem != "__main__"]) for folder in full}
    assert not {str(folder): number for folder, number in count.items() if number > MOST_FILES}


# Classes of one name in several files that are one idea for two kinds of learning, or a thing and its recipe.
SAME_NAMES = {
    "Atari": {"envs.bindings.atari", "envs.vector.recipes"},  # the environment, and how many of it are stepped
    "Batch": {"algos.learning.learner", "algos.learning.replay.batch"},  # learned from, of rollouts or of a replay
    "Pool": {"algos.pool.protocol", "paddock.compute.processes.pool"},  # the seam, and multiprocessing's face of it
    "Turn": {"algos.learning.offpolicy.operators", "algos.learning.onpolicy.operators"},  # what operators hand on
}


def test_a_class_has_a_name_of_its_own():
    named: dict[str, set[str]] = {}
    for path in find_sources(*FLOORS):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named.setdefault(node.name, set()).add(name_module(path))
    assert {name: modules for name, modules in named.items() if len(modules) > 1} == SAME_NAMES


def test_imports_inside_the_folder_are_relative():
    doors = [ROOT / "platform/__main__.py", ROOT / "platform/__init__.py"]
    inside = [path for path in find_sources("platform") if path not in doors]
    absolute = {
        (str(path), node.lineno)
        for path in inside
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "paddock")
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "paddock" for alias in node.names))
    }
    assert not absolute


def test_nobody_imports_a_room_by_the_name_of_the_folder():
    sources = [ROOT / "paddock.py", *find_sources(*FLOORS, "tests", "scripts", "notebooks")]
    pattern = re.compile(rf"\bplatform\.({'|'.join(map(re.escape, sorted(find_rooms())))})\b")
    in_code = {(str(path), name) for path in sources for name in read_imports(path) if pattern.match(name)}
    text = [*(ROOT / "conf").rglob("*.yaml"), *(ROOT / "notebooks").rglob("*.ipynb")]
    in_text = {(str(path), found.group()) for path in text for found in pattern.finditer(path.read_text())}
    assert not in_code | in_text


def test_no_room_bears_the_name_of_an_attribute_of_the_standard_library(python, tmp_path):
    names = run(python, "-c", "import platform; print(*dir(platform))", cwd=tmp_path).split()
    assert find_rooms().isdisjoint(names)
