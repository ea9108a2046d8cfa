"""Several learners of one replay, by the laws they obey: no number depends on how many there are, and none is lost."""

import copy
import multiprocessing
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import learned
import psutil
import pytest
from conftest import alive, command_line, deterministic, last_of_each

from paddock.algos.learning import data_parallel
from paddock.algos.learning.data_parallel import LearnerLost
from paddock.envs.errors import ConfigError
from paddock.envs.process import ChildProcess

SMALL = [
    *(
        "vec.num_envs=4",
        "algo.num_steps=4",
        "algo.hidden_sizes=[8]",
        "algo.log_every_steps=16",
        "algo.eval_every_steps=1000",
    ),
    *("algo.buffer_size=96", "algo.learning_starts=32", "algo.batch_size=8", "env.max_episode_steps=9"),
]
Q = ["algo=dqn", "env=cartpole", "algo.backend=torch", "algo.target_every=3", "algo.epsilon_steps=100"]
VARIANTS = {
    "rainbow": [
        *Q,
        "algo.priority_exponent=0.6",
        "algo.n_step=3",
        "algo.atoms=7",
        "algo.noisy_sigma=0.4",
        "algo.updates_per_step=0.3",
    ],
    "sac": ["algo=sac", "env=pendulum", "algo.backend=torch", "algo.updates_per_step=0.3"],
    "r2d2": [
        *("algo=r2d2", "env=cartpole", "algo.burn_in=2", "algo.sequence_length=4", "algo.n_step=2"),
        *("algo.updates_per_step=0.1", "algo.learning_starts=48", "algo.target_every=3"),
    ],
}


class Thread:
    """A `ChildProcess` that is a thread here: it says and hears the same, and starts at once."""

    def __init__(self, function: str, message: bytes, **others: Any) -> None:
        assert function.endswith(":run_learner")
        self.connection, theirs = multiprocessing.Pipe()
        self.popen = SimpleNamespace(pid=1, poll=lambda: None)
        self.thread = threading.Thread(target=data_parallel.run_learner, args=(theirs,))
        self.thread.start()
        self.connection.send(cloudpickle.loads(message))

    limit_waits = ChildProcess.limit_waits

    def kill(self) -> None:
        self.thread.join()


def algorithm(variant: str, folder: Path, *more: str) -> Any:
    return learned.algorithm(*last_of_each([*SMALL, *VARIANTS[variant], *more]), folder=folder)


def advance(algo: Any, rows: int) -> list[dict[str, float]]:
    plan = algo.plan()
    found = [deterministic(next(plan)) for _ in range(rows)]
    plan.close()
    return found


def parameters(algo: Any) -> bytes:
    return algo.policy().parameters.tobytes()


@pytest.mark.parametrize("variant", ["rainbow", "sac", "r2d2"])
def test_one_learner_and_two_give_the_same_bits(variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_parallel, "ChildProcess", Thread)
    one, two, whole = (
        algorithm(variant, tmp_path / str(k), *words)
        for k, words in enumerate((["algo.microbatches=4"], ["algo.microbatches=4", "algo.learners=2"], []))
    )
    expected = advance(one, 9)
    assert expected[-1]["train/updates"] > 5 and expected[4]["train/updates"] > 0
    assert advance(two, 9) == expected
    assert parameters(two) == parameters(one)
    alone = advance(whole, 5)
    # Parts add up to the whole, but for rounding, which two chaotic lives tell sooner or later.
    assert alone[4] == pytest.approx(expected[4], rel=1e-3, abs=1e-4)


def others() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if alive(each) and "data_parallel" in command_line(each)]


def test_a_process_may_be_added_or_lost_between_two_rows(tmp_path: Path) -> None:
    """In processes: two learners, one of which is killed; and one goes on from a state of theirs to the same bits."""
    whole = algorithm("rainbow", tmp_path / "whole", "algo.microbatches=2")
    expected = advance(whole, 9)
    two = algorithm("rainbow", tmp_path / "run", "algo.learners=2")
    plan = two.plan()
    assert [deterministic(next(plan)) for _ in range(6)] == expected[:6]
    state = copy.deepcopy(two.state_dict())
    (other,) = others()
    other.kill()
    with pytest.raises(LearnerLost, match=rf"learner 2 of 2 \(process {other.pid}, cpu\) was killed by SIGKILL; start"):
        next(plan)
    assert others() == []
    one = algorithm("rainbow", tmp_path / "run", "algo.microbatches=2")
    one.load_state_dict(state)
    assert advance(one, 3) == expected[6:]
    assert parameters(one) == parameters(whole)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algo.learners=0"], "algo.learners=0 must be between 1 and 64"),
        (["algo.learners=3"], "algo.batch_size=8 is not a multiple of .*; try 9"),
        (["algo.learners=2", "algo.microbatches=3"], "algo.microbatches=3 is not a multiple of algo.learners=2; try 4"),
        (["algo.learners=2", "algo.backend=dense"], "algo.learners=2: only torch supports this"),
    ],
)
def test_learners_that_have_nothing_to_share_are_one_line(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        algorithm("rainbow", Path("unused"), *words)
    assert "\n" not in str(caught.value)
