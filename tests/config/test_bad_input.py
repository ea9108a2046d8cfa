"""Bad input dies at the border: one line on the error stream, exit code 2, and nothing left behind."""

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
from paddock.config.command import open_standard_files
from paddock.envs.errors import EXTRAS, NO_ROOM
from paddock.runs import late

# The command line and the files it names

LOG = "hydra/job_logging=default hydra.job_logging.handlers.file.filename"
ARGUMENTS = {
    # what is given: parts that the line must have
    "algo=ess": ["algo=ess", "did you mean 'es'?"],
    "env=bipedall": ["env=bipedall", "did you mean 'bipedal'?"],
    "experiment=es_cartpol": ["experiment=es_cartpol", "did you mean 'es_cartpole'?"],
    "hydra/launcher=basik": ["hydra/launcher=basik", "did you mean 'basic'?"],
    "algos=es": ["algos is not a", "did you mean 'algo'?"],
    "algo=": ["algo= is not an option", "known: a2c, apex, ddpg, dqn, es, pbt, poet, ppo, pqn, r2d2, sac, td3"],
    "algo=null": ["algo=null is not an option of algo; ", "known: a2c, "],
    "compute=4": ["compute=4 is not an option of compute; known: dask, "],
    "algo=[]": ["algo is missing", "leave out ~algo or algo=[]"],
    "~run.dir": ["~run.dir deletes no key that is null, or has another value than is said; leave it out"],
    "run.dir=~/mine": ["cannot read the argument 'run.dir=~/mine'; write run.dir=$HOME/mine"],
    "~algo": ["algo is missing", "leave out ~algo"],
    "algo.sigm=1": ["algo.sigm is not a key", "did you mean 'algo.sigma'?"],
    "sigma=1": ["sigma is not a key", "did you mean 'algo.sigma'?"],
    "budget.iteration=3": ["budget.iteration is not a key", "did you mean 'budget.iterations'?"],
    "hydra.swep.dir=x": ["hydra.swep.dir", "did you mean 'hydra.sweep.dir'?"],
    "+algo.sigm=1": ["algo.sigm is not a key of algo", "did you mean 'sigma'?"],
    "+algo.sigma=1": ["algo.sigma has a value", "without the +"],
    "~algo.sigm": ["algo.sigm is not a key", "did you mean 'algo.sigma'?"],
    "+sed=1": ["sed is not a section", "did you mean 'seed'?"],
    "env.kwargs.g=1": ["env.kwargs.g is not a key", "+env.kwargs.g=... would add it"],
    "algo.population=abc": ["algo.population='abc'", "allowed: a whole number"],
    "algo.population=2.5": ["algo.population=2.5", "allowed: a whole number"],
    "algo.population=true": ["algo.population=True", "allowed: a whole number"],
    "algo.hidden=3": ["algo.hidden=3", "allowed: a list, each a whole number"],
    "algo.hidden=[a]": ["algo.hidden=['a']", "allowed: a list, each a whole number"],
    "algo.hidden=[0]": ["algo.hidden=[0]", "positive"],
    "algo.hidden=[1000000,1000000]": ["algo.hidden=[1000000, 1000000]", "GB of weights", "take less"],
    f"algo.hidden=[1{'0' * 320}]": ["has over a billion GB of weights", "take less"],
    "algo.noise=white": ["algo.noise='white'", "allowed: philox, table"],
    "algo.normalize_observations=1": ["algo.normalize_observations=1", "allowed: true or false"],
    "algo.sigma=nan": ["algo.sigma=nan", "allowed: a number"],
    "algo.population=7": ["algo.population=7 is odd", "try 8"],
    "algo.population=0": ["algo.population=0", "at least 2"],
    "algo.population=1000000000000": ["algo.population=1000000000000", "at most 10 million"],
    "algo.sigma=-1": ["algo.sigma=-1 must be positive", "try 0.1"],
    "algo.observation_sampling=2": ["algo.observation_sampling=2", "(0, 1]"],
    "~algo._target_": ["algo has no _target_", "`_target_: my_package.es.MyES`"],
    "~env._target_": ["env has no _target_", "`_target_: paddock.envs.spec.EnvSpec`"],
    "env._target_=7": ["env._target_=7 names no class"],
    "algo._target_=no.Such": ["algo._target_=no.Such cannot be imported", "install"],
    "algo._target_=paddock.algos.es.EZ": ["algo._target_=paddock.algos.es.EZ cannot be imported", "did you mean 'ES'?"],
    "algo._target_=paddock.algos.es": ["algo._target_=paddock.algos.es is a module", "name a class"],
    "+track.mirrors.mine._target_=fractions.Fraction": [
        "track.mirrors.mine: Fraction lacks name, queue_rows, close_timeout_s, open, log, close, abandon; a mirror has",
    ],
    "+track.mirrors.mine._target_=collections.OrderedDict": [
        "track.mirrors.mine: nobody can say what OrderedDict takes",
        "written in Python",
    ],
    "seed=-1": ["seed=-1", "whole number"],
    "seed=1-3": ["seed='1-3' must be a whole number in [0, 2^63); several are a sweep: --multirun seed=1,2,3"],
    "algo=es algo=ppo algo.foo=1": ["algo.foo is not a key of algo=ppo; known: activation, "],
    "seed=true": ["seed=True", "whole number"],
    "resume=first": ["resume='first'", "allowed: last, null"],
    "dry_run=3": ["dry_run=3", "true or false"],
    "budget.iterations=0": ["budget.iterations=0 must be positive"],
    "budget.steps=0.5": ["budget.steps=0.5", "allowed: a whole number or null"],
    "checkpoint.keep=0": ["checkpoint.keep=0", "at least 1"],
    "checkpoint.every_s=-1": ["checkpoint.every_s=-1", "negative"],
    "vec.num_envs=0": ["vec.num_envs=0", "between 1 and 4096"],
    "vec._target_=paddock.envs.vector.Seril": ["vec._target_=paddock.envs.vector.Seril", "did you mean 'Serial'?"],
    "compute.workers=0": ["compute.workers=0", "between 1 and 1024"],
    "compute.retries=-1": ["compute.retries=-1", "between 0 and 100"],
    "compute.task_timeout_s=0": ["compute.task_timeout_s=0 must be positive"],
    "run.name=a/b": ["run.name=a/b", "run.root="],
    "run.name=true": ["run.name=True has the wrong type; allowed: text or a number or null"],
    "run.name=inf": ["run.name=inf has the wrong type"],
    "algo.name=a/b": ["algo.name='a/b' must be text without '/', a number, or null"],
    "algo.name=true dry_run=true": ["algo.name=True must be text"],
    "algo.name=nan dry_run=true": ["algo.name=nan must be text"],
    "algo.name={a: 1}": ["algo.name={'a': 1} must be text"],
    "resume=last run.dir=runs/mine": ["run.dir=runs/mine is gone on with if a run is there; leave out resume=last"],
    "algo.hidden=[1,": ["cannot read the argument 'algo.hidden=[1,'", "write key=value"],
    "algo.sigma=uniform(0,1)": ["(Unknown function 'uniform'); write interval(LOW, HIGH)"],
    "algo.sigma=interval(0.1)": ["(missing a required argument: 'end'); write interval(LOW, HIGH)"],
    "algo.sigma=sqrt(2)": ["(Unknown function 'sqrt'); write interval(LOW, HIGH) or tag"],
    "algo.hidden=(8,8)": ["cannot read the argument 'algo.hidden=(8,8)'", "a list as [1,2]"],
    "es": ["cannot read the argument 'es'", "write key=value, such as algo=es"],
    "algo es": ["cannot read the argument 'algo'", "write algo=NAME"],
    "train": ["cannot read the argument 'train'", "write key=value"],
    "doctor": ["cannot read the argument 'doctor'", "python -m paddock.doctor?"],
    "stats": ["cannot read the argument 'stats'", "python -m paddock.status?"],
    "env.training=[0]": ["env.training=[0] has the wrong type", "allowed: a mapping, as env.training={NAME: VALUE}"],
    "algo=poet env=poles env.wrappers=[]": ["env=acrobot, ", " others have env.wrappers", "known: max, "],
    "seed=1,2": ["seed=1,2 is several values; add --multirun", "seed=[1,2]"],
    "algo=PPO": ["algo=PPO is not an option", "did you mean 'ppo'?"],
    "compute=gpu": ["compute=gpu is not an option", "known: dask, local, serial, slurm"],
    "env=CartPole-v1": ["did you mean 'cartpole'?", "env=gymnasium env.id=CartPole-v1"],
    "+algo=es": ["+algo=es adds a group that is there already", "leave out the +: algo=es"],
    "+experiment=es_cartpole": ["leave out the +: experiment=es_cartpole"],
    "+agent=es": ["agent is not a section", "did you mean 'algo'?"],
    "agent=es": ["agent is not a", "did you mean 'algo'?"],
    "algo.lr=0.1": ["algo.lr is not a key", "did you mean 'algo.learning_rate'?"],
    "+algo.lr=0.1": ["algo.lr is not a key", "did you mean 'learning_rate'?"],
    "trainer.lr=0.1": ["trainer.lr is not a key", "did you mean 'algo.learning_rate'?"],
    "total_timesteps=100": ["did you mean 'budget.steps'?"],
    "algo.gamma=0.9": ["algo=a2c, algo=apex, ", ", algo=ppo", " have algo.gamma", "known: activation, "],
    "algo=ppo env=cartpole algo.num_steps=100000000000": [
        "algo.num_steps=100000000000 of 8 rows take ",
        "take at most ",
    ],
    f"algo=ppo env=cartpole algo.num_steps=1{'0' * 320}": [" of 8 rows take over a billion GB, ", "take at most "],
    f"algo=dqn env=cartpole algo.capacity=1{'0' * 320}": [" takes over a billion GB in ", "take at most "],
    "algo=ppo algo.discount=0.9": ["did you mean 'algo.gamma'?"],
    "algo.foo=1": ["algo.foo is not a key of the configuration; known: activation, "],
    "env.foo=1": ["env.foo is not a key of the configuration; known: action_bounds, bounds, fresh, id, "],
    f"budget.steps=1{'0' * 320}": ["must be positive and below 1e300, or null"],
    f"budget.minutes=1{'0' * 320}": ["has the wrong type; allowed: a number"],
    "budget.return=abc": ["budget.return='abc' has the wrong type"],
    "hydra.run.dir=here": ["hydra.run.dir=here would be ignored", "run.dir=here"],
    "run.dir=": ["run.dir= names no folder"],
    "resume=runs/7": ["resume='runs/7' is unknown", "run.dir=RUN goes on with RUN"],
    "--experimental-rerun job.pickle": ["--experimental-rerun is not supported", "python -m paddock.rerun"],
    "--seed 3": ["--seed is not a flag", "without dashes, as in seed=..."],
    "--lr=3": ["--lr is not a flag", "as in algo.learning_rate=..."],
    "--config-path conf": ["--config-path=conf is not a folder", "--config-dir"],
    "algo.sigma=${algo.sigm}": ["algo.sigma: Interpolation key 'algo.sigm' not found"],
    "--sweep": ["--sweep", "see --help"],
    "--cfg all_of_it": ["all_of_it", "'job'"],
    "--resolve": ["--resolve", "--cfg"],
    "--multirun seed=1,2 hydra.output_subdir=.hydra": [
        "hydra.output_subdir",
        "would have Hydra put files",
        "leave them out",
    ],
    "--multirun seed=1,2 hydra/job_logging=default": [
        "hydra/job_logging",
        "would have Hydra put files",
        "leave them out",
    ],
    f"--multirun seed=1,2 {LOG}=log hydra.job.chdir=true": ["would have Hydra put files"],
    f"{LOG}=nowhere/log": [
        "hydra/job_logging",
        "no log: Unable to configure handler 'file' ([Errno 2] No such file or",
    ],
    f"{LOG}=3": ["Unable to configure handler 'file' (expected str, bytes or os.PathLike object, not int)"],
    f"{LOG}={'x' * 300}/log": ["Unable to configure handler 'file' ([Errno 36] File name too long"],
    f"{LOG}=.": ["Unable to configure handler 'file' ([Errno 21] Is a directory"],
    "hydra/job_logging=default hydra.job_logging.handlers=3": ["hydra/job_logging", "make no log: 'int' object is not"],
    "--multirun --cfg job": ["Only one of"],
    "--config-dir nowhere": ["nowhere"],
    "hydra.searchpath=[nowhere]": ["hydra.searchpath=nowhere is not a folder", "file:///a/folder"],
    "hydra.searchpath=[pkg://no_such.conf]": ["hydra.searchpath=pkg://no_such.conf is no package", "import from here"],
    "hydra.searchpath=[pkg://xml.etree,pkg://sphinxless]": ["hydra.searchpath=pkg://sphinxless is no package"],
    "--config-name nothing": ["nothing"],
}
ENVIRONMENTS = {
    "env.id=BipedalWalker-v33": ["env.id=BipedalWalker-v33", "did you mean 'BipedalWalker-v3'?"],
    "env.id=CartPol-v1": ["env.id=CartPol-v1", "did you mean 'CartPole-v1'?"],
    "env.id=Cart!": ["env.id=Cart!"],
    "env.id=3": ["env.id=3", "allowed: text"],
    "env=gymnasium": ["env.id has no value", "env.id=..."],
    "env.id=notapackage:X-v0": ["env.id=notapackage:X-v0", "start where notapackage lies"],
    "env.id=ale_py:ALE/Pong-v5": [
        "env.id=ale_py:ALE/Pong-v5",
        "No module named 'ale_py'",
        "pip install 'paddock[atari]'",
    ],
    "env.id=Foo-v1": ["env.id=Foo-v1", "gymnasium.pprint_registry() lists"],
    "env.id=ALE/Pong-v5": ["env.id=ALE/Pong-v5", "pip install ale-py", "env.id=ale_py:ALE/Pong-v5"],
    "env.kwargs=3": ["env.kwargs=3", "a mapping"],
    "env.max_episode_steps=0": ["env.max_episode_steps=0", "at least 1"],
    "algo=ppo +env.training.kwargs.foo=1": ["paddock: env.training.kwargs={'foo': 1} is refused by CartPole-v1"],
    "algo=ppo env.max_episode_steps=9 +env.kwargs.foo=1 +env.training.kwargs.sutton_barto_reward=true": [
        "env.kwargs and env.training.kwargs={'foo': 1, 'sutton_barto_reward': True} is refused by CartPole-v1"
    ],
    "algo=ppo +env.training.wrappers=[{_target_: builtins.id}]": [
        "env.training.wrappers: builtins.id does not give an"
    ],
    "+env.kwargs.foo=1": ["env.kwargs={'foo': 1} is refused by CartPole-v1"],
    "env=lunarlander +env.kwargs.gravity=5": ["env.kwargs={'gravity': 5} is refused", "between -12 and 0"],
    "env=snake env.kwargs.absence=null": ["absence=None is not a whole number: it must be between 1 and 1000 steps"],
    "env=snake env.kwargs.food=1.5": ["food=1.5 is not a whole number", "between 1 and 512 pieces"],
    "env=snake env.kwargs.snakes=true": ["snakes=True is not a whole number", "between 2 and 16"],
    "env=spread env.kwargs.local_ratio=null": ["local_ratio=None is not a number: it must lie in [0, 1]"],
    "env=tag env.kwargs.max_cycles=1.5": ["max_cycles=1.5 is not a whole number", "25 suits most"],
    "env=recall env.kwargs.delay=1.5": ["delay=1.5 must be a whole number"],
    "env.id=paddock.envs.sanity:paddock/Cutoff-v0 +env.kwargs.terminates=1": ["terminates=1 must be true or false"],
    "env.id=paddock.envs.sanity:paddock/Aim-v0 +env.kwargs.low=null": ["low=None must be a number"],
    "env.without=3": ["env.without=3", "a list"],
    "env.without=[mission]": ["env.without=mission is no part of the space"],
    "env.bounds=3": ["env.bounds=3", "a mapping"],
    "env.action_bounds=3": ["env.action_bounds=3", "a mapping"],
    "+env.bounds.mission=3": ["env.bounds.mission is no text, sequence or graph that takes a bound"],
    "env.wrappers=3": ["env.wrappers=3", "a list"],
    "env.wrappers=[3]": ["env.wrappers=[3]", "a list, each a mapping"],
    "env.wrappers=[{frames: 3}]": ["env.wrappers: {'frames': 3} lacks '_target_'"],
    "env.wrappers=[{_target_: no.such.Thing}]": ["no.such.Thing cannot be imported", "install the package"],
    "env.wrappers=[{_target_: gymnasium.wrappers.TimeLimitt}]": ["TimeLimitt", "did you mean 'TimeLimit'?"],
    "env.wrappers=[{_target_: gymnasium.wrappers.TimeLimit}]": ["TimeLimit refuses {}", "max_episode_steps"],
    "env.wrappers=[{_target_: builtins.id}]": ["builtins.id does not give an environment", "name a wrapper"],
    "env.wrappers=[{_target_: gymnasium.wrappers.TransformReward, f: 1}]": ["TransformReward refuses {'f': 1}"],
}
PLACES = {
    "run.dir=file": ["run.dir=file is a file", "choose another"],
    "run.dir=full": ["run.dir=full is not empty and holds no run", "choose"],
    "run.dir=file/run": ["run.dir=file/run cannot be written", "choose another"],
    "run.root=file": ["run.dir=file/", "cannot be written", "choose another"],
    "run.dir=/proc/run": ["run.dir=/proc/run cannot be written", "choose another"],
    f"run.dir={'x' * 300}": ["cannot be written (File name too long)"],
    "resume=last": ["resume=last: there is no run in runs", "start one"],
}


