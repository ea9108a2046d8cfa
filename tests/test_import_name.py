"""Everything is imported as `paddock`: in the repository, in an editable install, in a wheel, and in users' projects."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("platform", "algos", "envs", "conf")

pytestmark = [pytest.mark.real_start, pytest.mark.xdist_group("name")]  # one wheel for all

ENVIRONMENT = """
import gymnasium, numpy as np

class Walker(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 1.0, self.steps >= 10, False, {}
"""
LOOK = """
import platform
import paddock, paddock.launch, paddock.compute, paddock.algos, paddock.envs
print(paddock.launch.__file__, paddock.algos.__file__, platform.__file__, any(paddock.CONF.rglob("*.yaml")), sep="\\n")
"""
NAMES = """
import inspect, json, platform
module = {"__name__", "__doc__", "__package__", "__loader__", "__spec__", "__file__", "__cached__", "__path__", "__builtins__"}
print(json.dumps({name: str(inspect.isfunction(value)) for name, value in vars(platform).items() if name not in module}))
"""


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """Return what a command prints; PYTHONPATH is `path` alone."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    env = clean | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from an archive of a copy of the sources."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, source)
    os.utime(source / "paddock.py", (1e9, 1e9))  # older than what it replaces in the wheel, as it may be in a clone
    compiled = shutil.ignore_patterns("__pycache__", "*.so")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=compiled)
    # With the smallest of the compiled libraries alone: the others take a compiler many seconds.
    settings = (source / "setup.py").read_text()
    assert "ext_modules=LIBRARIES" in settings
    (source / "setup.py").write_text(settings.replace("ext_modules=LIBRARIES", "ext_modules=LIBRARIES[-1:]"))
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, cwd=out)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--no-index", "--target"]
    run(*pip, target, wheel, cwd=target)
    return target


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with its own `envs` and `algos`."""
    for name in ("envs", "algos"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "envs" / "walker.py").write_text(ENVIRONMENT)
    return tmp_path


@pytest.mark.parametrize("kind", ["repository", "wheel"])
def test_a_project_may_have_its_own_envs_and_algos(kind: str, project: Path, request: pytest.FixtureRequest) -> None:
    path = ROOT if kind == "repository" else request.getfixturevalue("installed")
    small = ["compute=dask", "compute.workers=1", "algo.population=4", "algo.eval_episodes=1", "budget.iterations=1"]
    own = ["algo=es", "env=gymnasium", "env.id=envs.walker:Walker", "run.dir=mine"]
    run(sys.executable, "-m", "paddock", *own, *small, cwd=project, path=path)
    assert "mine" in run(sys.executable, "-m", "paddock.status", ".", cwd=project, path=path)


def test_changelog_and_citation_have_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    released = re.search(r"^## \[(\d\S*)\] - (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert released is not None
    assert released.groups() == (version, str(citation["date-released"])) and citation["version"] == version


def test_the_wheel_holds_one_package_with_every_file(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in held} == {"paddock"}
    sources = {
        str(path.relative_to(ROOT)).removeprefix("platform/")
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".yaml", ".c", ".h", ".html", ".css", ".js") or path.name == "py.typed"
    }
    assert held >= {f"paddock/{name}" for name in sources}


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")
def test_the_wheel_holds_what_is_compiled(wheel: Path, installed: Path, tmp_path: Path) -> None:
    library = f"paddock/algos/learning/replay/_replay{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert library in zipfile.ZipFile(wheel).namelist()
    code = "from paddock.algos.learning.replay import library; print(library.load()._name)"
    assert Path(run(sys.executable, "-c", code, cwd=tmp_path, path=installed).strip()) == installed / library


def test_the_wheel_imports_from_another_folder(installed: Path, tmp_path: Path) -> None:
    launch, algos, platform, configured = run(sys.executable, "-c", LOOK, cwd=tmp_path, path=installed).splitlines()
    assert Path(launch) == installed / "paddock/launch.py"
    assert Path(algos) == installed / "paddock/algos/__init__.py"
    assert Path(platform) == Path(os.__file__).parent / "platform.py"
    assert configured == "True"
    assert "paddock" in run(installed / "bin/paddock", "--help", cwd=tmp_path, path=installed).lower()


def test_no_folder_hides_an_editable_install(tmp_path_factory: pytest.TempPathFactory, project: Path) -> None:
    source, environment = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("environment")
    for name in ("pyproject.toml", "README.md", "paddock.py"):
        shutil.copy(ROOT / name, source)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    # Without the compiled libraries, which take a compiler many seconds.
    settings = (ROOT / "setup.py").read_text()
    assert "ext_modules=LIBRARIES" in settings
    (source / "setup.py").write_text(settings.replace("ext_modules=LIBRARIES", "ext_modules=[]"))
    venv.create(environment, symlinks=True)
    packages = next(environment.glob("lib/python3*/site-packages"))
    build = f"from setuptools import build_meta; print(build_meta.build_editable({str(environment)!r}))"
    wheel = run(sys.executable, "-c", build, cwd=source).splitlines()[-1]
    zipfile.ZipFile(environment / wheel).extractall(packages)
    (project / "paddock").mkdir()  # as in the folder that a clone of the repository lies in
    look = "import paddock, paddock.envs, platform; print(paddock.__file__, paddock.envs.__file__, platform.__file__)"
    assert run(environment / "bin/python", "-c", look, cwd=project).split() == [
        str(source / "paddock.py"),
        str(source / "envs/__init__.py"),
        str(Path(os.__file__).parent / "platform.py"),
    ]


def test_the_stand_in_has_every_name_of_the_standard_library(tmp_path: Path) -> None:
    inside, outside = (json.loads(run(sys.executable, "-c", NAMES, cwd=cwd)) for cwd in (ROOT, tmp_path))
    assert inside == outside


def test_the_stand_in_can_be_patched_pickled_and_reloaded() -> None:
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
    system, uname = pickle.loads(bytes.fromhex(run(sys.executable, "-c", code, cwd=ROOT)))
    assert system() == uname.system


def test_a_dask_worker_started_elsewhere_imports_the_same_code(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    from paddock.algos.common.keys import keyed_generator

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
            seen = client.submit(getattr, keyed_generator, "__module__")
            assert seen.result(timeout=60) == "paddock.algos.common.keys"
        finally:
            worker.terminate()
            worker.wait(30)
