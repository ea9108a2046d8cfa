"""Environments and workers that fail: whose fault it was, and what becomes of the others."""

import errno
import io
import json
import logging
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from conftest import call_main, env_spec, wait_until
from toy_envs import Faulty
from vector_cases import (
    FAULTS,
    GYMNASIUM,
    SERIAL,
    TRACES,
    N,
    assert_same,
    faulty,
    make_fixture,  # noqa: F401
    multiprocess,
    samples,
    workers_of,
)

import paddock.envs.making
from paddock.envs.errors import PaddockError, split_details
from paddock.envs.making import CannotBeMade
from paddock.envs.vector import EnvError, Serial, VectorMisuse
from paddock.envs.vector.contract import keyed_seed
from paddock.envs.vector.multiprocess import coordinator, worker
from paddock.envs.vector.multiprocess import process as process_module
from paddock.envs.vector.multiprocess.coordinator import LOSSES_IN_A_ROW

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


@pytest.mark.parametrize("verb", ["make", "reset", "step"])
def test_an_environment_that_leaves_ends_no_process_of_ours(
    make: Any, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: Any, **__: Any) -> Any:
        raise SystemExit(0)

    monkeypatch.setattr(Faulty, "__init__" if verb == "make" else verb, leave)
    with pytest.raises(EnvError, match=f"environment 0 .*Faulty-v0. raised in {verb}: SystemExit: 0"):
        vec = make(SERIAL, faulty(""))
        vec.reset(seed=100)
        vec.step(np.zeros(N, int))


