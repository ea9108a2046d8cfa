"""`python -m paddock.evaluate` on runs of POET, by its laws: any agent in any niche, and the matrix of all."""

import csv
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TINY, Main, call_main
from test_niche import TINY_ES, TINY_POET  # type: ignore[import-not-found]  # pytest puts this folder on the path

from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.pool.protocol import Done, WorkerLost
from paddock.algos.pool.serial import SerialPool
from paddock.config.compose import compose_alone
from paddock.evaluation.fresh_episodes import evaluate
from paddock.evaluation.load import load
from paddock.evaluation.matrix import Matrix, play_matrix
from paddock.evaluation.target import EvaluationTarget

SEEDS = [episode_seed(0, Stream.FRESH, 0, k) for k in range(3)]


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


def read(path: Path) -> tuple[list[str], list[str], list[list[float]]]:
    """Environments, agents and scores of a CSV."""
    with open(path, newline="") as file:
        head, *rows = csv.reader(file)
    assert head[0] == "agent"
    return head[1:], [row[0] for row in rows], [[float(score) for score in row[1:]] for row in rows]


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


def test_control_command_is_valid_for_any_folder_name(poet: Path, main: Main, tmp_path: Path) -> None:
    run = shutil.copytree(poet, tmp_path / "of 2026, (x) [y]")
    _, out, _ = main(run, "niche=0", "episodes=1")
    composed = compose_alone(shlex.split(told(out, "control"))[3:])
    assert (composed.env.run, composed.env.niche) == (str(run), 0)


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


# All agents


def test_matrix_is_independent_of_worker_count(poet: Path, main: Main) -> None:
    first, second = (
        main(poet, "matrix=1.csv", "episodes=3", "workers=1"),
        main(poet, "matrix=2.csv", "episodes=3", "workers=2"),
    )
    assert first[0] == second[0] == 0
    assert first[1] == second[1].replace("2.csv", "1.csv")
    assert Path("1.csv").read_bytes() == Path("2.csv").read_bytes()
    serial = play_matrix(load(poet)[0], SerialPool(), SEEDS, 100_000)
    environments, agents, scores = read(Path("1.csv"))
    assert environments == agents == [str(number) for number in serial.numbers] and len(agents) == 5
    assert scores == serial.scores.tolist()


def test_cell_is_the_mean_return_of_its_agent_there(poet: Path) -> None:
    matrix = play_matrix(load(poet)[0], SerialPool(), SEEDS, 100_000)
    single = [
        [evaluate(poet, niche=niche, agent=agent, episodes=3).returns.mean() for niche in matrix.numbers]
        for agent in matrix.numbers
    ]
    assert matrix.scores.tolist() == single
    assert len(np.unique(matrix.scores)) > 10  # or else rows and columns could be exchanged unseen


def test_lost_task_is_nan_and_a_warning(poet: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Losing(SerialPool):
        def imap_unordered(self, fn: Any, tasks: Iterable[Any], **settings: Any) -> Iterator[Done]:
            for done in super().imap_unordered(fn, tasks, **settings):
                lost = done.index in (1, 6)  # agent 1 in environment 0 and in environment 1, of 5 agents
                yield Done(done.index, error=WorkerLost("it died")) if lost else done

    algorithm, _ = load(poet)
    whole, matrix = (play_matrix(algorithm, pool, SEEDS, 100_000) for pool in (SerialPool(), Losing()))
    expected = whole.scores.copy()
    expected[1, 0] = expected[1, 1] = np.nan
    assert np.array_equal(matrix.scores, expected, equal_nan=True)
    assert "2 of 25 scores are NaN because their tasks were lost" in caplog.text
    assert (matrix.rank(1), list(matrix.table())[2].split()[-2:]) == (None, ["-", "-"])
    assert b",nan," in matrix.encode(".csv") and matrix.encode(".png").startswith(b"\x89PNG")


def test_table_ranks_the_agents_of_each_niche(poet: Path) -> None:
    algorithm, _ = load(poet)
    niches = tuple((algorithm.archive | algorithm.niches)[number] for number in (0, 1, max(algorithm.niches)))
    newest = niches[2].number
    # Columns: the own agent is as good as the best; is beaten by one; is beaten by both.
    scores = np.array([[5.0, 7.0, 3.0], [5.0, 6.0, 9.25], [1.0, np.nan, 2.0]])
    matrix = Matrix(niches, scores, 0, 1.0)
    assert [line.split() for line in list(matrix.table())[1:]] == [
        ["0", "archived", "0", "5.00", "5.00", "1"],
        ["1", "archived", "0", "7.00", "6.00", "2"],
        [str(newest), "active", "1", "9.25", "2.00", "3"],
    ]
    assert (
        matrix.encode(".csv").decode() == f"agent,0,1,{newest}\n0,5.0,7.0,3.0\n1,5.0,6.0,9.25\n{newest},1.0,nan,2.0\n"
    )


@pytest.mark.filterwarnings("error")
def test_picture_is_drawn_for_a_single_niche(poet: Path) -> None:
    niche = load(poet)[0].archive[0]
    assert Matrix((niche,), np.zeros((1, 1)), 0, 1.0).encode(".png").startswith(b"\x89PNG")


# Bad input

BAD = {
    "unknown niche": (["POET", "niche=99"], "niche=99 is not a niche of POET; known: 0, 1, "),
    "niche of ES": (["ES", "niche=0"], "niche=0: ES is a run of ES, which has no niches; remove niche=, or set on="),
    "other spaces": (
        ["PENDULUM", "on=POET"],
        "has observations Box(4,) float32 and actions Discrete(2), but the policy",
    ),
    "one niche": (["POET", "matrix=m.csv", "niche=0"], "niche= cannot be combined with matrix="),
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
