"""`python -m paddock.sanity`: what it runs, what it says, and how it ends."""

import functools
import operator
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from conftest import ROOT, Main

from paddock.algos.networks.flat import MLP, FlatPolicy
from paddock.algos.pool.serial import SerialPool
from paddock.algos.protocol import can_draw
from paddock.config.compose import compose_alone
from paddock.config.experiment import read_plain
from paddock.envs.errors import ConfigError
from paddock.envs.sanity.suite import SUITE
from paddock.envs.sanity.task import Bar
from paddock.health.sanity import TASKS, prepare_tasks, print_results, run_tasks

HERE = ["compute=serial", "seeds=1"]
SETTINGS = sorted((ROOT / "conf/algo/sanity").glob("*.yaml"))


class Constant:
    """An algorithm that learns nothing: it always does the same."""

    def __init__(self, *, env: Any, action: int) -> None:
        if not isinstance(env.spaces[1], gymnasium.spaces.Discrete):
            raise ConfigError(f"{type(env.spaces[1]).__name__} is not for it")
        self.env, self.step = env, 0
        self.mlp = MLP.for_spaces(env.observations, env.spaces[1], hidden_sizes=(), activation="tanh")
        self.parameters = np.zeros(self.mlp.num_parameters, np.float32)
        width = self.mlp.head.width
        self.parameters[action % width - width] = 1  # a bias, which come last

    def plan(self):
        while True:
            self.step += 1000
            yield {"iteration": self.step // 1000, "step": self.step}

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass

    def policy(self):
        return FlatPolicy(self.mlp, self.parameters, None)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments that name an algorithm of a package of one's own."""
    (tmp_path / "algo/sanity").mkdir(parents=True)
    algo = f"# Always the same\n_target_: {__name__}.Constant\nname: constant\naction: 6\n"
    (tmp_path / "algo/constant.yaml").write_text(algo)
    settings = (
        "# How it takes the suite\ndraws: false\nstepwise: false\nremembers: false\nnum_envs: 1\nalgo: {}\ntasks: {}\n"
    )
    (tmp_path / "algo/sanity/constant.yaml").write_text(settings)
    return [f"hydra.searchpath=[file://{tmp_path}]", "algo=constant", "seeds=2", "compute=serial"]


def test_a_line_for_each_task_and_what_to_suspect_first(own: list[str], call_command: Main) -> None:
    code, out, err = call_command("sanity", *own)
    assert (code, err) == (1, "")
    first, *rows, passed, suspect = out.splitlines()
    assert first.split() == ["task", "scores", "chance", "without", "best", "passes"]
    assert [row.split()[1] for row in rows] == [task.name for task in SUITE]
    lines = {row.split()[1]: row for row in rows}
    assert re.fullmatch(
        r"ok   bandit +(0\.9\d+|1\.0\d+) +(0\.9\d+|1\.0\d+) +0\.100 +0\.100 +1\.000 +>= 0\.9", lines["bandit"]
    )
    said = f"suspect {TASKS['password'].suspect}"
    assert lines["password"].startswith("FAIL") and lines["password"].endswith(f">= 0.95       {said}")
    assert lines["blend"].startswith("ok ") and "<= 0.05" in lines["blend"]  # of those that draw nothing
    assert lines["aim"] == "skip aim             Box is not for it"
    assert lines["recall"].startswith("skip") and "not for deterministic policies" in lines["recall"]
    assert passed.endswith(" tasks passed") and suspect.startswith("first suspect, from password: exploration")


@pytest.mark.parametrize(
    ("algo", "kind"),
    [
        *[("ppo", "memoryless"), ("ppo algo.lstm=true", "recurrent"), ("dqn", "greedy"), ("es", "deterministic")],
        *[("r2d2", "recurrent"), ("r2d2 algo.lstm=false", "greedy")],
    ],
)
def test_who_remembers_is_judged_by_what_memory_can_do(algo: str, kind: Any) -> None:
    prepared = prepare_tasks(f"algo={algo}".split(), ["recall", "blend", "forget"], [1])
    assert [exam.task.name for exam in prepared] == ["forget", "blend", "recall"]  # from simple to complex
    for exam in prepared:
        assert exam.bar == TASKS[exam.task.name].bar(kind)
    assert TASKS["forget"].bar("recurrent") == Bar(0.95) and TASKS["forget"].bar("greedy") == Bar(0.44, 0.56)


def test_all_is_well_where_every_task_passes(own: list[str], call_command: Main) -> None:
    code, out, _ = call_command("sanity", *own, "tasks=[bandit]")
    assert code == 0 and out.splitlines()[-1] == "1 of 1 tasks passed"
    code, out, _ = call_command("sanity", *own, "tasks=[bandit]", "algo.action=5")
    assert code == 1 and out.splitlines()[-2:] == [
        "0 of 1 tasks passed",
        f"first suspect, from bandit: {TASKS['bandit'].suspect}",
    ]


def test_what_raises_in_learning_fails_and_is_told(
    own: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def raises(self: Constant) -> Any:
        raise ValueError("no way")

    monkeypatch.setattr(Constant, "policy", raises)
    prepared = prepare_tasks(own[:2], ["bandit"], [1, 2])
    assert print_results(run_tasks(prepared, SerialPool()), 2) == 1
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith("FAIL bandit             nan    nan") and line.endswith("(ValueError: no way)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no algorithm given; add algo=NAME"),
        (["algo=ppo", "sedes=3"], "sedes=3 is not an argument of sanity; did you mean 'seeds'?"),
        (["algo=ppo", "tasks=bandits"], "tasks=bandits is not a task of the suite; did you mean 'bandit'?"),
        (["algo=poet"], "algo/sanity=poet is not an option of algo/sanity"),
        (["algo=ppo", "algo.gamma=2"], r"algo.gamma=2 must be in \[0, 1\]"),
    ],
)
def test_a_mistake_is_answered_in_one_line(arguments: list[str], message: str, call_command: Main) -> None:
    code, out, err = call_command("sanity", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(message, err)


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.stem)
def test_settings_are_of_keys_and_tasks_that_there_are(path: Path) -> None:
    settings = yaml.safe_load(path.read_text())
    algo = read_plain(compose_alone([f"algo={path.stem}"]))["algo"]
    for own in (settings["algo"], *(task.get("algo", {}) for task in settings["tasks"].values())):
        for key in own:
            *section, last = key.split(".")
            assert last in functools.reduce(operator.getitem, section, algo)
    assert settings["tasks"].keys() <= TASKS.keys()


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.stem)
def test_a_policy_can_draw_where_its_algorithm_draws_in_training(path: Path, tmp_path: Path) -> None:
    for exam in prepare_tasks([f"algo={path.stem}"], ["bandit", "aim"], [1]):
        for trial in exam.trials:  # none where actions of the kind are not for it
            files = {"folder": tmp_path} if trial.keeps_files else {}
            policy = trial.algorithm.make_alone(trial.env, trial.vec, trial.seed, **files).policy()
            assert can_draw(policy) is yaml.safe_load(path.read_text())["draws"]


def test_an_override_takes_precedence_over_the_suite_s_settings() -> None:
    prepared = prepare_tasks(["algo=ppo", "algo.gamma=0.5", "vec.num_envs=16"], ["bandit", "cutoff"], [1])
    for exam in prepared:
        [trial] = exam.trials
        assert trial.algorithm.settings["gamma"] == 0.5 and trial.vec.num_envs == 16
    [plain] = prepare_tasks(["algo=ppo"], ["cutoff"], [1])
    assert plain.trials[0].algorithm.settings["gamma"] == 0.9 and plain.trials[0].vec.num_envs == 32
    [member] = prepare_tasks(["algo=pbt", "algo.member.epochs=2"], ["cutoff"], [1])
    settings = member.trials[0].algorithm.settings["member"].settings
    assert settings["epochs"] == 2 and settings["gamma"] == 0.9 and settings["num_steps"] == 32


def test_the_scores_are_the_same_on_any_pool(own: list[str], call_command: Main) -> None:
    words = [*own[:2], "tasks=[bandit]", "seeds=3"]
    here = call_command("sanity", *words, "compute=serial")
    assert call_command("sanity", *words, "compute=local", "compute.workers=2") == here
    assert here[0] == 0
