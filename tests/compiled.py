"""The native libraries for tests: the installed ones, or ones built now where those are older than their sources."""

import fcntl
import os
import runpy
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from conftest import ROOT
from setuptools import Extension

from paddock.algos.learning.replay import library as replay_library
from paddock.algos.networks.dense import compiled as dense_compiled
from paddock.algos.networks.dense import library as dense_library
from paddock.envs.errors import ConfigError
from paddock.envs.native import library

NATIVE, DENSE, REPLAY = ROOT / "envs/native", ROOT / "algos/networks/dense", ROOT / "algos/learning/replay"
LANES, LEARNING, BATCHES = (
    "paddock.envs.native._lanes",
    "paddock.algos.networks.dense._dense",
    "paddock.algos.learning.replay._replay",
)
COMPILER = shutil.which("cc") or shutil.which("gcc")


def is_fresh(path: Path) -> bool:
    """Whether neither sources nor flags were changed after the library was built."""
    given = [*NATIVE.rglob("*.[ch]"), *DENSE.rglob("*.[ch]"), *REPLAY.rglob("*.[ch]"), ROOT / "setup.py"]
    return all(path.stat().st_mtime >= source.stat().st_mtime for source in given)


def extension(name: str = LANES) -> Extension:
    """Return what setup.py says of a library."""
    libraries: list[Extension] = runpy.run_path(str(ROOT / "setup.py"))["LIBRARIES"]
    return next(one for one in libraries if one.name == name)


def build(
    folder: Path,
    compiler: str | None = COMPILER,
    more: Mapping[str, Sequence[str]] = MappingProxyType({}),
    name: str = LANES,
) -> None:
    """Build a library as setup.py says, into a folder of its own.

    Args:
        more: flags by the stem of the source that is compiled with them too.
    """
    assert compiler is not None
    module = extension(name)
    sources = [Path(source) for source in module.sources]
    objects = [str(folder / source.with_suffix(".o").name) for source in sources]
    command = [
        compiler,
        *module.extra_compile_args,
        *(f"-I{ROOT / folder}" for folder in module.include_dirs),
        "-fPIC",
        "-c",
    ]
    running = [
        subprocess.Popen([*command, *more.get(source.stem, ()), str(ROOT / source), "-o", target])
        for source, target in zip(sources, objects, strict=True)
    ]
    assert not any([process.wait() for process in running])
    target = str(folder / f"{name.rpartition('.')[2]}{library.EXTENSION_SUFFIXES[0]}")
    subprocess.run([compiler, "-shared", *module.extra_link_args, *objects, "-o", target], check=True)


def built_once(base: Path, name: str) -> Path:
    """Build a library as setup.py says, once for all processes of pytest-xdist; the folder that it is in."""
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any(folder.glob(f"{name.rpartition('.')[2]}.*")):
            build(folder, name=name)
    return folder


def missing() -> None:
    """In the place of `library.load`: nothing was compiled."""
    raise ConfigError("there is no library")


def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Set every instruction set of this processor, and give several numbers of threads, for what learns."""
    monkeypatch.setattr(dense_compiled, "usable_cores", lambda: 3)
    for name in library.available():
        monkeypatch.setenv(library.SET_VARIABLE, name)
        for threads in (1, 2, 3):
            yield f"{name}, {threads} threads", threads


@pytest.fixture(scope="session", autouse=True)
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have each library's `load` find one as new as its sources."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in ((LANES, library), (LEARNING, dense_library), (BATCHES, replay_library)):
            try:
                module.load()
                found = any(is_fresh(path) for path in module.FOLDER.glob(f"{name.rpartition('.')[2]}.*"))
            except ConfigError:
                found = False
            if found:
                continue
            if COMPILER is None:
                pytest.skip("there is no C compiler (cc, gcc)")
            patch.setattr(module, "FOLDER", built_once(tmp_path_factory.getbasetemp(), name))
            module.load.cache_clear()
        yield
    library.load.cache_clear()
    dense_library.load.cache_clear()
    replay_library.load.cache_clear()
