"""What a script itself defines, given to pools: as with the standard library's spawn, workers import the file."""

import ast
import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT

from paddock.algos.pool.protocol import PoolError
from paddock.algos.pool.script import Script, _bound, _read_once
from paddock.compute.dask.dispatcher import Dispatcher
from paddock.compute.dask.membership import Membership

SCRIPT = """
import sys
from helper import double
from paddock.compute import Pool

TABLE, count = None, 0


def fill(size):
    global TABLE
    TABLE = [double(x) for x in range(size)]


def look(x):
    return TABLE[x]


def tick(_):
    global count
    count += 1
    return count


class Point:
    pool = None

    def __init__(self, x):
        self.x = x

    @classmethod
    def make(cls, x):
        return cls(x)


if __name__ == "__main__":
    settings = dict(compute="dask", address=sys.argv[1]) if sys.argv[1:] else dict(processes=1)
    factor = 10

    def of_the_block(x):
        return factor * x

    with Pool(initializer=fill, initargs=(9,), **settings) as pool:
        print(pool.map(look, range(4)))
        print([pool.apply(tick, (0,)) for _ in range(2)], pool.map(tick, range(3), 1), pool.map(tick, range(3), 3))
        Point.pool = pool
        points = pool.map(Point.make, range(3))
        print([type(point) is Point for point in points], [point.x for point in points])
        print(pool.map(of_the_block, range(3)), pool.map(lambda x: tick(x) + factor, range(2), 1))
"""
SAID = """[0, 2, 4, 6]
[1, 2] [3, 4, 5] [6, 7, 8]
[True, True, True] [0, 1, 2]
[0, 10, 20] [19, 20]
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    file = tmp_path / "of_a_user.py"
    file.write_text(SCRIPT)
    return file


def run(*command: Any, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=cwd, env=os.environ | environment)


def test_functions_of_a_script_share_its_globals_on_a_worker(script: Path) -> None:
    done = run(script, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID, "")


def test_functions_of_a_module_that_runs_do_so_too(script: Path) -> None:
    package = script.parent / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (script.parent / "helper.py").rename(package / "helper.py")
    (package / "tool.py").write_text(SCRIPT.replace("from helper", "from .helper"))
    done = run("-m", "package.tool", cwd=script.parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID, "")


def test_workers_of_a_running_scheduler_import_the_file_anew_for_each_driver(
    script: Path, scheduler: str, worker: Callable[..., str]
) -> None:
    worker("--preload", "paddock.algos.pool.worker")
    for _ in range(2):
        done = run(script, scheduler, cwd=ROOT)
        assert (done.returncode, done.stdout, done.stderr) == (0, SAID, "")
    # A file that is another one by now is none.
    script.write_text(SCRIPT.replace("count += 1", "count += 100"))
    assert "[100, 200] [300, 400, 500]" in run(script, scheduler, cwd=ROOT).stdout


def test_a_script_that_is_edited_while_it_runs_stays_what_it_was(tmp_path: Path) -> None:
    script = tmp_path / "of_a_user.py"
    script.write_text("""
import sys
from pathlib import Path
from paddock.compute import Pool


def plus(x):
    return x + 1


if __name__ == "__main__":
    for _ in range(2):  # pools, the second one opened after the edit
        with Pool(1, maxtasksperchild=1) as pool:
            print(pool.map(plus, range(2), 1))
            Path(__file__).write_text("def plus(x):\\n    return -1\\n")
            print(pool.map(plus, range(2), 1))
