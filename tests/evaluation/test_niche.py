"""A niche of a POET run as the environment of another run, and which algorithm takes which kind of environment."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import call_main, rows
from omegaconf import OmegaConf

from paddock.config.compose import compose_alone
from paddock.config.experiment import assemble
from paddock.evaluation.fresh_episodes import evaluate
from paddock.evaluation.load import load
from paddock.runs.folder import read_config

# Five niches within a second: every iteration admits one mutant, whatever it is like, and soon retires the oldest.
TINY_POET = [
    "algo=poet",
    "env=poles",
    "env.step=0.4",
    "compute=serial",
    "algo.population=4",
    "algo.hidden_sizes=[4]",
    "algo.reproduce_every=1",
    "algo.transfer_every=2",
    "algo.reproduce_score=-1000",
    "algo.criterion_low=-1",
    "algo.criterion_high=1000",
    "algo.max_children=2",
    "algo.max_niches=2",
    "algo.eval_episodes=1",
    "budget.iterations=5",
]
TINY_ES = ["compute=serial", "vec=serial", "algo.population=4", "algo.hidden_sizes=[4]", "budget.iterations=2"]
Main = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def poet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("niche") / "poet"
    assert call_main(*TINY_POET, f"run.dir={path}") == 0
    return path


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Main:
    """`paddock` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        return call_main(*arguments), *capfd.readouterr()

    return call


# The environment


def test_niche_is_the_environment_of_its_agents(poet: Path) -> None:
    algorithm, _ = load(poet)
    numbers = [*algorithm.archive, *algorithm.niches]
    assert len(numbers) == 5 and len(algorithm.archive) == 3
    for number in numbers:
        parts = assemble(compose_alone(["env=niche", f"env.run={poet}", f"env.niche={number}"]))
        assert parts.algorithm.env == (algorithm.archive | algorithm.niches)[number].problem.env


def test_ground_of_a_niche_is_part_of_its_recipe(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("{algo: {}, env: {}}")
    kwargs = {"ground": 7, "roughness": 0.5, "pit_gap": [0.0, 0.8], "cppn": None}
    recipe: dict[str, Any] = {
        "id": "paddock.envs.bipedal:paddock/Terrain-v0",
        "max_episode_steps": None,
        "fresh": False,
        "wrappers": [],
    }
    birth = {"iteration": 1, "event": "birth", "niche": 0, "env": {**recipe, "kwargs": kwargs}}
    (tmp_path / "events.jsonl").write_text(json.dumps(birth) + "\n")
    parts = assemble(compose_alone(["env=niche", f"env.run={tmp_path}", "env.niche=0"]))
    assert parts.algorithm.env.arguments == kwargs
    assert parts.config["env"] == {"_target_": "paddock.envs.spec.EnvSpec", **recipe, "kwargs": kwargs}


# A run on it


def test_run_on_a_niche_outlives_the_run_that_it_is_from(poet: Path, main: Main, tmp_path: Path) -> None:
    shutil.copytree(poet, "theirs")
    length = next(row["encoding"]["length"] for row in rows(poet, "events.jsonl") if row.get("niche") == 1)
    command = ["experiment=es_niche", *TINY_ES, "env.run=theirs", "env.niche=1", "run.dir=mine"]
    assert main(*command)[0] == 0
    assert yaml.safe_load(Path("mine/config.yaml").read_text())["env"] == {
        "_target_": "paddock.envs.spec.EnvSpec",
        "id": "CartPole-v1",
        "max_episode_steps": None,
        "fresh": False,
        "kwargs": {},
        "wrappers": [{"_target_": "paddock.envs.tasks.poles.PoleLength", "length": length}],
        "bounds": {},
        "without": [],
        "training": {},
        "metrics": [],
    }
    assert main(*command, "budget.iterations=3")[0] == 0
    assert [row["iteration"] for row in rows(Path("mine"))] == [1, 2, 3, 3]
    shutil.rmtree("theirs")
    assert len(evaluate(Path("mine"), episodes=2).returns) == 2
    assert main(*command, "budget.iterations=4")[0] == 0
    assert [row["iteration"] for row in rows(Path("mine"))] == [1, 2, 3, 4, 4]
    code, _, err = main(*command, "env.niche=0", "budget.iterations=5")
    assert code == 2 and "no such run: theirs" in err


def test_sweep_over_niches_trains_on_each(poet: Path, main: Main) -> None:
    sweep = ["--multirun", "experiment=es_niche", *TINY_ES, f"env.run={poet}", "env.niche=0,1", "hydra.sweep.dir=all"]
    assert main(*sweep)[0] == 0
    lengths = [read_config(Path(f"all/{job}"))["env"]["wrappers"][0]["length"] for job in (0, 1)]
    assert lengths[0] == 0.5 != lengths[1]


# The experiments


def test_es_niche_has_the_settings_of_poet(poet: Path) -> None:
    niche = [f"env.run={poet}", "env.niche=0"]
    control = OmegaConf.to_container(compose_alone(["experiment=es_niche", *niche]).algo)
    poets = OmegaConf.to_container(compose_alone(["algo=poet", "env=poles"]).algo)
    assert isinstance(control, dict) and isinstance(poets, dict)
    control |= control["strategy"]
    shared = (control.keys() & poets.keys()) - {"_target_", "name"}
    assert {"population", "sigma", "learning_rate", "weight_decay", "hidden_sizes", "episode_cap"} < shared
    assert {key: control[key] for key in shared} == {key: poets[key] for key in shared}
    assert (control["episodes_per_member"], control["normalize_observations"]) == (1, False)


# Bad input

NICHE = ["env=niche", "env.run={poet}"]
BAD = {
    "no number": (NICHE, "env.niche has no value; set env.niche=..."),
    "no such niche": ([*NICHE, "env.niche=99"], "env.niche=99 is not a niche of {poet}; known: 0, 1, "),
    "one for poet": (
        ["algo=poet", "env=terrain"],
        "Terrain-v0 is a single one; choose env=",
    ),
}


@pytest.mark.parametrize("arguments, said", BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_leaves_nothing(
    arguments: list[str], said: str, poet: Path, main: Main, tmp_path: Path
) -> None:
    Path("es").mkdir()
    Path("es/config.yaml").write_text("{algo: {}, env: {}}")
    code, out, err = main(*(argument.format(poet=poet) for argument in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("paddock: ") and said.format(poet=poet) in err
    assert [path.name for path in tmp_path.iterdir()] == ["es"]
