"""The configuration: every option composes and builds, every key is read and explained, Hydra's commands work."""

import dataclasses
import functools
import json
import operator
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from bindings import WORLDS, need_of
from conftest import ROOT, TINY, call_main, rows
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from paddock.algos.pool.protocol import Pool
from paddock.algos.pool.serial import SerialPool
from paddock.config.build import call_checked
from paddock.config.compose import compose_alone
from paddock.config.experiment import SECTIONS, Configuration, assemble, build_algorithm, read_plain
from paddock.config.help import GROUPS
from paddock.config.options import read_summary
from paddock.config.vocabulary import USUAL, suggest_key
from paddock.envs.errors import ConfigError
from paddock.runs.folder import read_config
from paddock.sweep.space import corners, read_space

CONF = ROOT / "conf"
FILES = sorted(CONF.rglob("*.yaml"))
OURS = [path for path in FILES if path.parent.parent == CONF]  # options of our own groups, and not of Hydra's
OPTIONS = [f"{path.parent.name}={path.stem}" for path in OURS]
NICHE = ["env.run={poet}", "env.niche=0"]  # of the fixture's run
NEEDED = {  # what an option cannot do without
    "algo=ddpg": ["env=pendulum"],
    "algo=poet": ["env=poles"],
    "algo=ppo": ["vec.num_envs=8"],
    "algo=sac": ["env=pendulum"],
    "algo=td3": ["env=pendulum"],
    "env=go1": ["algo=ppo"],
    "env=gymnasium": ["env.id=CartPole-v1"],
    "env=niche": NICHE,
    "env=poles": ["algo=poet"],
    "env=remote": ["algo=ppo", "vec=remote", "vec.address={served}"],
    "env=terrains": ["algo=poet"],
    "env=terrains_cppn": ["algo=poet"],
    "experiment=es_niche": NICHE,
    "experiment=ppo_niche": NICHE,
    "env=procgen": ["algo=ppo"],
    "vec=atari": ["algo=ppo", "env=atari_nature"],
    "vec=envpool": ["algo=ppo"],
    "vec=jax": ["env=gymnax"],
    "vec=mujoco": ["env=mujoco"],
    "vec=remote": ["algo=ppo", "vec.address={served}"],
    "vec=vector": ["algo=ppo", "vec.target=paddock.envs.tasks.cartpole.CartPoleVector"],
}
MIRRORS = {"track=all": 2, "track=tensorboard": 1, "track=wandb": 1}


@pytest.fixture(scope="module")
def poet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What options need of a run of POET."""
    path = tmp_path_factory.mktemp("configuration")
    recipe: dict[str, Any] = {
        "id": "CartPole-v1",
        "kwargs": {},
        "wrappers": [],
        "max_episode_steps": None,
        "fresh": False,
    }
    (path / "config.yaml").write_text("{algo: {}, env: {}}")
    birth = {"iteration": 1, "event": "birth", "niche": 0, "env": recipe}
    (path / "events.jsonl").write_text(f"{json.dumps(birth)}\n")
    return path


@pytest.fixture
def served() -> Iterator[str]:
    """The address of a server of CartPole."""
    pytest.importorskip("grpc", reason="grpcio is not installed")
    from paddock.serve import start

    with closing(start(["vec=serial", "serve.address=127.0.0.1:0"])) as server:
        yield server.address


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Call the command in tmp_path; what it prints, once it has ended well and said nothing on the error stream."""
    monkeypatch.chdir(tmp_path)

    def begin(*arguments: str) -> str:
        capfd.readouterr()
        code = call_main(*arguments)
        out, err = capfd.readouterr()
        assert (code, err) == (0, "")
        return out

    return begin


# The options


