"""Several learners, by the laws they obey: together they learn what one learns, and none is left behind."""

import copy
import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from conftest import ROOT, Command, alive, command_line, deterministic, env_spec, rows, wait_until
from gymnasium import spaces
from omegaconf import OmegaConf

from paddock.algos.learning import data_parallel
from paddock.algos.learning.data_parallel import LearnerLost, Learners
from paddock.algos.learning.torch_learner import TorchLearner
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.heads import make_head
from paddock.algos.pool.serial import SerialPool
from paddock.algos.ppo import ppo_loss
from paddock.config.build import build
from paddock.envs.errors import ConfigError
from paddock.envs.spaces.layout import Layout
from paddock.envs.vector import Serial

CARTPOLE = env_spec("CartPole-v1")
TOGETHER = "paddock.algos.learning.data_parallel"  # in the command line of every learner but the first
CLOSE = 1e-6  # parameters, of about 1: float32 summed in another order, a few dozen times over

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
needs_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch sees fewer than two GPUs here")


def make(**changes: Any) -> Any:
    # Five environments of 32 steps: minibatches of 53 rows leave one of a single row, in which the second learner has
    # no share, and so do pairs of environments with an LSTM.
    given = {
        "num_steps": 32,
        "hidden_sizes": [16],
        "minibatch_size": 53,
        "epochs": 2,
        "eval_every_iterations": 2,
        "eval_episodes": 2,
    }
    lstm = {"minibatch_size": 64} if changes.get("lstm") else {}
    section: Any = OmegaConf.to_container(OmegaConf.load(ROOT / "conf/algo/ppo.yaml"))
    section = section | given | lstm | changes
    del section["name"]
    return build("algo", section, env=CARTPOLE, vec=Serial(num_envs=5), pool=SerialPool(), seed=1, total_steps=None)


def advance(ppo: Any, iterations: int) -> list[dict[str, float]]:
    with closing(ppo.plan()) as plan:
        return [deterministic(next(plan)) for _ in range(iterations)]


def others() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if alive(child) and TOGETHER in command_line(child)]


# Two learn as one


@pytest.mark.parametrize("changes", [{"minibatch_size": 53}, {"lstm": True}], ids=["mlp", "lstm"])
def test_two_learners_learn_what_one_learns(changes: dict[str, Any]) -> None:
    one, two = make(**changes), make(**changes, learners=2)
    alone, together = advance(one, 3), advance(two, 3)
    before = make(**changes).learner.parameters()
    assert np.abs(one.learner.parameters() - before).max() > 1000 * CLOSE
    np.testing.assert_allclose(two.learner.parameters(), one.learner.parameters(), rtol=0, atol=CLOSE)
    for row, other in zip(alone, together, strict=True):
        assert other == pytest.approx(row, rel=1e-4, abs=1e-4)
    assert others() == []


def test_resumed_equals_uninterrupted_with_two_learners() -> None:
    whole, resumed = (make(learners=2, epochs=3, learning_rate=1e-2, target_kl=1e-3) for _ in range(2))
    with closing(whole.plan()) as plan:
        next(plan)
        state = copy.deepcopy(whole.state_dict())
        expected = [deterministic(next(plan)) for _ in range(2)]
    resumed.load_state_dict(state)
    assert advance(resumed, 2) == expected
    assert resumed.learner.parameters().tobytes() == whole.learner.parameters().tobytes()
    assert any(row["ppo/descents"] < 3 * 4 for row in expected)  # target_kl stopped all learners at the same descent


@needs_two_gpus
def test_two_gpus_learn_what_one_learns() -> None:
    one, two = make(device="cuda"), make(device="cuda", learners=2)
    advance(one, 4), advance(two, 4)
    np.testing.assert_allclose(two.learner.parameters(), one.learner.parameters(), rtol=0, atol=1e-4)


# What goes wrong


def drift(learner: TorchLearner) -> None:
    with torch.no_grad():
        learner.theta[0] += learner.context.rank


def fail(learner: TorchLearner) -> None:
    if learner.context.rank == 1:
        raise ValueError("no more")
    learner.context.all_reduce(learner.gradient)


def die(learner: TorchLearner) -> None:
    if learner.context.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    learner.context.all_reduce(learner.gradient)


@pytest.mark.parametrize(
    ("update", "said"),
    [
        (drift, r"learner 2 of 2 \(process \d+, cpu\)'s parameters differ"),
        (fail, r"learner 2 of 2 .* failed: ValueError: no more \(.*test_learners.py:\d+\)"),
        (die, r"learner 2 of 2 .* was killed by SIGKILL; start the run again"),
    ],
    ids=["drifted", "failed", "killed"],
)
def test_a_learner_that_is_lost_is_one_error_at_once(update: Callable[[TorchLearner], None], said: str) -> None:
    def build_learner(**where: Any) -> TorchLearner:
        network: dict[str, Any] = {"encoder": "mlp", "activation": "tanh", "shared": False, "lstm": False}
        shape = Layout.of(spaces.Box(-1, 1, (3,)), {}, ()), make_head(spaces.Discrete(2))
        architecture = Architecture.for_spaces(*shape, hidden_sizes=(4,), initial_log_std=0.0, **network)
        return TorchLearner(architecture, 0, ppo_loss, precision="float32", adam_epsilon=1e-5, **where)

    learners = Learners(build_learner, update, 2, "cpu")
    with learners.training_context(), pytest.raises(LearnerLost, match=said) as caught:
        learners.learn()
    assert "\n" not in str(caught.value)
    assert others() == []


