"""A package of the user's own: environments, wrappers, algorithms and groups that the repository knows nothing of."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, call_main

from paddock import evaluate, rerun

pytestmark = pytest.mark.xdist_group("packages")  # the package is built once

FILES = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "stable-hands"
version = "0.3"

[project.entry-points."paddock.conf"]
stable_hands = "stable_hands.conf"

[tool.setuptools]
packages = ["stable_hands", "stable_hands.conf"]
package-data = { "stable_hands.conf" = ["*/*.yaml"] }
""",
    "stable_hands/__init__.py": """
import gymnasium

gymnasium.register("Trot-v0", "stable_hands.envs:Trot", max_episode_steps=20)
""",
    "stable_hands/envs.py": """
import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Trot(gymnasium.Env):
    \"\"\"The reward is highest where the action is the target.\"\"\"

    observation_space, action_space = Box(-1, 1, (2,), np.float32), Box(-1, 1, (1,), np.float32)

    def __init__(self, target: float) -> None:
        self.target = target

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        reward = -float(np.square(action - self.target).sum())
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), reward, False, False, {}


class Double(gymnasium.RewardWrapper):
    def __init__(self, env: gymnasium.Env, times: int) -> None:
        super().__init__(env)
        self.times = times

    def reward(self, reward):
        return self.times * reward
""",
    "stable_hands/search.py": """
import functools

import numpy as np


class RandomSearch:
    \"\"\"Keeps the best of the constant actions that it draws.\"\"\"

    def __init__(self, *, env, pool, seed, width: float, members: int) -> None:
        self.env, self.pool, self.seed, self.width, self.members = env, pool, seed, width, members
        self.iteration, self.best, self.best_return = 0, 0.0, float("-inf")

    def plan(self):
        while True:
            draw = np.random.Generator(np.random.Philox(key=[self.seed, self.iteration]))
            actions = draw.uniform(-self.width, self.width, self.members)
            returns = np.zeros(self.members)
            for done in self.pool.imap_unordered(functools.partial(play, self.env), list(actions)):
                if done.error is not None:
                    raise done.error
                returns[done.index] = done.value
            if returns.max() > self.best_return:
                self.best, self.best_return = float(actions[returns.argmax()]), float(returns.max())
            self.iteration += 1
            yield {
                "iteration": self.iteration,
                "step": 20 * self.members * self.iteration,
                "train/return_mean": float(returns.mean()),
                "eval/return_mean": self.best_return,
            }

    def state_dict(self):
        return {"iteration": self.iteration, "best": self.best, "best_return": self.best_return}

    def load_state_dict(self, state) -> None:
        self.iteration, self.best, self.best_return = state["iteration"], state["best"], state["best_return"]

    def policy(self):
        return lambda obs: np.array([self.best], np.float32)


def play(env, action) -> float:
    made = env.make()
    made.reset(seed=0)
    total, over = 0.0, False
    while not over:
        _, reward, terminated, truncated, _ = made.step(np.array([action], np.float32))
        total, over = total + reward, terminated or truncated
    return total
""",
    "stable_hands/conf/__init__.py": "",
    "stable_hands/conf/algo/random_search.yaml": """# Random search: the best of many constant actions
_target_: stable_hands.search.RandomSearch
width: 1.0   # of the interval that actions are drawn from, to either side
members: 6   # actions an iteration
""",
    "stable_hands/conf/env/trot.yaml": """# Trot: hold the rein at the target
_target_: paddock.envs.spec.EnvSpec
id: stable_hands:Trot-v0
kwargs: {target: 0.25}
wrappers:
  - {_target_: stable_hands.envs.Double, times: 2}
max_episode_steps: null
fresh: false
""",
    "stable_hands/conf/experiment/trotting.yaml": """# @package _global_
# Random search learns to trot
defaults:
  - override /algo: random_search
  - override /env: trot

algo: {members: 4}
budget: {iterations: 5}
""",
}


def write_sources(folder: Path) -> Path:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built and installed with pip where no process of ours has been told of it."""
    source = write_sources(tmp_path_factory.mktemp("stable_hands"))
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", target, source], check=True, cwd=source)
    return target


def paddock(*arguments: str, cwd: Path, path: Path | None, status: int = 0) -> str:
    """Run the command in a folder with one more entry on Python's path; what it prints."""
    entries = [str(path)] if path else []
    if cwd != ROOT:
        entries.append(str(ROOT))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entries), "PYTHONDONTWRITEBYTECODE": "1"}
    module = "platform" if cwd == ROOT else "paddock"
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == status, ended.stderr
    return ended.stdout if status == 0 else ended.stderr


def read(run: Path) -> tuple[bytes, dict[str, Any]]:
    return (run / "metrics.jsonl").read_bytes(), json.loads((run / "done.json").read_text())