@pytest.mark.parametrize("verb", ["make", "reset", "step"])
def test_an_error_that_has_no_text_is_named(make: Any, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fail(*_: Any, **__: Any) -> NoReturn:
        raise Mute

    monkeypatch.setattr(Faulty, "__init__" if verb == "make" else verb, fail)
    with pytest.raises(
        EnvError, match=f"environment 0 .*raised in {verb}: Mute: no text, as its __str__ raises ValueE"
    ):
        vec = make(SERIAL, faulty(""))
        vec.reset(seed=100)
        vec.step(np.zeros(N, int))
    if verb == "make":
        with pytest.raises(CannotBeMade, match="Mute: no text"):
            faulty("").spaces  # noqa: B018


@pytest.mark.parametrize("started", [np.zeros(2, np.float32), {"at": 0, "gear": 1}, (np.zeros(2, np.float32), None)])
@pytest.mark.parametrize("enter", [lambda vec: vec.reset(seed=100), lambda vec: vec.begin(seed=100)])
def test_a_reset_without_an_info_is_named(
    make: Any, enter: Callable[[Any], Any], started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "reset", lambda *_, **__: started)
    with pytest.raises(EnvError, match=r"environment 0 .*Faulty-v0. returned from reset what is no observation with"):
        enter(make(SERIAL, faulty("")))


def test_a_step_of_the_interface_before_gymnasiums_is_told_what_it_is_now(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "step", lambda *_: (np.zeros(2, np.float32), 1.0, False, {}))
    vec = make(SERIAL, faulty(""))
    vec.reset(seed=100)
    with pytest.raises(EnvError) as caught:
        vec.step(np.zeros(N, int))
    line, trace = split_details(caught.value)
    assert line.startswith("environment 0 (toy_envs:Faulty-v0) raised in step: ValueError: not enough values to unpack")
    assert line.endswith(
        "; where its step returns those, mend it to return (observation, reward, terminated, truncated, info)"
    )
    assert "ValueError" in trace


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (1, np.ones(1)),
        (1, np.ones(2)),
        (1, 1j),
        (1, 10**5000),
        (1, "much"),
        (1, "1.5"),
        (1, None),
        (2, "False"),
        (3, None),
    ],
    ids=["one", "two", "complex", "large", "word", "text", "nothing", "flag", "no flag"],
)
def test_a_reward_or_a_flag_that_is_no_number_is_named_with_its_environment(
    make: Any, place: int, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    vec = make(SERIAL, faulty(""))
    vec.reset(seed=100)
    step = Faulty.step

    def pay(self: Faulty, action: Any) -> tuple[Any, ...]:
        given = list(step(self, action))
        if self.seed == 101:
            given[place] = value
        return tuple(given)

    monkeypatch.setattr(Faulty, "step", pay)
    with pytest.raises(EnvError, match=r"environment 1 .*Faulty-v0. returned reward, .* one number for each$"):
        vec.step(np.zeros(N, int))


@pytest.mark.parametrize(("place", "value"), [(1, "1.5"), (1, None), (2, "False"), (3, None)])
def test_gymnasiums_vectors_refuse_text_and_none_for_numbers_in_the_same_words(
    make: Any, place: int, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Faulty.step
    monkeypatch.setattr(Faulty, "step", lambda *given: (*(told := step(*given))[:place], value, *told[place + 1 :]))
    said = []
    for recipe in (SERIAL, GYMNASIUM):
        vec = make(recipe, faulty(""))
        vec.reset(seed=100)
        with pytest.raises(EnvError, match=r"returned reward, terminated and truncated as .*text or None") as caught:
            vec.step(np.zeros(N, int))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_no_worker_is_to_blame_for_time_in_which_everything_was_stopped(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-Z, or where a cluster suspends jobs: nothing runs then, and the clock goes on."""
    vec = make(multiprocess(timeout_s=60.0), faulty("pause"))
    vec.reset(seed=100)
    vec.step(np.zeros(N, int))
    clock = time.monotonic
    stopped = clock() + 0.3  # in the midst of the step that takes its time
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 1000 * (clock() > stopped))
    assert vec.step(np.zeros(N, int))[1].tolist() == [1.0] * N


def test_a_workers_standard_error_has_all_that_the_terminal_has(tmp_path: Path) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), "utf-16", write_through=True)
    with open(tmp_path / "log", "w+b") as log:
        tee = worker._Tee(terminal, log.fileno())
        assert (tee.encoding, tee.buffer) == ("utf-16", terminal.buffer) and tee.writable() and not tee.isatty()
        print("first", file=tee, flush=True)
        tee.writelines(["second\n", "third\n"])
        log.seek(0)
        assert log.read().decode() == terminal.buffer.getvalue().decode("utf-16") == "first\nsecond\nthird\n"


def test_an_info_that_is_nothing_here_is_named(make: Any) -> None:
    vec = make(multiprocess(), faulty("jam"))
    vec.reset(seed=100)
    vec.step(np.zeros(N, int))
    with pytest.raises(EnvError, match=r"worker 2: .* cannot be unpickled \(TypeError: .*\); have them say plain data"):
        vec.step(np.zeros(N, int))
    vec.reset(seed=0)
    assert vec.step(np.zeros(N, int))[1].tolist() == [1.0] * N


def test_a_worker_that_is_stopped_while_it_is_told_much_is_given_up(make: Any) -> None:
    vec = make(multiprocess(timeout_s=1.0), samples("start"))
    (first, *_) = workers_of(vec)
    first.suspend()
    with pytest.raises(EnvError, match=r"no answer for 1 s \(vec.timeout_s\)"):
        vec.set_attr("load", np.zeros(1 << 22))  # more than a connection holds
    vec.close()


@pytest.mark.parametrize("fault", ["raise", "shape"])
def test_serial_names_its_environment_too(make: Any, fault: str) -> None:
    vec = make(SERIAL, faulty(fault))
    vec.reset(seed=100)
    vec.step(np.zeros(N, int))
    with pytest.raises(EnvError, match=FAULTS[fault]):
        vec.step(np.zeros(N, int))
    vec.reset(seed=0)
    vec.step(np.zeros(N, int))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("batch_size", [N, 2])
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
def test_a_worker_that_dies_as_it_enters_the_end_of_an_episode_has_not_done_that_step(
    make: Any, owner: str, method: str
) -> None:
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


def test_a_worker_lost_between_two_sends_is_replaced_too(make: Any) -> None:
    vec = make(multiprocess(restart=True, workers=2), faulty("exit"))
    vec.reset(seed=100)
    for _ in range(2):  # the second kills the worker of 3, 4 and 5
        vec.send(np.zeros(1, int), np.array([4]))
        _, reward, _, truncated, _ = vec.recv()
    assert reward.tolist() == [0] and truncated.tolist() == [True]
    vec.send(np.zeros(N, int))
    _, reward, _, truncated, _ = vec.recv()
    assert truncated.tolist() == [False, False, False, True, False, True]
    assert reward.tolist() == [1, 1, 1, 0, 1, 0]
    assert vec.restarts == 1


@pytest.mark.parametrize("lost", [(0, 1, 2), (1, 2)])
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
        for _ in range(2 + LOSSES_IN_A_ROW):
            vec.step(np.zeros(N, int))
    assert vec.restarts == LOSSES_IN_A_ROW


def test_a_worker_that_is_given_up_as_another_is_replaced_is_not_waited_for(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*given: Any) -> Any:
        time.sleep(0.6)
        return process_module.WorkerProcess(*given)

    spec = env_spec("toy_envs:Faulty-v0", kwargs={"at": 1, "nap_s": 0.3})
    vec = make(multiprocess(num_envs=2, workers=2, restart=True), spec)
    vec.set_attr("fault", ["", "exit"])
    vec.reset(seed=0)
    while vec.restarts < LOSSES_IN_A_ROW:
        vec.step(TURN)
    workers_of(vec)[0].kill()  # which is noticed before the other one ends once more, as this one is replaced
    monkeypatch.setattr(coordinator, "WorkerProcess", start)
    with pytest.raises(EnvError, match=r"environment 1 .* in a row"):
        for _ in range(2):
            vec.step(TURN)


def test_a_reset_that_failed_is_done_whole_when_it_is_asked_for_again(make: Any) -> None:
    spec = faulty("", on=None)
    vec, other = make(multiprocess(num_envs=2, workers=2), spec), make(Serial(num_envs=2), spec)
    first: dict[str, Any] = {"seed": [5, None], "options": {"reset_mask": np.array([True, False])}}
    vec.begin(3)
    other.begin(3)
    vec.set_attr("at", 1)
    vec.set_attr("fault", ["raise", ""])
    vec.send(TURN)
    with pytest.raises(EnvError, match=r"environment 0 .* raised in step"):
        vec.reset(**first)
    vec.set_attr("fault", "")
    for one in (vec, other):
        if one is other:
            one.send(TURN[1:], np.array([1]))
        one.recv(np.array([1]))
    assert_same(vec.reset(**first), other.reset(**first))
    for _ in range(52):  # in which the other episode ends, whose next one has no key any more
        assert_same(vec.step(TURN)[0], other.step(TURN)[0])


def test_workers_that_could_not_be_started_are_once_they_can(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    vec = make(multiprocess(num_envs=2, workers=2, restart=True), faulty(""))
    vec.reset(seed=0)
    workers_of(vec)[0].kill()
    with monkeypatch.context() as patch:
        patch.setattr(process_module, "ChildProcess", refuse)
        with pytest.raises(EnvError, match=r"worker 0 of 2 cannot be started .* in a row"):
            vec.step(TURN)
        with pytest.raises(EnvError, match="worker 0 of 2 cannot be started"):
            vec.reset(seed=0)
    vec.reset(seed=0)
    assert vec.step(TURN)[1].tolist() == [1.0, 1.0]


def test_a_worker_that_dies_in_the_midst_of_what_it_says_is_replaced(make: Any) -> None:
    vec = make(multiprocess(workers=1, restart=True), faulty("say", on=None, at=1))
    vec.reset(seed=0)
    (process,) = workers_of(vec)
    vec.send(np.zeros(N, int))
    wait_until(vec._coordinator._processes[0].child.connection.poll)
    process.kill()
    assert vec.recv()[3].all() and vec.restarts == 1


@pytest.mark.parametrize("restart", [False, True])
def test_a_worker_that_cannot_start_says_why(restart: bool) -> None:
    with pytest.raises(EnvError, match=r"environment 0 .* raised in make: RuntimeError: no such thing"):
        multiprocess(restart=restart).make(faulty("make"))


def test_workers_that_the_system_has_no_room_for_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(process_module, "ChildProcess", refuse)
    remedy = r"worker 0 of 3 cannot be started \(Too many open files\); ask for fewer by vec.workers=.*ulimit -n"
    with pytest.raises(EnvError, match=remedy) as caught:
        multiprocess().make(faulty(""))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fresh", [False, True])
def test_an_environment_that_cannot_be_closed_costs_a_warning(fresh: bool, caplog: pytest.LogCaptureFixture) -> None:
    paddock.envs.making._warn.cache_clear()
    vec = SERIAL.make(replace(faulty("close"), fresh=fresh))
    vec.reset(seed=0)
    while not vec.step(np.zeros(N, int))[2].any():
        pass
    vec.close()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["env.id=toy_envs:Faulty-v0 raised in close: RuntimeError: the door sticks"]


@pytest.mark.parametrize("late", [False, True], ids=["one cannot be made", "their rows cannot be laid out"])
def test_environments_are_closed_where_the_others_or_the_vector_cannot_be_made(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Faulty] = []
    closed: list[Faulty] = []
    start = Faulty.__init__

    def begin(self: Faulty, *given: Any, **named: Any) -> None:
        if len(made) == 3 and not late:
            raise RuntimeError("no licence left")
        made.append(self)
        start(self, *given, **named)

    monkeypatch.setattr(Faulty, "__init__", begin)
    monkeypatch.setattr(Faulty, "close", lambda self: closed.append(self))
    with pytest.raises(PaddockError, match="no part of the space" if late else "environment 3 .* no licence left"):
        SERIAL.make(replace(faulty(""), without=("x",)) if late else faulty(""))
    assert len(made) == (N if late else 3) and closed == made


def test_an_environment_that_leaves_as_it_is_closed_or_looked_at_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def leave(*_: Any, **__: Any) -> NoReturn:
        raise SystemExit(3)

    paddock.envs.making._warn.cache_clear()
    monkeypatch.setattr(Faulty, "close", leave)
    SERIAL.make(faulty("")).close()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["env.id=toy_envs:Faulty-v0 raised in close: SystemExit: 3"]
    monkeypatch.setattr(Faulty, "__init__", leave)
    with pytest.raises(CannotBeMade, match=r"^env.id=toy_envs:Faulty-v0 cannot be made with .*: SystemExit: 3\n"):
        faulty("").spaces  # noqa: B018


@pytest.mark.parametrize("vec", [SERIAL, multiprocess()], ids=["serial", "multiprocess"])
def test_a_traceback_begins_at_the_environments_own_frames(make: Any, vec: Any) -> None:
    wrapper = {"_target_": "gymnasium.wrappers.ClipReward", "max_reward": 1.0}
    venv = make(vec, replace(faulty("raise"), wrappers=(wrapper,)))
    venv.reset(seed=100)
    venv.step(np.zeros(N, int))
    with pytest.raises(EnvError) as caught:
        venv.step(np.zeros(N, int))
    line, details = split_details(pickle.loads(pickle.dumps(caught.value)))
    assert line == "environment 4 (toy_envs:Faulty-v0) raised in step: RuntimeError: the gearbox jammed"
    lines = details.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "RuntimeError: the gearbox jammed"
    frames = [text for text in lines if text.startswith("  File ")]
    assert len(frames) == 1 and "toy_envs.py" in frames[0] and frames[0].endswith("in step")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["algo=ppo"], "paddock: environment 0 ("),
        (["algo=ppo", "vec=multiprocess"], "paddock: environment 0 ("),
        (
            ["algo=es", "algo.population=4"],
            "paddock: every member of the population was lost; the first: EnvError: ",
        ),
    ],
    ids=["serial", "multiprocess", "task"],
)
def test_a_users_traceback_is_shown_as_python_shows_it(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["env=gymnasium", "env.id=toy_envs:Faulty-v0", "+env.kwargs.fault=raise", "vec.num_envs=1"]
    where = ["compute=serial", f"run.dir={tmp_path / 'run'}", "budget.iterations=2"]
    assert call_main(*words, *given, *where) == 1
    shown = capsys.readouterr().err.splitlines()
    begin = shown.index("Traceback (most recent call last):")
    assert "toy_envs.py" in shown[begin + 1] and shown[-2] == "RuntimeError: the gearbox jammed"
    assert shown[-1].startswith(line) and shown[-1].endswith(f"(the run so far is in {tmp_path / 'run'})")
    assert json.loads((tmp_path / "run" / "done.json").read_text())["reason"].endswith("the gearbox jammed")