def test_every_group_has_options_and_they_are_found() -> None:
    assert {path.parent.name for path in OURS} == set(GROUPS)


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.removeprefix("env=") not in WORLDS])
def test_every_option_composes_and_builds_and_leaves_no_trace(
    option: str, poet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    needs = NEEDED.get(option, [])
    need_of([option, *needs])
    served = request.getfixturevalue("served") if any("{served}" in need for need in needs) else None
    parts = assemble(compose_alone([option, *(need.format(poet=poet, served=served) for need in needs)]))
    assert set(parts.config) == {field.name for field in dataclasses.fields(Configuration)}
    assert callable(parts.algorithm.plan)
    assert not option.startswith("experiment=") or any(bound is not None for bound in parts.config["budget"].values())
    assert parts.pool.describe()
    assert len(parts.mirrors) == MIRRORS.get(option, 0)
    assert not any(tmp_path.iterdir())


def test_poet_refuses_an_environment_of_several_agents() -> None:
    need_of(["env=spread"])
    with pytest.raises(ConfigError, match="poet needs a family of environments"):
        assemble(compose_alone(["env=spread", "algo=poet"]))


# compute=slurm opens where there is a Slurm: tests/cluster/test_slurm_workers.py.
@pytest.mark.parametrize("option", [option for option in OPTIONS if re.match("compute=(?!slurm)", option)])
def test_every_compute_option_describes_a_pool_that_opens(option: str) -> None:
    workers = [] if option == "compute=serial" else ["compute.workers=1"]
    pool = assemble(compose_alone([option, *workers])).pool
    try:
        pool.open({"paddock"})
        opened: Pool = pool
        assert opened.size == 1
        assert [done.value for done in opened.imap_unordered(abs, [-3])] == [3]
    finally:
        pool.close()


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.startswith("sweep=")])
def test_every_point_of_a_search_space_builds_at_its_bounds(option: str, tmp_path: Path) -> None:
    name = option.removeprefix("sweep=")
    [space] = [yaml.safe_load(path.read_text()) for path in OURS if path.parent.name == "sweep" and path.stem == name]
    written = [f"{key}={text}" for key, text in space["hydra"]["sweeper"]["params"].items()]
    parser = OverridesParser.create()
    config = read_plain(compose_alone([f"algo={name}", *NEEDED.get(f"algo={name}", [])]))
    for point in corners(read_space(parser.parse_overrides(written))[1]):
        for override in parser.parse_overrides(point):
            *path, key = override.key_or_group.split(".")
            section = functools.reduce(operator.getitem, path, config)
            assert key in section
            section[key] = override.value()
        build_algorithm(config, SerialPool(), folder=tmp_path)
    assert not any(tmp_path.iterdir())


# The keys


