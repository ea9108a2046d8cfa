"""Bad input fails at the boundary: one line on the error stream, exit code 2, and nothing left behind."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, TINY, Command, call_main
from refusals import Refused, refused_fixture  # noqa: F401

from paddock import COMMANDS
from paddock.envs.errors import DISK_FULL, EXTRAS

ARGUMENTS = {
    # what is given: parts that the line must have
    "algo=ess": ["algo=ess", "did you mean 'es'?"],
    "algos=es": ["algos is not a", "did you mean 'algo'?"],
    "env=CartPole-v1": ["did you mean 'cartpole'?", "env=gymnasium env.id=CartPole-v1"],
    "compute=4": ["must be a string or a list"],
    "~algo": ["algo is missing"],
    "track=[wandb,nope]": ["nope is not an option of track", "did you mean 'none'?"],
    "env.wrappers={}": ["env.wrappers={} must be a list"],
    "env@algo=cartpole": ["env@...: the package of a group is fixed"],
    "hydra.sweeper.n_trials=5": ["is not a key of hydra.sweeper without a sweep", "sweep=ppo"],
    "algo.strategy.sigma=1e308": ["algo.strategy.sigma=1e+308 must be positive and at most 1e6"],
    "algo.strategy.learning_rate=1e38": ["algo.strategy.learning_rate=1e+38 must be positive and at most 1e6"],
    "track.wandb.project=x": ["belongs to track=wandb"],
    "env.metrics=[env_id]": ["env_id is reserved"],
    "run.dir=$HOME/x": ["run.dir=$HOME/x contains an unexpanded shell variable"],
    "+algo=es": ["appears more than once"],
    "algo.sigm=1": ["algo.sigm is not a key", "did you mean 'algo.strategy.sigma'?"],
    "+algo.strategy.sigma=1": ["already at 'algo.strategy.sigma'"],
    "sigma=1": ["sigma is not a key", "did you mean 'algo.strategy.sigma'?"],
    "env.kwargs.g=1": ["env.kwargs.g is not a key", "add it with +env.kwargs.g=..."],
    "algo.foo=1": ["algo.foo is not a key of algo; known: activation, "],
    "total_timesteps=100": ["did you mean 'budget.steps'?"],
    "algo.population=abc": ["algo.population='abc'", "must be an integer"],
    "algo.hidden_sizes=[a]": ["must be an integer or a list of integers"],
    "algo.hidden_sizes=[1000000,1000000]": ["algo.hidden_sizes=[1000000, 1000000]", "GB of weights", "reduce it"],
    "algo.normalize_observations=1": ["algo.normalize_observations=1", "must be true or false"],
    "algo.population=7": ["algo.population=7 is odd", "try 8"],
    "algo.strategy.sigma=-1": ["algo.strategy.sigma=-1 must be positive", "try 0.1"],
    "~algo._target_": ["algo has no _target_", "`_target_: my_package.es.MyES`"],
    "algo._target_=no.Such": ["algo._target_=no.Such cannot be imported", "install"],
    "algo._target_=paddock.algos.es": ["algo._target_=paddock.algos.es is a module", "use a class"],
    "seed=-1": ["seed=-1 must be in [0, 2^63)"],
    "seed=1,2": ["seed=1,2 has several values; add --multirun", "seed=[1,2]"],
    "resume=first": ["resume takes 'last' or null", "use run.dir=RUN"],
    "budget.iterations=0": ["budget.iterations=0 must be positive"],
    f"budget.steps=1{'0' * 320}": ["must be positive and below 1e300, or null"],
    "vec.num_envs=0": ["vec.num_envs=0", "between 1 and 4096"],
    "run.name=a/b": ["run.name=a/b", "run.root="],
    "hydra.run.dir=here": ["hydra.run.dir=here would be ignored", "run.dir=here"],
    "run.dir=": ["run.dir= is empty"],
    "algo.hidden_sizes=[1,": ["cannot read the argument 'algo.hidden_sizes=[1,'", "write key=value"],
    "es": ["cannot read the argument 'es'", "write key=value, such as algo=es"],
    "doctor": ["cannot read the argument 'doctor'", "python -m paddock.doctor?"],
    "algo.strategy.sigma=${algo.sigm}": ["algo.strategy.sigma: Interpolation key 'algo.sigm' not found"],
    "--lr=3": ["--lr is not a flag", "as in algo.learning_rate=..."],
    "--help alg": ["alg is not a group", "did you mean 'algo'?"],
    "--help algo=ppoo": ["algo=ppoo is not an option of algo", "did you mean 'ppo'?"],
    "--config-path nowhere": ["--config-path=nowhere is not a folder", "--config-dir"],
    "--multirun --cfg job": ["are mutually exclusive"],
    "hydra.searchpath=[nowhere]": ["hydra.searchpath=nowhere is not a folder", "file:///a/folder"],
    "hydra/sweeper=optuna": ["hydra/sweeper=optuna is for sweeps", "add --multirun"],
    "algo=ppo env=cartpole algo.num_steps=100000000000": [" of 8 rows need ", "use at most "],
    "env.id=BipedalWalker-v33": ["env.id=BipedalWalker-v33", "did you mean 'BipedalWalker-v3'?"],
    "env=gymnasium": ["env.id has no value", "env.id=..."],
    "env.id=notapackage:X-v0": ["env.id=notapackage:X-v0", "run in the folder that contains notapackage"],
    "env.id=ale_py:ALE/Pong-v5": ["No module named 'ale_py'", "pip install 'paddock[atari]'"],
    "env.id=./myenv.py:Corridor": ["env.id takes MODULE:NAME, not a path", "env.id=myenv:Corridor"],
    "env.id=myenv.py": ["env.id takes MODULE:NAME, not a path", "env.id=myenv:ClassName"],
    "+env.kwargs.foo=1": ["CartPole-v1 rejects env.kwargs={'foo': 1}"],
    "env.without=[mission]": ["env.without=mission is not a part of the space"],
    "env.wrappers=[{_target_: no.such.Thing}]": ["no.such.Thing cannot be imported", "install its package"],
    "env.wrappers=[{_target_: gymnasium.wrappers.TimeLimit}]": ["TimeLimit rejects {}", "max_episode_steps"],
    "run.dir=file": ["file is a file", "choose another"],
    "run.dir=full": ["full is not empty and contains no run", "choose"],
    "run.dir=/proc/run": ["run.dir=/proc/run cannot be written", "choose another"],
    "resume=last": ["resume=last: no run in runs", "start one"],
}


def split(arguments: str) -> list[str]:
    """At spaces, but not inside of brackets."""
    return re.findall(r"\S*\[.*\]|\S*{.*}|\S+", arguments)


def test_each_mistake_is_named_with_what_is_allowed(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine too")
    for arguments, parts in ARGUMENTS.items():
        line = refused(*split(arguments))
        assert all(part in line for part in parts), (arguments, line)


FILES = {
    # an experiment of the user's own: parts that the line must have
    "budgt: {iterations: 3}": ["budgt is not a key of the configuration", "did you mean 'budget'?"],
    "algo: {sigma: 3}": ["algo.sigma is not a key of algo", "did you mean 'strategy.sigma'?"],
    "env: {kwarg: {}}": ["env.kwarg is not a key of env", "did you mean 'kwargs'?"],
    "hydra: {swep: {dir: x}}": ["Key 'swep' not in 'HydraConf'"],
    "budget: 3": ["budget=3 must be a mapping"],
    "defaults: [override /algo: ess]": ["algo=ess", "did you mean 'es'?"],
    "algo: [3": ["experiment/mine.yaml, line 3"],
    "algo: {sigma: 1, sigma: 2}": ["experiment/mine.yaml, line 2", "duplicate key sigma"],
}


def test_each_mistake_in_a_file_is_named_with_what_is_allowed(tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "conf" / "experiment" / "mine.yaml"
    file.parent.mkdir(parents=True)
    for text, parts in FILES.items():
        file.write_text(f"# @package _global_\n{text}\n")
        line = refused("--config-dir", "conf", "experiment=mine")
        assert all(part in line for part in parts), (text, line)
    file.write_text("algo: {strategy: {sigma: 0.3}}")
    assert "start the file that experiment= selects with the line `# @package _global_`" in refused(
        "--config-dir", "conf", "experiment=mine"
    )


# Packages

MISSING = {
    "Box2D": (["env=bipedal"], 'pip install "gymnasium[box2d]"'),
    "minigrid": (["env=minigrid"], "pip install 'paddock[minigrid]'"),
    "pettingzoo": (["env=multiwalker"], "pip install 'paddock[multiagent]'"),
    "wandb": (["track=wandb"], "pip install wandb"),
}
BUILT_ON_IT = ("gymnasium.envs.box2d", "paddock.envs.bipedal.walker", "paddock.envs.bindings", "pettingzoo.")


@pytest.mark.parametrize("package", MISSING)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    for name in [name for name in sys.modules if name.startswith(BUILT_ON_IT)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # which is how Python marks what cannot be imported
    arguments, remedy = MISSING[package]
    assert remedy in refused(*arguments, "dry_run=true")


def test_the_extras_that_messages_name_exist() -> None:
    sources = [path.read_text() for floor in ("platform", "envs") for path in (ROOT / floor).rglob("*.py")]
    named = {extra for text in sources for extra in re.findall(r"\binstall\(['\"](\w+)", text)} | {*EXTRAS.values()}
    assert named >= {"export", "multiagent", "remote"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert named <= project["optional-dependencies"].keys()


EARLY = """
import importlib, sys
from paddock import COMMANDS

