"""The tutorial: the commands of its parts run in order in a copy of its project, and it quotes the project's files."""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, call_main
from test_readme import BLOCK

pytestmark = pytest.mark.xdist_group("tutorial")  # later parts use the runs of earlier ones

TUTORIAL = ROOT / "docs" / "tutorial"
PAGES = sorted(TUTORIAL.glob("[1-6]_*.md"))
SMALL = {  # of an algorithm -> what makes its runs short
    "ppo": ["vec.num_envs=2", "algo.num_steps=8", "algo.minibatch_size=16", "algo.epochs=1", "budget.iterations=4"],
    "es": ["algo.population=4", "algo.hidden_sizes=[4]", "budget.iterations=4", "checkpoint.every_s=0"],
}
EVALUATED = ["algo.eval_every_iterations=2", "algo.eval_episodes=2", "env.max_episode_steps=20"]
KILLED = re.compile(r"(.*) & sleep \d+; kill -9 \$!")
KILL = """
import os, signal, sys
from paddock.launch import prepare
from paddock.session import run_session
experiment = prepare(sys.argv[1:])
plan = experiment.algorithm.plan
def plan_then_die():
    for row in plan():
        if row["iteration"] > 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield row
experiment.algorithm.plan = plan_then_die
run_session(experiment, progress=False)
"""


class Project:
    """A copy of the tutorial's project, in which the parts are played in order."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.played = folder, 0
        shutil.copytree(TUTORIAL / "corridor", folder)

    def play(self, parts: int) -> None:
        """Run the commands of the first parts that have not been run yet."""
        for page in PAGES[self.played : parts]:
            for kind, _, body in BLOCK.findall(page.read_text()):
                for line in body.splitlines() if kind == "bash" else ():
                    self._run(line)
            self.played += 1

    def _run(self, line: str) -> None:
        killed = KILLED.fullmatch(line)
        program, *words = shlex.split(killed[1] if killed else line)
        if program in ("cp", "cd"):
            assert words[-1] == "~/corridor"  # this folder
        elif program == "cmp":
            first, second = ((self.folder / word).read_bytes() for word in words)
            assert first == second, line
        elif killed:
            command = [sys.executable, "-c", KILL, *shrink(words[2:])]
            environment = os.environ | {"PYTHONPATH": str(self.folder)}
            assert subprocess.run(command, cwd=self.folder, env=environment, timeout=240).returncode == -9, line
        elif words[:2] == ["-m", "paddock"]:
            assert call_main(*shrink(words[2:])) == 0, line
        elif words[0] == "-m" and "multirun/slurm" not in words:  # which was not submitted
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", words[1:])
                try:
                    code = importlib.import_module(words[1]).main()
                except SystemExit as ended:
                    code = ended.code
            assert code == ("runs/dask" in words), line  # its status: lost
        elif words[0] != "-m":
            subprocess.run([sys.executable, *words], cwd=self.folder, check=True, timeout=240)


def shrink(words: list[str]) -> list[str]:
    """Return the words of a short run, or of a sweep of few short runs in this process."""
    if "--cfg" in words or "--help" in words:
        return words
    said = " ".join(words)
    if "slurm" in said:
        return [*words, "dry_run=true"]
    words = [
        re.sub(r"^seed=range\((\d+),.*", lambda seeds: f"seed=range({seeds[1]},{int(seeds[1]) + 3})", word)
        for word in words
    ]
    words = [
        re.sub(r"^(algo.learning_rate=[^,()]*),.*", r"\1", word) for word in words if word != "hydra/launcher=local"
    ]
    small = SMALL["es" if "algo=es" in words else "ppo"] + EVALUATED
    place = [] if "compute=" in said else ["compute=serial"]
    place += ["compute.workers=1"] if "compute=dask" in words else []
    place += (
        ["hydra.sweeper.n_trials=1", "hydra.sweeper.finals=0", "hydra.sweeper.held_out=0"] if "optuna" in said else []
    )
    return [*(word for word in words if not word.startswith(("budget.", "checkpoint."))), *small, *place]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("tutorial") / "corridor")


@pytest.mark.parametrize("part", range(1, len(PAGES) + 1), ids=[page.stem for page in PAGES])
def test_the_commands_of_a_part_work(part: int, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.folder)
    monkeypatch.syspath_prepend(project.folder)
    project.play(part)


def test_the_code_on_the_pages_is_the_projects() -> None:
    assert len(PAGES) == 6
    quoted = [block for page in PAGES for block in BLOCK.findall(page.read_text()) if block[1]]
    assert len(quoted) >= 3
    for _, name, body in quoted:
        assert _strip(body) in _strip((TUTORIAL / "corridor" / name).read_text()), name


def _strip(code: str) -> str:
    """Strip the indentation, which methods on a page lack."""
    return "".join(line.lstrip() for line in code.splitlines(keepends=True))