def split(arguments: str) -> list[str]:
    """At spaces, but not inside of brackets."""
    return re.findall(r"\S*\[.*\]|\S*{.*}|\S+", arguments)


@pytest.mark.parametrize("arguments", [*ARGUMENTS, *ENVIRONMENTS])
def test_a_mistake_is_named_with_what_is_allowed(arguments: str, refused: Refused) -> None:
    line = refused(*split(arguments))
    for part in (ARGUMENTS | ENVIRONMENTS)[arguments]:
        assert part in line


@pytest.mark.parametrize("arguments", PLACES)
def test_a_place_that_cannot_hold_a_run_is_named(arguments: str, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine too")
    line = refused(*split(arguments))
    for part in PLACES[arguments]:
        assert part in line


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_closed_folder_is_named(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "closed").mkdir(0o500)
    assert "run.dir=closed/run cannot be written" in refused("run.dir=closed/run")


FILES = {
    # an experiment of the user's own: parts that the line must have
    "budgt: {iterations: 3}": ["budgt is not a section", "did you mean 'budget'?"],
    "sed: 3": ["sed is not a section", "did you mean 'seed'?"],
    "algo: {sigm: 3}": ["algo.sigm is not a key of algo", "did you mean 'sigma'?"],
    "env: {kwarg: {}}": ["env.kwarg is not a key of env", "did you mean 'kwargs'?"],
    "vec: {numenvs: 3}": ["vec.numenvs is not a key of vec", "did you mean 'num_envs'?"],
    "compute: {worker: 3}": ["compute.worker is not a key of compute", "did you mean 'workers'?"],
    "budget: {iters: 3}": ["budget.iters is not a key of budget", "did you mean 'iterations'?"],
    "run: {nam: x}": ["run.nam is not a key of run", "did you mean 'name'?"],
    "checkpoint: {evry_s: 3}": ["checkpoint.evry_s is not a key of checkpoint", "did you mean 'every_s'?"],
    "track: {miror: {}}": ["track.miror is not a key of track", "did you mean 'mirrors'?"],
    "defaults: [override /track: wandb]\ntrack: {mirrors: {wandb: {projct: x}}}": [
        "track.mirrors.wandb.projct is not a key of track.mirrors.wandb",
        "did you mean 'project'?",
    ],
    "hydra: {swep: {dir: x}}": ["Key 'swep' not in 'HydraConf'"],
    "budget: 3": ["budget=3 is not a mapping"],
    "track: {mirrors: 3}": ["track.mirrors=3", "a mapping"],
    "track: {mirrors: {mine: 3}}": ["track.mirrors.mine=3 is not a mapping"],
    "defaults: [override /algo: ess]": ["algo=ess", "did you mean 'es'?"],
    "defaults: [override /algos: es]": ["algos is not a group", "did you mean 'algo'?"],
    "defaults: 3": ["defaults must be a list"],
    "- 3": ["'experiment/mine'"],
    "algo: [3": ["experiment/mine.yaml, line 3"],
    "algo: {sigma: 1, sigma: 2}": ["experiment/mine.yaml, line 2", "duplicate key sigma"],
    "algo: {sigma: '${nope}'}": ["nope"],
}


@pytest.mark.parametrize("text", FILES)
def test_a_mistake_in_a_file_is_named_with_what_is_allowed(text: str, tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "conf" / "experiment" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(f"# @package _global_\n{text}\n")
    line = refused("--config-dir", "conf", "experiment=mine")
    for part in FILES[text]:
        assert part in line


@pytest.mark.parametrize("text", ["algo: {sigma: 0.3}", "defaults: [override /algo: ppo]\nalgo: {gamma: 0.9}"])
@pytest.mark.parametrize("group", ["experiment", "sweep"])
def test_a_file_of_keys_that_are_not_everybodys_is_told_its_first_line(
    text: str, group: str, tmp_path: Path, refused: Refused
) -> None:
    file = tmp_path / "conf" / group / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    line = refused("--config-dir", "conf", f"{group}=mine")
    assert f"the file that {group}= chooses has to begin with the line `# @package _global_`" in line


def test_a_mistake_in_an_option_of_the_users_own_is_named(tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "conf" / "env" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("_target_: paddock.envs.spec.EnvSpec\nid: CartPole-v1\nkwargs: {}\nwrapers: []\n")
    assert "env.wrapers is not a key of env; did you mean 'wrappers'?" in refused("--config-dir", "conf", "env=mine")
    file.write_text("_target_: paddock.envs.spec.EnvSpec\nid: CartPole-v1\nkwargs: {}\n")
    assert "env.wrappers is missing" in refused("--config-dir", "conf", "env=mine")
    file.write_text("defaults: [mine]\n")
    assert "lead back to that file; name another there" in refused("--config-dir", "conf", "env=mine")
    file.write_bytes("id: Gehäuse-v1\n".encode("latin-1"))
    assert f"cannot read the YAML {file}: 'utf-8' codec" in refused("--config-dir", "conf", "env=mine")


# Packages

MISSING = {
    "Box2D": (["env=bipedal"], 'pip install "gymnasium[box2d]"'),
    "ale_py": (["env=atari_nature"], "pip install 'paddock[atari]'"),
    "crafter": (["env=crafter"], "pip install 'paddock[crafter]'"),
    "minigrid": (["env=minigrid"], "pip install 'paddock[minigrid]'"),
    "mujoco": (["env.id=Humanoid-v5"], 'pip install "gymnasium[mujoco]"'),
    "nle": (["env=nethack"], "pip install --no-deps nle"),
    "pettingzoo": (["env=multiwalker"], "pip install 'paddock[multiagent]'"),
    "tensorboard": (["track=tensorboard"], "pip install tensorboard"),
    "wandb": (["track=wandb"], "pip install wandb"),
}


BUILT_ON_IT = (
    "gymnasium.envs.box2d",
    "gymnasium.envs.mujoco",
    "paddock.envs.bipedal.walker",
    "paddock.envs.bindings",
    "pettingzoo.",
)


@pytest.mark.parametrize("package", MISSING)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    for name in [name for name in sys.modules if name.startswith(BUILT_ON_IT)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # which is how Python marks what cannot be imported
    arguments, remedy = MISSING[package]
    assert remedy in refused(*arguments, "dry_run=true")
    assert remedy in refused(*arguments, "compute=serial", "budget.iterations=1")


def test_the_extras_that_messages_name_are_there() -> None:
    sources = [path.read_text() for floor in ("platform", "envs") for path in (ROOT / floor).rglob("*.py")]
    named = {extra for text in sources for extra in re.findall(r"\binstall\(['\"](\w+)", text)} | {*EXTRAS.values()}
    assert named >= {"export", "mlflow", "multiagent", "remote"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert named <= project["optional-dependencies"].keys()


def test_what_an_algorithm_of_ones_own_cannot_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    (tmp_path / "own_room").mkdir()
    (tmp_path / "own_room" / "__init__.py").touch()
    (tmp_path / "own_room" / "own_algo.py").write_text("from paddock.algos.es import Ess")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    told = refused("algo._target_=own_room.own_algo.Own", "dry_run=true")
    assert "algo._target_=own_room.own_algo.Own cannot be imported" in told and "cannot import name 'Ess'" in told


@pytest.mark.parametrize("arguments", ["--help", "algo=ess", "algo.sigm=1", "algo.population=7", "run.dir=/proc/x"])
def test_help_and_errors_do_not_wait_for_what_they_do_not_need(arguments: str, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "platform", arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    lines = ended.stderr.splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "paddock.launch" in imported
    assert imported.isdisjoint({"torch", "distributed", "dask", "wandb", "matplotlib", "tensorboard", "optuna", "av"})
    if arguments.startswith("--") or "es" in arguments:
        assert "gymnasium" not in imported
    assert len([line for line in lines if not line.startswith("import time:")]) == (0 if arguments == "--help" else 1)


EARLY = """
import importlib, sys
from paddock.envs.errors import EXTRAS
from paddock import COMMANDS

def call(module, *arguments):
    sys.argv = [module, *arguments]
    code = importlib.import_module(module).main()
    assert code == (0 if "--help" in arguments else 2), (module, arguments, code)

for name in COMMANDS:
    call(f"paddock.{name}", "--help")
for name in {*COMMANDS} - {"doctor"}:
    call(f"paddock.{name}", "nowhere")
call("paddock.launch", "algo=ess")
call("paddock.launch", "algo=ppo", "algo.lr=1")
call("paddock.launch", "--seed", "1")
print(*sys.modules, file=sys.__stderr__)
"""
HEAVY = ("av", "dask", "distributed", "matplotlib", "mlflow", "optuna", "polars", "scipy", "submitit", "tensorboard")


def test_no_command_waits_for_a_library_that_its_help_and_its_errors_do_not_need(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EARLY]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    *said, imported = ended.stderr.splitlines()
    assert "paddock.report" in imported.split() and {*HEAVY, "torch", "wandb"}.isdisjoint(imported.split())
    assert len(said) == len(COMMANDS) + 2 and all(line.startswith("paddock: ") for line in said)
    assert not any(tmp_path.iterdir())


def test_a_library_is_imported_when_it_is_first_asked_for_something(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "wsgiref"]:
        monkeypatch.delitem(sys.modules, name)
    library = late.Late("wsgiref")
    assert "wsgiref" not in sys.modules and not hasattr(library, "__path__")
    assert library.headers.Headers([("a", "b")])["a"] == "b"
    assert library.headers is sys.modules["wsgiref.headers"]
    with pytest.raises(ModuleNotFoundError, match=r"wsgiref\.nothing"):
        library.nothing.whatever()


def test_the_command_itself_answers_in_one_line_with_exit_code_2(start: Callable[..., Command], tmp_path: Path) -> None:
    code, out, err = start("algo.population=7", f"run.dir={tmp_path}/run").wait()
    assert (code, out) == (2, "")
    assert err == "paddock: algo.population=7 is odd, and members come in mirrored pairs; try 8\n"
    assert not any(tmp_path.iterdir())


def test_no_other_file_gets_the_number_of_a_standard_one_that_the_shell_has_closed() -> None:
    kept = os.dup(2)
    os.close(2)
    try:
        open_standard_files()
        assert os.path.samestat(os.fstat(2), os.stat(os.devnull)) and os.get_inheritable(2)
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@pytest.mark.parametrize(
    "log", ["file.filename=all.log", "file.filename=${oc.env:PWD}/${hydra:job.num}.log", "file=null"]
)
def test_a_log_of_hydras_that_lies_in_no_runs_folder_is_a_sweeps_to_have(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("hydra/job_logging=default", f"hydra.job_logging.handlers.{log}")
    assert call_main("-m", "seed=1,2", "dry_run=true", *arguments) == 0


@pytest.mark.parametrize("name", ["nowhere/log", "3", "."])
def test_a_log_of_hydras_that_a_sweep_cannot_make_is_a_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call_main("-m", "seed=1,2", "budget.iterations=1", *f"{LOG}={name}".split()) == 2
    err = capfd.readouterr().err
    assert err.startswith("paddock: hydra/job_logging and hydra/hydra_logging make no log: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--help"], ["dry_run=true"], ["--cfg", "job"], ["-m", "seed=1,2", "dry_run=true"]]
)
def test_a_full_disk_behind_the_output_is_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert call_main(*arguments) == NO_ROOM
    assert capfd.readouterr() == (
        "",
        "paddock: the output cannot be written (No space left on device); make room, or choose another disk\n",
    )


# Sweeps


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("seed=1,2 algo.population=8,7", "algo.population=7 is odd"),
        ("algo=es,ess", "algo=ess is not an option of algo; did you mean 'es'?"),
        ("seed=1,2 +algo.sigm=1,2", "algo.sigm is not a key of algo"),
        ("compute.workers=1,0", "compute.workers=0 must be"),
        ("seed=range(0,3) env.id=CartPole-v1,CartPol-v1", "did you mean 'CartPole-v1'?"),
        ("seed=1,2 run.dir=here", "jobs 0 and 1 of the sweep would share here"),
        ("seed=1,2 hydra.sweep.subdir=same", "would share"),
        ("seed=1,2 run.root=/tmp", "run.root=/tmp would be ignored; the runs of a sweep are kept in hydra.sweep.dir="),
        ("run.name=a,b", "run.name=a,b would be ignored"),
        ("run.name=/a,b hydra.sweep.subdir=${run.name}", "must not contain '/'"),
        ("seed=1,2 hydra.sweep.dir=", "hydra.sweep.dir= names no folder"),
        ("seed=1,2 hydra.sweep.dir=/proc/here", "hydra.sweep.dir=/proc/here cannot be written"),
        (
            "seed=1,2 hydra.sweep.dir=/dev/null dry_run=true",
            "hydra.sweep.dir=/dev/null cannot be written (Not a directory); choose another with hydra.sweep.dir=",
        ),
        (
            "hydra/sweeper=optuna algo.sigma=interval(0.1,1) hydra.sweep.dir=/dev/null/here",
            "hydra.sweep.dir=/dev/null/here cannot be written (Not a directory)",
        ),
        ("hydra.sweeper=optuna seed=1,2", "hydra.sweeper=optuna sets no key; write hydra/sweeper=optuna to choose one"),
        ("launcher=local seed=1,2", "launcher=local sets no key; write hydra/launcher=local to choose one"),
        ("seed=1,2 algo.sigm=1", "did you mean 'algo.sigma'?"),
        (
            "algo=ppo,es algo.clip_coef=0.1",
            "algo.clip_coef is not a key of algo=es; algo=ppo has algo.clip_coef; known:",
        ),
        (
            "algo=es,ppo algo.clip_coef=0.1",
            "algo.clip_coef is not a key of algo=es; algo=ppo has algo.clip_coef; known:",
        ),
        (
            "algo.sigma=interval(0,1)",
            "algo.sigma=interval(0,1) lists no values, of which a grid is made; list some, as",
        ),
        ("seed=range(3,3)", "seed=range(3,3) lists no values, of which a grid is made; list some, as"),
    ],
)
def test_a_sweep_with_one_bad_value_dies_before_its_first_job(arguments: str, part: str, refused: Refused) -> None:
    tiny = [*TINY[:1], "budget.iterations=1", "compute=serial"] if "workers" not in arguments else []
    assert part in refused("--multirun", *(tiny if "algo=" not in arguments else tiny[1:]), *split(arguments))


def test_a_file_where_sweeps_are_kept_is_named(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweeps").touch()
    said = refused("--multirun", "hydra/sweeper=optuna", "algo.sigma=interval(0.1,1)", "budget.iterations=1")
    assert re.search(r"hydra\.sweep\.dir=sweeps/es_\S+ cannot be written \(Not a directory\)", said)


@pytest.mark.parametrize("launcher", ["basic", "local"])
def test_a_dry_run_of_a_sweep_shows_every_job_and_leaves_no_trace(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call_main("-m", *TINY, "compute=serial", f"hydra/launcher={launcher}", "seed=1,2", "dry_run=true") == 0
    out, err = capfd.readouterr()
    assert len(re.findall(r"^folder .*/[01]$" if launcher == "basic" else "^would run .*seed=[12]", out, re.M)) == 2
    assert err == "" and not any(tmp_path.iterdir())


def test_a_large_sweep_is_checked_for_every_single_value(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.config.compose.CHECKED_JOBS", 3)
    assert "algo.population=7 is odd" in refused("--multirun", "seed=range(0,100)", "algo.population=7,8")