""")
    done = run(script, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, 4 * "[1, 2]\n", "")


@pytest.mark.parametrize("within", ["a process of its own", "the driver"])
def test_a_worker_runs_what_the_driver_does_and_not_what_the_file_is_now(
    within: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, runs = tmp_path / "of_a_user.py", b"value = 1"
    for name, module in {
        "__main__": sys.modules["__main__"],
        "__mp_main__": SimpleNamespace(__file__=str(file)),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "path", [*sys.path])
    file.write_bytes(runs)
    assert _read_once(str(file)) == runs
    file.write_bytes(b"value = 2")
    if within != "the driver":
        monkeypatch.setattr("multiprocessing.parent_process", lambda: "the driver")
    script, main = Script(str(file), "", runs), sys.modules["__mp_main__"]
    assert script.is_here()
    assert script.module() is main if within == "the driver" else script.module().value == 1


def test_a_worker_without_such_a_file_has_not_the_script(tmp_path: Path) -> None:
    elsewhere = tmp_path / "of_a_user.py"
    assert not Script(str(elsewhere), "", b"value = 1").is_here()
    elsewhere.write_bytes(b"value = 2")
    assert Script(str(elsewhere), "", b"value = 1").is_here()


def test_without_a_file_each_call_has_globals_of_its_own(script: Path) -> None:
    text = SCRIPT.replace("initializer=fill, initargs=(9,), ", "").replace("map(look", "map(abs")
    done = run("-c", text, cwd=script.parent)
    assert done.stdout.splitlines()[:2] == ["[0, 1, 2, 3]", "[1, 1] [1, 2, 3] [1, 2, 3]"], done.stderr


def test_a_pool_without_a_main_guard_is_one_line(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text("from paddock.compute import Pool\n\npool = Pool(2)\nprint(pool.map(abs, [-1]))\n")
    done = run(script, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("paddock: ") and 'if __name__ == "__main__":' in done.stderr


def test_a_worker_that_imports_a_script_opens_no_pool(
    scheduler: str, worker: Callable[..., str], tmp_path: Path
) -> None:
    worker("--preload", "paddock.algos.pool.worker")
    script = tmp_path / "unguarded.py"
    script.write_text(f"""
from paddock.compute import Pool
def same(x): return x
with Pool(compute="dask", address={scheduler!r}) as pool:
    print(pool.apply(same, (1,)))
""")
    done = run(script, cwd=ROOT)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(
        "paddock.algos.pool.script.Unguarded: the script opens"
    )


@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("test_multiprocessing_pool.py", ["-q", "-k", "initializer_runs or travel or lost_workers"]),
        (
            "test_stdlib_pool_cases.py",
            ["TestPool.test_traceback"],
        ),
    ],
)
def test_the_laws_of_the_pool_hold_in_scripts_too(file: str, chosen: list[str]) -> None:
    pytest.importorskip("test._test_multiprocessing", reason="this Python comes without its tests")
    done = run(Path(__file__).with_name(file), *chosen, cwd=ROOT / "tests", PYTHONPATH=str(ROOT / "tests"))
    assert done.returncode == 0, done.stdout + done.stderr


# Who has the file


def test_a_script_defines_what_its_import_binds() -> None:
    text = """
import a
def f(): inner = 1
class C: attribute = 1
x, (y, *z) = w = 1, [2]
annotated: int = 1
if hidden: g = 1
else:
    def h(): pass
try: t = 1
except Exception: u = 1
finally: v = 1
with a as b: c = 1
if __name__ == "__main__":
    guarded = 1
    def also_guarded(): pass
else:
    imported = 1
"""
    assert set(_bound(ast.parse(text).body)) == {*"fCxyzwghtuvc", "annotated", "imported"}


def welcome(has_it: list[bool], travelled: bool) -> tuple[Dispatcher, list[str]]:
    """A pool opened on the first of some workers that have the script or not, which the others join."""

    async def join() -> tuple[Dispatcher, list[str]]:
        script = Script("/of/a/user.py", "", SCRIPT.encode())
        dispatcher = Dispatcher(asyncio.get_running_loop(), 0, None)
        client: Any = SimpleNamespace(scheduler=None, status="running")
        membership = Membership(client, dispatcher, None, script, {}, lambda worker: None, "nowhere", lambda: None)
        workers: list[Any] = [SimpleNamespace(answer={"script": has}, abort=lambda: None) for has in has_it]
        dispatcher.workers["tcp://a:1"] = workers[0]
        membership.agree_on_script()
        script.travelled = travelled
        refused = []
        for worker in workers[1:]:
            try:
                membership._check_script(worker)
            except PoolError as error:
                refused.append(str(error))
        return dispatcher, refused

    return asyncio.run(join())


@pytest.mark.parametrize(
    ("has_it", "travelled", "by_reference", "refused"),
    [
        ([True, True], True, True, 0),
        ([False, True], False, False, 0),
        ([True, False], False, False, 0),  # nothing refers to it yet
        ([True, False, True], True, True, 1),
    ],
)
def test_the_file_is_used_where_every_worker_has_it(
    has_it: list[bool], travelled: bool, by_reference: bool, refused: int
) -> None:
    dispatcher, said = welcome(has_it, travelled)
    assert (dispatcher.script is not None, len(said)) == (by_reference, refused)
    assert all("has not the /of/a/user.py that runs here" in text for text in said)
