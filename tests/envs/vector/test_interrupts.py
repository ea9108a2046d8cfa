"""Ctrl-C where somebody catches it, as a notebook does, and goes on with the vector that they have."""

import _signal  # type: ignore[import-not-found]
import contextlib
import itertools
import signal
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from conftest import env_spec

from paddock.envs.vector import Multiprocess, Native, Serial, VectorMisuse
from paddock.envs.vector.multiprocess.arrivals import Arrivals
from paddock.envs.vector.multiprocess.coordinator import STARTING, Coordinator
from paddock.envs.vector.multiprocess.interrupts import Finalizing, Uninterrupted, waits
from paddock.envs.vector.multiprocess.shared import Semaphore
from paddock.envs.vector.table import Table

CARTPOLE = env_spec("CartPole-v1")
ACTIONS = np.array([0, 1, 1])


def multiprocess(**changes: Any) -> Multiprocess:
    given: dict[str, Any] = {"num_envs": 3, "workers": 3, "batch_size": None, "restart": False, "timeout_s": 5.0}
    return Multiprocess(**(given | changes))


@pytest.fixture(scope="module")
def expected() -> Any:
    """What an undisturbed step gives."""
    with closing(Serial(num_envs=3).make(CARTPOLE)) as venv:
        venv.begin(3)
        return venv.step(ACTIONS)[0]


MOMENTS = [(Table, "mark"), (Semaphore, "post"), (Semaphore, "wait"), (Table, "note"), (Arrivals, "take")]


@pytest.mark.parametrize(("owner", "name"), MOMENTS)
def test_ctrl_c_in_the_midst_of_a_step_leaves_nothing_undone(
    monkeypatch: pytest.MonkeyPatch, expected: Any, owner: type, name: str
) -> None:
    def interrupt(*given: Any) -> Any:
        done = method(*given)
        monkeypatch.setattr(owner, name, method)
        signal.raise_signal(signal.SIGINT)
        return done

    method = getattr(owner, name)
    with closing(multiprocess(batch_size=1).make(CARTPOLE)) as venv:
        venv.begin(3)
        monkeypatch.setattr(owner, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            venv.send(ACTIONS, slice(0, 3))
            venv.recv()
        got = {int(infos["env_id"][0]): seen[0] for seen, *_, infos in (venv.recv() for _ in ACTIONS)}
        np.testing.assert_array_equal([got[i] for i in range(3)], expected)


def test_a_worker_that_is_replaced_when_ctrl_c_comes_is_replaced_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(coordinator: Any, w: int, task: Any) -> None:
        method(coordinator, w, task)
        if task is STARTING:
            monkeypatch.setattr(Coordinator, "_watch", method)
            signal.raise_signal(signal.SIGINT)

    method = Coordinator._watch
    dies = env_spec("toy_envs:Faulty", kwargs={"fault": "kill", "on": 104})
    with closing(multiprocess(restart=True, num_envs=1, workers=1).make(dies)) as venv:
        venv.reset(seed=104)
        venv.step(ACTIONS[:1])
        monkeypatch.setattr(Coordinator, "_watch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            venv.step(ACTIONS[:1])
        truncated = [bool(venv.recv()[3][0])] + [bool(venv.step(ACTIONS[:1])[3][0]) for _ in range(3)]
        assert truncated == [True, False, False, False] and venv.restarts == 1


@pytest.mark.parametrize(("recipe", "owner"), [(Serial(num_envs=3), "_slots"), (Native(num_envs=3, threads=1), "_c")])
def test_no_environment_of_this_process_steps_twice_by_one_action_where_ctrl_c_ends_the_step(
    monkeypatch: pytest.MonkeyPatch, recipe: Any, owner: str
) -> None:
    def interrupt(*given: Any) -> None:
        step(*given)
        signal.raise_signal(signal.SIGINT)

    with closing(recipe.make(CARTPOLE)) as venv:
        venv.begin(3)
        stepper, name = getattr(venv, owner), "step" if owner == "_slots" else "vector_step"
        step = getattr(stepper, name)
        monkeypatch.setattr(stepper, name, interrupt)
        venv.send(ACTIONS)
        with pytest.raises(KeyboardInterrupt):
            venv.recv()
        with pytest.raises(VectorMisuse, match="nothing was sent"):
            venv.recv()


@pytest.mark.parametrize("moment", [1, 2], ids=["it begins", "it ends"])
def test_ctrl_c_as_a_finalizer_begins_or_ends_keeps_no_later_one_away(
    monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """What a finalizer raises is dropped, and the next Ctrl-C comes all the same."""

    @waits(throughout=True)
    def finalize() -> None:
        with contextlib.suppress(KeyboardInterrupt), Finalizing():
            pass

    def tell(number: int, handler: Any) -> Any:
        before = told(number, handler)
        if next(count) == moment:
            signal.raise_signal(signal.SIGINT)
        return before

    own, count, told = signal.getsignal(signal.SIGINT), itertools.count(1), _signal.signal
    monkeypatch.setattr(_signal, "signal", tell)
    finalize()
    assert signal.getsignal(signal.SIGINT) is own
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        signal.raise_signal(signal.SIGINT)