def keys_of(node: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    """Every key of a mapping, at any depth, with its value."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        yield key, value
        yield from keys_of(value)


def test_every_file_says_first_what_it_chooses_and_comments_each_key() -> None:
    for path in FILES:
        text = path.read_text()
        lines = text.splitlines()
        line = lines[1] if lines[0].startswith("# @package") else lines[0]
        assert line.startswith("# ") and read_summary(path) == line[2:]
        assert 20 <= len(read_summary(path)) <= 110
        bare = [
            f"{path}:{key.start_mark.line + 1}: {key.value}"
            for key, value in keys_of(yaml.compose(text))
            if key.value != "defaults" and not (isinstance(value, yaml.MappingNode) and value.value)
            if len(lines[key.start_mark.line].partition("#")[2].strip()) < 5
        ]
        assert not bare


def mappings_of(node: Any, path: str = "") -> Iterator[str]:
    """Every mapping with keys of ours, by its path; the outermost one is ''."""
    if isinstance(node, dict) and path not in (
        "env.kwargs",
        "env.bounds",
    ):  # whose keys are of the environment
        yield path
        for key, value in node.items():
            yield from mappings_of(value, f"{path}.{key}".lstrip("."))


WIDE = ["track=all", "compute=dask"]  # with as many keys as there are


def test_an_unknown_key_is_an_error_in_every_section() -> None:
    sections = set(mappings_of(OmegaConf.to_container(compose_alone(WIDE))))
    assert sections > {"", *SECTIONS, "track.wandb", "compute.tls"}
    for section in sections:
        # In track any name is allowed, and what it names must be a class.
        allowed = "is not a mapping" if section == "track" else r"is not a (key|section) of "
        key = f"{section}.never".lstrip(".")
        with pytest.raises(ConfigError, match=rf"{re.escape(key)}(=1)? {allowed}"):
            assemble(compose_alone([*WIDE, f"+{key}=1"]))


def test_a_whole_number_may_be_written_as_people_do() -> None:
    for text, value in (("1e6", 1_000_000), ("25", 25), ("null", None)):
        steps = assemble(compose_alone([f"budget.steps={text}"])).budget.steps
        assert steps == value and isinstance(steps, int | None)


def test_the_border_takes_any_signature() -> None:
    built = call_checked("x", lambda b, env=None, **more: (b, env, more), {"b": 1, "c": 2}, env=3, pool=4)
    assert built == (1, 3, {"c": 2, "pool": 4})
    with pytest.raises(ConfigError, match=r"x\.b has no value; set x\.b=\.\.\."):
        call_checked("x", lambda b: b, {"b": "???"})
    with pytest.raises(ConfigError, match=r"x\.b is missing"):
        call_checked("x", lambda b, *rest: b, {})
    with pytest.raises(ConfigError, match=r"x\.rest is not a key of x"):
        call_checked("x", lambda b, *rest: b, {"b": 1, "rest": 2})
    with pytest.raises(ConfigError, match=r"x\.env is not a key of x"):
        call_checked("x", lambda b, env, **more: b, {"b": 1, "env": 2}, env=3)


def paths_of(node: Any, path: str = "") -> Iterator[str]:
    """Every key of plain data, by its dotted path."""
    for key, value in node.items() if isinstance(node, dict) else ():
        yield f"{path}{key}"
        yield from paths_of(value, f"{path}{key}.")


@pytest.fixture(scope="module")
def keys() -> set[str]:
    """The paths of all keys that some choice of options has."""
    found: set[str] = set()
    for path in [*CONF.glob("*.yaml"), CONF / "hydra/sweeper/optuna.yaml", *CONF.glob("*/*.yaml")]:
        node = yaml.safe_load(path.read_text()) or {}
        whole = path.parent == CONF or "@package _global_" in path.read_text() or "hydra" in path.parts
        found |= set(paths_of(node if whole else {path.parent.name: node}))
    strategies = {path.stem: yaml.safe_load(path.read_text()) for path in CONF.glob("algo/strategy/*.yaml")}
    return found | {f"algo.strategy.{key}" for keys in strategies.values() for key in keys}


def test_every_usual_name_stands_for_a_key_that_there_is(keys: set[str]) -> None:
    assert set(USUAL) <= keys
    for names in USUAL.values():
        assert len(set(names)) == len(names)
        for name in names:
            assert name == name.lower().replace("-", "_")


MEANT = {
    "lr": "algo.learning_rate",
    "agent.learning_rate": "algo.learning_rate",
    "discount": "algo.gamma",
    "algo.lam": "algo.gae_lambda",
    "batch_size": "algo.minibatch_size",
    "algo.n_epochs": "algo.epochs",
    "algo.num_envs": "vec.num_envs",
    "vec.n-envs": "vec.num_envs",
    "ent_coef": "algo.entropy_coef",
    "trainer": "algo",
    "env_id": "env.id",
    "total_timesteps": "budget.steps",
    "run.steps": "budget.steps",
    "num_workers": "compute.workers",
    "output_dir": "run.dir",
    "wandb": "track",
    "sedd": "seed",
    "comput.workers": "compute.workers",
    "hiden": "algo.hidden_sizes",
    "net_arch": "algo.hidden_sizes",
    "checkpoint.every": "checkpoint.every_s",
}


def test_a_key_is_found_by_its_usual_name_and_by_its_spelling() -> None:
    known = list(paths_of(OmegaConf.to_container(compose_alone(["algo=ppo", "compute=dask"]))))
    for written, meant in MEANT.items():
        assert (suggest_key(written, known) or "").startswith(f"did you mean '{meant}'"), written
    known = list(paths_of(OmegaConf.to_container(compose_alone(["algo=es"]))))
    for written in ("gamma", "algo.gamma", "device", "foo", "algo.foo", "env.name", "algo.members"):
        assert suggest_key(written, known) is None


# The commands


def test_help_is_a_page_with_every_group(call: Callable[..., str]) -> None:
    out = call("--help")
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines if line.split()[:1] in [[group] for group in GROUPS]] == [
        [group, str(sum(option.startswith(f"{group}=") for option in OPTIONS))] for group in GROUPS
    ]
    for command in ("experiment=es_cartpole", "--multirun", "--cfg job", "paddock.evaluate", "paddock.plot", "resume="):
        assert command in out
    assert len(lines) < 50 and max(map(len, lines[:-1])) <= 80
    assert call("-h") == out


def test_help_of_a_group_lists_its_options(call: Callable[..., str]) -> None:
    lines = call("--help", *GROUPS).splitlines()
    for path in OURS:
        assert any(line.split()[:1] == [path.stem] and line.endswith(read_summary(path)) for line in lines), path


@pytest.mark.parametrize("option", ["algo=ppo", "env=bipedal", "experiment=ppo_cartpole", "env=snake"])
def test_help_of_an_option_lists_every_key(option: str, call: Callable[..., str]) -> None:
    group, _, name = option.partition("=")
    text = (CONF / group / f"{name}.yaml").read_text()
    paths = [key for key in paths_of(yaml.safe_load(text)) if key != "defaults"]
    keys = [key for key in paths if not any(path.startswith(f"{key}.") for path in paths)]  # without sections
    prefix = "" if "@package _global_" in text else f"{group}."
    listed = dict(re.findall(r"^([\w.]+)(?:=(.*?))?  +\S", call(option, "--help"), re.M))
    assert keys and {f"{prefix}{key}" for key in keys} <= listed.keys()
    assert option != "algo=ppo" or (listed["algo.epochs"], listed["algo.hidden_sizes"]) == ("4", "null")


def test_help_lists_the_users_own_options(call: Callable[..., str], tmp_path: Path) -> None:
    for name in ("algo/random", "terrain/flat"):
        path = tmp_path / "mine" / f"{name}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(f"# My own {name}\nkey: 1  # mine\n")
    for arguments in (["--config-dir", "mine"], [f"hydra.searchpath=[file://{tmp_path}/mine]"]):
        assert "terrain     1  flat" in call(*arguments, "--help")
        assert "    random      My own algo/random" in call(*arguments, "--help", "algo")
        assert "terrain.key=1  mine" in call(*arguments, "terrain=flat", "--help")


def test_cfg_shows_the_configuration_that_a_run_would_have(call: Callable[..., str]) -> None:
    shown = call("--cfg", "job", "experiment=es_cartpole", "algo.strategy.sigma=0.2")
    composed = compose_alone(["experiment=es_cartpole", "algo.strategy.sigma=0.2"])
    assert yaml.safe_load(shown) == OmegaConf.to_container(composed)
    assert call("algo.strategy.sigma=0.2", "--cfg", "job", "experiment=es_cartpole", "--resolve") == shown
    assert yaml.safe_load(call("--cfg", "job", "--package", "budget")) == dict(compose_alone([]).budget)
    assert "sweeper:" in call("--cfg", "hydra")


def test_flags_of_hydra_work(call: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(CONF) in call("--info", "searchpath")
    assert "--multirun" in call("--hydra-help")
    assert "Paddock 0." in call("--version")
    assert "complete -o nospace" in call("-sc", "install=bash")
    line = "paddock env=mountain"
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    assert set(call("-sc", "query=bash").split()) == {"env=mountaincar", "env=mountaincar_continuous"}


# Sweeps

TINY_RUN = [*TINY, "algo.population=4", "compute=serial", "budget.iterations=2"]


def test_a_sweep_is_one_run_for_each_value_and_goes_on_in_its_folder(call: Callable[..., str], tmp_path: Path) -> None:
    sweep = ["--multirun", "seed=1,2", *TINY_RUN, "hydra.sweep.dir=sweep"]
    said = call(*sweep)
    runs = [tmp_path / "sweep" / number for number in "01"]
    assert [read_config(run)["seed"] for run in runs] == [1, 2]
    assert all((run / "done.json").exists() for run in runs)
    # Each is the run that it would be alone.
    call(*TINY_RUN, "seed=2", "run.dir=alone")
    before = (tmp_path / "alone/metrics.jsonl").read_bytes()
    assert [(run / "metrics.jsonl").read_bytes() == before for run in runs] == [False, True]
    call(*sweep, "budget.iterations=3")
    after = (runs[1] / "metrics.jsonl").read_bytes()
    assert after.startswith(before) and after.count(b"\n") == 4
    # What a job says of itself is how to go on with it, alone.
    again = shlex.split(re.findall(r"python -m platform (.*seed=2.*)  #", said)[0])
    assert "--multirun" not in again
    call(*[argument for argument in again if not argument.startswith("budget.")], "budget.iterations=5")
    assert [rows(run)[-1]["iteration"] for run in runs] == [3, 5]


def test_a_sweep_sets_keys_that_only_the_chosen_options_have(call: Callable[..., str]) -> None:
    shown = call("-m", "algo=ppo,sac", "env=pendulum", "algo.gamma=0.9", "dry_run=true", "hydra.sweep.dir=sweep")
    assert [shown.count(f"algos.{name}") for name in ("ppo.PPO", "sac.SAC")] == [1, 1]


def test_a_sweeps_job_finds_the_users_own_options_when_it_goes_on(call: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "mine/env").mkdir(parents=True)
    shutil.copy(CONF / "env/cartpole.yaml", tmp_path / "mine/env/pole.yaml")
    where = f"hydra.searchpath=[file://{tmp_path}/mine]"
    said = call(where, "--multirun", *TINY_RUN, "env=pole", "seed=1", "hydra.sweep.dir=s")
    again = shlex.split(re.findall(r"python -m platform (.*env=pole.*)  #", said)[0])
    assert "resuming in" in call(*again, "budget.iterations=3")


@pytest.mark.parametrize(
    "recipe", ["dqn_cartpole", "pqn_cartpole", "ppo_pong", "ppo_acrobot", "sac_pendulum", "td3_bipedal"]
)
def test_a_recipe_is_evaluated_20_to_50_times(recipe: str) -> None:
    config = read_plain(compose_alone([f"experiment={recipe}"]))
    algo, steps = config["algo"], config["budget"]["steps"]
    every = algo.get("eval_every_steps")
    if every is None:
        every = algo["eval_every_iterations"] * algo["num_steps"] * config["vec"]["num_envs"]
    assert 20 <= steps / every <= 50