class Toy:
    """A learner that learns nothing, and may come to grief before it meets the others."""

    def __init__(self, number: signal.Signals | None, *, device: str, context: Any) -> None:
        self._number = number if context.rank else None

    @contextmanager
    def training_context(self) -> Iterator[None]:
        if (number := self._number) is not None:
            data_parallel.join_process_group = lambda *_: os.kill(os.getpid(), number)
        yield

    def checksum(self) -> int:
        return 0

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def take(learner: Toy, batch: bytes) -> None:
    pass


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, "was killed by SIGKILL"), (signal.SIGSTOP, "lost their connection")],
    ids=["killed", "stopped"],
)
def test_learners_do_not_wait_forever_for_a_missing_one(
    number: signal.Signals, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_parallel, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(data_parallel, "GRACE_S", 0.2 if number == signal.SIGSTOP else 60.0)  # a death comes, if late
    toy: Any = functools.partial(Toy, number)
    learners = Learners(toy, take, 2, "cpu")
    with pytest.raises(LearnerLost, match=said), learners.training_context():
        pass
    assert others() == []


@pytest.fixture
def run(tmp_path: Path, start: Callable[..., Command]) -> Iterator[tuple[Command, psutil.Process, Path]]:
    """A run with two learners that would take for ever, the second of them, and the folder."""
    path = tmp_path / "run"
    sizes = ["algo.hidden_sizes=[8]", "algo.learners=2", "vec.num_envs=2", "algo.eval_every_iterations=1000"]
    command = start("algo=ppo", "env=cartpole", "compute=serial", *sizes, f"run.dir={path}")
    wait_until(lambda: rows(path) or command.process.poll() is not None)
    assert command.process.poll() is None, command.wait()
    (other,) = (child for child in command.processes() if TOGETHER in command_line(child))
    yield command, other, path


def test_a_run_whose_learner_is_killed_ends_with_one_line(run: tuple[Command, psutil.Process, Path]) -> None:
    command, other, path = run
    other.kill()
    code, _, err = command.wait(10)
    assert code == 1
    assert f"process {other.pid}, cpu) was killed by SIGKILL" in err and str(path) in err
    assert len(err.strip().splitlines()) == 1, err


def test_a_killed_run_leaves_no_learner(run: tuple[Command, psutil.Process, Path]) -> None:
    command, other, _ = run
    command.process.kill()
    command.process.wait()
    wait_until(lambda: not alive(other), timeout_s=5)


def test_learners_that_have_nothing_to_share_are_refused() -> None:
    for changes, said in (
        ({"learners": 0}, "algo.learners=0 must be between 1 and 64"),
        ({"learners": 3, "minibatch_size": 2}, "algo.learners=3 share minibatches of 2 steps"),
        ({"learners": 3, "lstm": True}, "algo.learners=3 share minibatches of 2 environments"),
    ):
        with pytest.raises(ConfigError, match=said):
            make(**changes)


@needs_gpu
def test_more_learners_than_gpus_are_refused() -> None:
    count = torch.cuda.device_count()
    with pytest.raises(ConfigError, match=f"algo.learners={count + 1} on device=cuda: PyTorch finds {count} GPUs"):
        make(device="cuda", learners=count + 1)
    with pytest.raises(ConfigError, match="not cuda:0; use device=cuda"):
        make(device="cuda:0", learners=2)


# Where and how the network is computed


@pytest.mark.parametrize("lstm", [False, True], ids=["mlp", "lstm"])
def test_bfloat16_stays_close_to_float32(lstm: bool) -> None:
    exact, mixed = make(lstm=lstm), make(lstm=lstm, precision="bfloat16")
    row, other = advance(exact, 2)[-1], advance(mixed, 2)[-1]
    assert mixed.learner.parameters().dtype == np.float32
    # Eight bits are one part in 256; the steps taken sum up to about 0.01.
    np.testing.assert_allclose(mixed.learner.parameters(), exact.learner.parameters(), rtol=0, atol=2e-3)
    assert not np.array_equal(mixed.learner.parameters(), exact.learner.parameters())
    assert other["ppo/value_loss"] == pytest.approx(row["ppo/value_loss"], rel=0.02)


@needs_gpu
def test_a_gpu_learns_what_a_cpu_learns() -> None:
    here, there = make(), make(device="cuda")
    advance(here, 2), advance(there, 2)
    np.testing.assert_allclose(there.learner.parameters(), here.learner.parameters(), rtol=0, atol=1e-4)
