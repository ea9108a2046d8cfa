"""`python -m paddock.evaluate` on runs of POET: any agent in any niche."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from conftest import TINY, Main, call_main
from test_niche import TINY_ES, TINY_POET  # type: ignore[import-not-found]  # pytest puts this folder on the path

from paddock.evaluation.fresh_episodes import evaluate
from paddock.evaluation.load import load
from paddock.evaluation.target import EvaluationTarget


@pytest.fixture(scope="module")
def poet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target") / "poet"
    # Far apart, so that agents score differently.
    assert call_main(*TINY_POET, "env.step=2", "algo.learning_rate=0.2", f"run.dir={path}") == 0
    return path


@pytest.fixture(scope="module")
def es(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target") / "es"
    assert call_main(*TINY, *TINY_ES, f"run.dir={path}") == 0
    return path


@pytest.fixture
def main(call_command: Main, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Main:
    """The command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return partial(call_command, "evaluate")


def told(out: str, name: str) -> str:
    """What stands in the line of that name."""
    return re.findall(rf"^{re.escape(name)} +(.*)$", out, re.M)[0]


# One agent


def test_newest_active_niche_is_the_default(poet: Path, main: Main) -> None:
    algorithm, _ = load(poet)
    newest = max(algorithm.niches)
    code, out, _ = main(poet)
    assert code == 0
    assert told(out, "niche").startswith(f"{newest}, the newest active one, created in iteration 5 from niche ")
    assert told(out, "agent") == f"niche {newest}'s own"
    assert evaluate(poet).returns.tolist() == evaluate(poet, niche=newest, agent=newest).returns.tolist()


def test_facts_of_a_niche_are_reported(poet: Path, main: Main) -> None:
    algorithm, _ = load(poet)
    there, learner = algorithm.archive[0], max(algorithm.niches.values(), key=lambda niche: niche.number)
    assert learner.learned > 0
    code, out, _ = main(poet, "niche=0", f"agent={learner.number}", "episodes=2")
    assert code == 0
    assert told(out, "niche") == "0, retired in iteration 3, created in iteration 1, not solved in the run"
    assert told(out, "agent") == f"niche {learner.number}'s"
    assert told(out, "run's score").startswith(f"{there.score:.2f}, ")
    assert told(out, "trained").startswith(f"{learner.learned:,} environment steps, ")
    solved = EvaluationTarget(replace(there, solved=2), None, newest=False)
    assert solved.describe()["niche"].endswith("solved in iteration 2")


def test_episodes_are_the_same_for_every_agent(poet: Path) -> None:
    own, again = (evaluate(poet, niche=0, episodes=3, seed=seed).returns.tolist() for seed in (0, 0))
    assert own == again == evaluate(poet, niche=0, agent=0, episodes=3).returns.tolist()
    assert (
        evaluate(poet, niche=0, episodes=8, seed=1).returns.tolist()
        != evaluate(poet, niche=0, episodes=8).returns.tolist()
    )


def test_policy_of_another_algorithm_plays_in_a_niche(poet: Path, es: Path, main: Main) -> None:
    trained = es.parent / "trained"
    niche = [f"env.run={poet}", "env.niche=1"]
    assert call_main("experiment=es_niche", *TINY_ES, *niche, f"run.dir={trained}") == 0
    # On the environment that it was trained on, it must not matter who names it.
    assert evaluate(trained, on=poet, niche=1).returns.tolist() == evaluate(trained).returns.tolist()
    code, out, _ = main(es, f"on={poet}", "niche=1", "which=best", "episodes=2")
    assert code == 0 and told(out, "policy").startswith("best, at iteration 2")
    assert told(out, "niche").startswith("1, ") and told(out, "agent") == "the run's policy"
    assert told(out, "trained").endswith("by niche 1's agent in all its niches")


# Bad input

BAD = {
    "unknown niche": (["POET", "niche=99"], "niche=99 is not a niche of POET; known: 0, 1, "),
    "niche of ES": (["ES", "niche=0"], "niche=0: ES is a run of ES, which has no niches; remove niche=, or set on="),
    "other spaces": (
        ["PENDULUM", "on=POET"],
        "has observations Box(4,) float32 and actions Discrete(2), but the policy",
    ),
    "matrix": (["POET", "matrix=m.json"], "POET is a single-agent run; matches need"),
}


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target") / "pendulum"
    small = ["algo.population=2", "algo.hidden_sizes=[4]", "compute=serial", "budget.iterations=1"]
    assert call_main("env=pendulum", *small, f"run.dir={path}") == 0
    return path


@pytest.mark.parametrize("arguments, said", BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_leaves_nothing(
    arguments: list[str], said: str, poet: Path, es: Path, pendulum: Path, main: Main
) -> None:
    runs = {"POET": poet, "ES": es, "PENDULUM": pendulum}

    def meant(argument: str) -> str:
        key, equals, name = argument.rpartition("=")
        return f"{key}{equals}{runs.get(name, name)}"

    code, out, err = main(*map(meant, arguments))
    for name, path in runs.items():
        err = err.replace(str(path), name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("paddock: ") and said in err
    assert list(Path().iterdir()) == []