@pytest.fixture(scope="module")
def expected(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The metrics of the package's own experiment, run in the repository in one process."""
    run = tmp_path_factory.mktemp("expected") / "run"
    paddock("experiment=trotting", "compute=serial", f"run.dir={run}", cwd=ROOT, path=installed)
    metrics, done = read(run)
    assert done["reason"] == "budget.iterations=5"
    rows = [json.loads(line) for line in metrics.splitlines()]
    returns = [row["eval/return_mean"] for row in rows]
    assert [row["step"] for row in rows] == [80, 160, 240, 320, 400]
    assert returns == sorted(returns) and -2 * 20 * 1.25**2 < returns[0] < returns[-1] <= 0
    return metrics


def test_an_installed_package_runs_anywhere_with_the_same_numbers(
    installed: Path, expected: bytes, tmp_path: Path
) -> None:
    paddock("experiment=trotting", "compute.workers=2", "run.dir=run", cwd=tmp_path, path=installed)
    assert read(tmp_path / "run")[0] == expected


def test_a_run_of_a_package_goes_on(installed: Path, expected: bytes, tmp_path: Path) -> None:
    run = ["experiment=trotting", "compute=serial", "run.dir=run"]
    paddock(*run, "budget.iterations=2", cwd=tmp_path, path=installed)
    paddock(*run, "budget.iterations=5", cwd=tmp_path, path=installed)
    assert read(tmp_path / "run")[0] == expected


def test_its_options_are_in_the_help_and_in_hydras_search_path(installed: Path, tmp_path: Path) -> None:
    out = paddock("--help", "algo", "env", "experiment", cwd=tmp_path, path=installed)
    for line in ("random_search  Random search: the best", "Trot: hold the rein", "Random search learns to trot"):
        assert line in out
    assert str(installed / "stable_hands/conf") in paddock("--help", cwd=tmp_path, path=installed)
    assert "stable_hands" in paddock("--info", "searchpath", cwd=tmp_path, path=installed)


def test_a_folder_that_nobody_installed_is_found_by_the_search_path(expected: bytes, tmp_path: Path) -> None:
    source = write_sources(tmp_path / "source")
    where = f"hydra.searchpath=[file://{source}/stable_hands/conf]"
    paddock(where, "experiment=trotting", "compute=serial", f"run.dir={tmp_path}/run", cwd=source, path=source)
    assert read(tmp_path / "run")[0] == expected


def test_the_console_script_finds_modules_of_the_working_directory_last(tmp_path: Path) -> None:
    source = write_sources(tmp_path / "source")
    (source / "yaml.py").write_text("raise SystemExit('this yaml.py is no package that Paddock needs')")
    arguments = ["hydra.searchpath=[pkg://stable_hands.conf]", "experiment=trotting", "compute=serial", "run.dir=run"]
    code = "import sys; sys.path.remove(''); import paddock; sys.exit(paddock.script())"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code, *arguments, "dry_run=true"]
    ended = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "algorithm    stable_hands.search.RandomSearch" in ended.stdout


def test_a_run_is_read_from_any_folder_with_the_modules_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write_sources(tmp_path / "source")
    (source / "poles_of_mine.py").write_text("""
import gymnasium
gymnasium.register("MinePole-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv", max_episode_steps=9)
""")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    tiny = [
        "env.id=poles_of_mine:MinePole-v0",
        "algo.population=4",
        "algo.eval_every_iterations=1",
        "budget.iterations=2",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(source)
        patch.syspath_prepend(source)
        assert call_main(*tiny, "compute=serial", f"run.dir={tmp_path}/run") == 0
    del sys.modules["poles_of_mine"]
    monkeypatch.chdir(tmp_path)
    for command, main in (("evaluate", evaluate.main), ("rerun", rerun.main)):
        monkeypatch.setattr(sys, "argv", [command, "run"])
        assert main() == 0, capfd.readouterr().err
        assert sys.modules.pop("poles_of_mine").__file__ == str(source / "poles_of_mine.py")
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(source)])


def test_a_mirror_of_the_users_own_gets_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_mirror.py").write_text("""
class Slate:
    name, queue_rows, close_timeout_s = "the slate", 10, 5

    def __init__(self, *, run_dir, word: str) -> None:
        self.path, self.word = run_dir / "slate.txt", word

    def open(self, first_step, say):
        self.file = open(self.path, "a")

    def log(self, metrics):
        print(self.word, metrics["iteration"], file=self.file)

    def close(self):
        self.file.close()

    def abandon(self):
        pass
""")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    mirror = "+track.slate={_target_: my_mirror.Slate, word: row}"
    tiny = ["algo.population=4", "budget.iterations=3", "compute=serial", "run.dir=run"]
    assert call_main(*tiny, mirror) == 0
    # The last evaluation has a row of its own.
    assert (tmp_path / "run/slate.txt").read_text().splitlines() == ["row 1", "row 2", "row 3", "row 3"]
    assert call_main(*tiny, "+track.slate={_target_: my_mirror.Slate, wort: row}", "budget.iterations=4") == 2
    assert "track.slate.wort is not a key" in capfd.readouterr().err
