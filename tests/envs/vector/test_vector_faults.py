"""Environments and workers that fail: whose fault it was, and what becomes of the others."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import call_main, env_spec
from vector_cases import (
    FAULTS,
    SERIAL,
    TRACES,
    N,
    assert_same,
    faulty,
    make_fixture,  # noqa: F401
    multiprocess,
    workers_of,
)

from paddock.envs.errors import ConfigError
from paddock.envs.vector import EnvError, Serial, VectorMisuse
from paddock.envs.vector.contract import keyed_seed
from paddock.envs.vector.multiprocess.coordinator import MAX_RESTARTS

TURN = np.zeros(2, int)


def patience_s(fault: str) -> float:
    """For how long a worker is waited for: briefly only where one hangs, as the machine may hold up the others."""
    return 1.0 if fault == "hang" else 60.0


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_its_environment_and_its_cause(make: Any, fault: str) -> None:
    vec = make(multiprocess(timeout_s=patience_s(fault)), faulty(fault))
    processes = workers_of(vec)
    vec.reset(seed=100)
    vec.step(np.zeros(N, int))
    with pytest.raises(EnvError, match=FAULTS[fault]) as caught:
        vec.step(np.zeros(N, int))
    assert TRACES.get(fault, "") in str(caught.value)
    with pytest.raises(VectorMisuse, match="call reset first"):
        vec.send(np.zeros(N, int))
    vec.close()
    vec.close()
    assert not any(process.is_running() for process in processes)


@pytest.mark.parametrize(("fault", "batch_size"), [("raise", N), ("hang", N), ("kill", N), ("kill", 2)])
def test_a_replaced_workers_episodes_end_truncated(
    make: Any, fault: str, batch_size: int, caplog: pytest.LogCaptureFixture
) -> None:
    vec = make(multiprocess(timeout_s=patience_s(fault), restart=True, batch_size=batch_size), faulty(fault))
    vec.reset(seed=100)
    first = vec.step(np.zeros(N, int))
    with caplog.at_level(logging.WARNING, "paddock.envs.vector"):
        obs, reward, terminated, truncated, infos = vec.step(np.zeros(N, int))
    assert vec.restarts == 1 and "environment 4" in caplog.text and "replaced" in caplog.text
    assert truncated.tolist() == [False] * 4 + [True] * 2 and not terminated.any()
    assert reward.tolist() == [1.0] * 4 + [0.0] * 2
    for i in (4, 5):
        np.testing.assert_array_equal(infos["final_obs"][i], first[0][i])
    assert infos["final_info"]["episode"]["l"].tolist() == [0] * 4 + [1] * 2
    assert obs[4:, 0].tolist() == [0, 0]  # the first of a new episode
    for _ in range(3):
        _, reward, _, truncated, _ = vec.step(np.zeros(N, int))
        assert reward.tolist() == [1.0] * N and not truncated.any()
    assert vec.restarts == 1


def test_a_replacement_begins_on_a_seed_that_does_not_depend_on_luck(make: Any) -> None:
    def after_loss(start: Callable[[Any], Any]) -> Any:
        vec = make(multiprocess(restart=True), faulty("exit"))
        start(vec)
        vec.set_attr("gain", 3.0)
        return [vec.step(np.zeros(N, int))[0] for _ in range(2)], vec.step(np.zeros(N, int))[1]

    one, other = (after_loss(lambda vec: vec.reset(seed=100)) for _ in "ab")
    assert_same(one, other)
    assert one[1].tolist() == [3.0] * N  # it was told what the one before it had been told


def test_the_next_keyed_episode_follows_a_lost_one(make: Any) -> None:
    vec, other = make(multiprocess(restart=True), faulty("kill", on=None)), make(SERIAL, faulty(""))
    vec.begin(5)
    obs, *_ = vec.step(np.zeros(N, int))
    workers_of(vec)[2].kill()
    obs, *_ = vec.step(np.zeros(N, int))
    expected, _ = other.begin(5, episodes=[1] * N)
    np.testing.assert_array_equal(obs, expected)


@pytest.mark.parametrize(
    ("owner", "method"),
    [("paddock.envs.vector.table:Arrays", "end"), ("paddock.envs.vector.slots:Slots", "_write_one")],
)
def test_a_worker_that_dies_at_an_episode_end_repeats_that_step(make: Any, owner: str, method: str) -> None:
    torn = env_spec("toy_envs:Torn", kwargs={"on": keyed_seed(5, 0, 0), "owner": owner, "method": method})
    vec, other = make(multiprocess(restart=True, num_envs=1, workers=1), torn), make(Serial(num_envs=1), torn)
    vec.begin(5)
    for _ in range(2):
        vec.step(np.zeros(1, int))
    obs, reward, terminated, truncated, infos = vec.step(np.zeros(1, int))
    assert (reward[0], terminated[0], truncated[0], vec.restarts) == (0.0, False, True, 1)
    episode = infos["final_info"]["episode"]
    assert (episode["r"].tolist(), episode["l"].tolist()) == ([2.0], [2])
    assert infos["final_obs"][0].tolist() == [2, 2]  # what it saw before that step
    np.testing.assert_array_equal(obs, other.begin(5, episodes=[1])[0])


@pytest.mark.parametrize("lost", [(1, 2)])
def test_workers_that_are_lost_at_once_are_all_told_again_what_was_asked(make: Any, lost: tuple[int, ...]) -> None:
    vec, other = make(multiprocess(restart=True), faulty("")), make(SERIAL, faulty(""))
    for w in lost:
        vec._coordinator._processes[w].child.kill()
    np.testing.assert_array_equal(vec.begin(5)[0], other.begin(5)[0])
    assert vec.restarts == len(lost) and vec.call("count") == (0,) * N
    for w in lost:
        vec._coordinator._processes[w].child.kill()
    vec.set_attr("gain", 3.0)
    assert vec.call("gain") == (3.0,) * N and vec.restarts == 2 * len(lost)


def test_a_worker_that_fails_again_and_again_is_given_up(make: Any) -> None:
    vec = make(multiprocess(workers=1, restart=True), faulty("exit", on=None, at=1))
    vec.reset(seed=0)
    with pytest.raises(EnvError, match="in a row"):
        for _ in range(2 + MAX_RESTARTS):
            vec.step(np.zeros(N, int))
    assert vec.restarts == MAX_RESTARTS


def test_an_environment_that_cannot_be_made_says_why_before_a_worker_starts() -> None:
    with pytest.raises(ConfigError, match=r"cannot be made with env.kwargs=.*: RuntimeError: no such thing"):
        multiprocess().make(faulty("make"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["algo=ppo"], "paddock: environment 0 ("),
        (
            ["algo=es", "algo.population=4"],
            "paddock: every member of the population was lost; first error: EnvError: ",
        ),
    ],
    ids=["serial", "task"],
)
def test_a_users_traceback_is_shown_as_python_shows_it(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["env=gymnasium", "env.id=toy_envs:Faulty-v0", "+env.kwargs.fault=raise", "vec.num_envs=1"]
    where = ["compute=serial", f"run.dir={tmp_path / 'run'}", "budget.iterations=2"]
    assert call_main(*words, *given, *where) == 1
    shown = capsys.readouterr().err.splitlines()
    begin = shown.index("Traceback (most recent call last):")
    assert any("toy_envs.py" in text for text in shown[begin:]) and shown[-2] == "RuntimeError: the gearbox jammed"
    assert shown[-1].startswith(line) and shown[-1].endswith(f"(the run so far is in {tmp_path / 'run'})")
    assert json.loads((tmp_path / "run" / "done.json").read_text())["reason"].endswith("the gearbox jammed")