def call(module, *arguments):
    sys.argv = [module, *arguments]
    code = importlib.import_module(module).main()
    assert code == (0 if "--help" in arguments else 2), (module, arguments, code)

call("paddock.launch", "--help")
call("paddock.launch", "algo=ess")
assert "gymnasium" not in sys.modules
call("paddock.launch", "algo=ppo", "algo.lr=1")
for name in COMMANDS:
    call(f"paddock.{name}", "--help")
for name in {*COMMANDS} - {"doctor"}:
    call(f"paddock.{name}", "nowhere")
print(*sys.modules, file=sys.__stderr__)
"""
HEAVY = (
    "av",
    "dask",
    "distributed",
    "matplotlib",
    "optuna",
    "polars",
    "rich",
    "scipy",
    "submitit",
    "tensorboard",
)


@pytest.mark.real_start
def test_help_and_errors_do_not_import_heavy_libraries(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", EARLY]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    *said, imported = ended.stderr.splitlines()
    assert "paddock.report" in imported.split() and {*HEAVY, "torch", "wandb"}.isdisjoint(imported.split())
    assert len(said) == len(COMMANDS) + 1 and all(line.startswith("paddock: ") for line in said)
    assert not any(tmp_path.iterdir())


def test_the_command_itself_answers_in_one_line_with_exit_code_2(start: Callable[..., Command], tmp_path: Path) -> None:
    code, out, err = start("algo.population=7", f"run.dir={tmp_path}/run").wait()
    assert (code, out) == (2, "")
    assert err == "paddock: algo.population=7 is odd, but members come in pairs; try 8\n"
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--help"], ["-m", "seed=1,2", "dry_run=true"]])
def test_a_full_disk_behind_the_output_is_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert call_main(*arguments) == DISK_FULL
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("paddock: cannot write the output (No space left on device)")


# Sweeps

SWEEPS = {
    # what is given: a part that the line must have
    "seed=1,2 algo.population=8,7": "algo.population=7 is odd",
    "seed=1,2 +algo.sigm=1,2": "algo.sigm is not a key of algo",
    "seed=1,2 run.dir=here": "here; remove run.dir and resume",
    "seed=1,1": "the sweep has 2 equal runs",
    "seed=1,2 run.root=/tmp": "run.root=/tmp would be ignored; the runs of a sweep are kept in hydra.sweep.dir=",
    "seed=1,2 hydra.sweep.dir=/proc/here": "hydra.sweep.dir=/proc/here cannot be written",
    "seed=range(3,3)": "seed=range(3,3) lists no values, which a grid needs; list values",
    "algo.strategy.sigma=interval(0,1)": "lists no values, which a grid needs; list values",
}


def test_a_sweep_with_one_bad_value_fails_before_its_first_job(refused: Refused) -> None:
    for arguments, part in SWEEPS.items():
        tiny = [word for word in TINY if "algo=" not in arguments or not word.startswith("algo")]
        assert part in refused("--multirun", *tiny, "compute=serial", "budget.iterations=1", *split(arguments))


def test_a_large_sweep_is_checked_for_every_single_value(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.config.grid.CHECKED_JOBS", 3)
    assert "algo.population=7 is odd" in refused("--multirun", "seed=range(0,100)", "algo.population=7,8")


@pytest.mark.parametrize("launcher", ["basic", "local"])
def test_a_dry_run_of_a_sweep_shows_every_job_and_leaves_no_trace(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call_main("-m", *TINY, "compute=serial", f"hydra/launcher={launcher}", "seed=1,2", "dry_run=true") == 0
    out, err = capfd.readouterr()
    assert len(re.findall(r"^folder .*/[01]$" if launcher == "basic" else "^would run .*seed=[12]", out, re.M)) == 2
    assert err == "" and not any(tmp_path.iterdir())
