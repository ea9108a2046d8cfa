"""The README's commands work as they are written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.S)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if re.match(r"\S*python -m ", line)]
QUICK = ["budget.iterations=1", "algo.population=4", "algo.eval_episodes=1"]  # one iteration of whatever it is


TINY_POET = ["algo=poet", "env=poles", "compute=serial", "algo.hidden=[4]", "algo.reproduce_every=1"]
ALWAYS_ADMIT = ["algo.reproduce_score=0", "algo.criterion_low=0", "algo.criterion_high=1000"]


def words(command: str, **folders: Path) -> list[str]:
    """A command of the README, run by this Python; RUN and POET stand for folders."""
    arguments = shlex.split(command, comments=True)[1:]
    for name, folder in folders.items():
        arguments = [re.sub(rf"\b{name}\b", str(folder), word) for word in arguments]
    return [sys.executable, *arguments]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme") / "run"
    arguments = ["experiment=es_cartpole", "compute=serial", "algo.eval_every=1", *QUICK, f"run.dir={folder}"]
    subprocess.run([sys.executable, "-m", "paddock", *arguments], cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def poet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme") / "poet"
    arguments = [*TINY_POET, *ALWAYS_ADMIT, *QUICK, "budget.iterations=2", f"run.dir={folder}"]
    subprocess.run([sys.executable, "-m", "paddock", *arguments], cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("command", [line for line in COMMANDS if "-m platform" in line])
def test_a_command_of_the_main_job_works(command: str, poet: Path, tmp_path: Path) -> None:
    asks_only = {"--help", "--cfg", "dry_run=true"} & set(words(command))
    gradients = any(re.search("ppo|a2c", word) for word in words(command))
    small = ["budget.iterations=1", "algo.eval_episodes=1"] if gradients else QUICK
    if any(re.search("sweep", word) for word in words(command)):
        small = ["budget.iterations=3", "algo.eval_every=1", "algo.eval_episodes=1", "hydra.sweeper.n_trials=2"]
    elif "experiment=pbt_cartpole" in words(command):
        small = ["budget.iterations=1", "algo.members=2", "algo.interval=1", "algo.eval_episodes=1"]
    quick = [] if asks_only else [*small, f"run.root={tmp_path}", f"hydra.sweep.dir={tmp_path}"]
    done = subprocess.run([*words(command, POET=poet), *quick], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert asks_only or list(tmp_path.glob("*/metrics.jsonl"))


@pytest.mark.parametrize("command", [line for line in COMMANDS if "-m paddock." in line])
def test_a_command_on_a_run_works(command: str, run: Path, poet: Path) -> None:
    done = subprocess.run(words(command, RUN=run, POET=poet), cwd=run, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_the_mistake_it_shows_is_answered_as_it_shows() -> None:
    command, answer = re.search(r"```\n\$ (python -m platform .*)\n(paddock: .*)\n```", README).groups()  # type: ignore[union-attr]
    done = subprocess.run(words(command), cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (2, answer)


def test_every_file_it_names_is_there() -> None:
    folders = r"`((?:conf|algos|envs|platform|scripts|tests)/[\w./]+)`"
    named = re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(folders, README)
    assert named
    missing = [name for name in named if not (ROOT / name).exists() and "walker.yaml" not in name]
    assert not missing


def test_the_python_it_shows_runs() -> None:
    vector, pool = re.findall(r"```python\n(.*?)```", README, re.S)
    script = f"{vector}\nassert venv.recv is not None and observations.shape == (64, 4)\nvenv.close()\n"
    assert _run(script) == ""
    assert _run(pool) == "[1, 2, 4, 8, 16] [1, 1, 2, 6, 24]\n"


def _run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
