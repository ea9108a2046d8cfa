"""Vector environments: what all backends give alike, and what becomes of workers that fail."""

import contextlib
import errno
import gc
import json
import logging
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import pytest
import yaml
from conftest import ROOT, alive, call_main, env_spec, wait_until
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy_envs import GYMNASIUMS, Faulty

import envs.making
from envs.errors import ConfigError, split_details
from envs.spaces.layout import Layout
from envs.spec import EnvSpec
from envs.vector import EnvError, Gymnasium, Multiprocess, Native, Serial, VectorMisuse
from envs.vector.buffers import MANY, Buffer, Refused
from envs.vector.contract import keyed_seed
from envs.vector.infos import add_info, pick_infos
from envs.vector.multiprocess import process as process_module
from envs.vector.multiprocess import shared
from envs.vector.multiprocess import vector as multiprocess_module
from envs.vector.multiprocess.coordinator import LOSSES_IN_A_ROW

N = 6


def multiprocess(**changes: Any) -> Multiprocess:
    given: dict[str, Any] = {"num_envs": N, "workers": 3, "batch_size": None, "restart": False, "timeout_s": 60.0}
    return Multiprocess(**(given | changes))


SERIAL = Serial(num_envs=N)
BACKENDS = {"serial": SERIAL, "multiprocess": multiprocess(), "pool": multiprocess(batch_size=4)}
GYMNASIUM = Gymnasium(num_envs=N, mode="sync", start_method="fork")
NATIVE = Native(num_envs=N, threads=1)  # with numbers of its own: tests/native/test_native_vector.py has what it gives
TASKS = {
    "box": env_spec("CartPole-v1"),
    "continuous": env_spec("Pendulum-v1", max_episode_steps=12),
    "discrete": env_spec("toy_envs:Cell-v0", max_episode_steps=9),
    "tuple": env_spec("Blackjack-v1"),
    "parts": env_spec("toy_envs:Parts-v0"),
}


def samples(observation: str, action: str = "start", **changes: Any) -> EnvSpec:
    return env_spec("toy_envs:Samples-v0", kwargs={"observation": observation, "action": action}, **changes)


STRUCTURED = {  # with each kind of space that Gymnasium has
    "padded": samples("padded", "mixed"),
    "text": samples("text", "number"),
    "oneof": samples("oneof", "text"),
    "pile": samples("pile", "oneof", bounds={"pile": 40}),
    "stacked": samples("stacked", "bits", bounds={"element": 40}),
    "graph": samples("graph", "pile", bounds={"0": [10, 100]}, action_bounds={"pile": 40}),
    "edgeless": samples("edgeless", bounds={"element": [10, 1]}),
    "start": samples("start", "stacked", action_bounds={"element": 40}),
    "choice": samples("start", "graph", action_bounds={"0": [10, 100]}),
    "bits": samples("bits", "padded"),
}
FROZEN_LAKE = env_spec("FrozenLake-v1")
BOUNDS = {"pile.pile": 40, "stacked": 40, "graph.0": [10, 100], "edgeless": [10, 1]}
THEIR_BOUNDS = {f"{k}{path}": bound for k, (_, bounds) in enumerate(GYMNASIUMS) for path, bound in bounds.items()}
GYMNASIUMS_OWN = samples("gymnasiums", "gymnasiums", bounds=THEIR_BOUNDS, action_bounds=THEIR_BOUNDS)
EVERYTHING = samples("everything", "mixed", bounds=BOUNDS)


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """Make vectors; all are closed after the test."""
    made: list[Any] = []

    def begin(vec: Any, env: EnvSpec, *arguments: Any, **named: Any) -> Any:
        made.append(vec.make(env, *arguments, **named))
        return made[-1]

    yield begin
    for vec in made:
        vec.close()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    return BACKENDS[request.param]


@pytest.fixture(params=[*BACKENDS, "native"])
def any_backend(request: pytest.FixtureRequest) -> Any:
    return (BACKENDS | {"native": NATIVE})[request.param]


def assert_same(got: Any, expected: Any) -> None:
    """Equal values, types and structure."""
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, tuple | list):
        assert type(got) is type(expected) and len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype
        if expected.dtype == object:
            assert_same(got.tolist(), expected.tolist())
        else:
            np.testing.assert_array_equal(got, expected)
    else:
        assert got == expected


def actions_for(vec: Any, steps: int) -> list[Any]:
    vec.action_space.seed(0)
    return [vec.action_space.sample() for _ in range(steps)]


def workers_of(vec: Any) -> list[psutil.Process]:
    return [psutil.Process(process.child.popen.pid) for process in vec._coordinator._processes]


# The same numbers everywhere


@pytest.mark.parametrize(
    ("backend", "env"),
    [
        *(pytest.param(vec, env, id=f"{name}-{task}") for name, vec in BACKENDS.items() for task, env in TASKS.items()),
        *(pytest.param(SERIAL, env, id=f"serial-{task}") for task, env in STRUCTURED.items()),
        *(pytest.param(multiprocess(workers=1), env, id=f"multiprocess-{task}") for task, env in STRUCTURED.items()),
    ],
)
def test_every_backend_gives_what_gymnasiums_gives(make: Any, backend: Any, env: EnvSpec) -> None:
    ours = make(backend, env)
    theirs = SyncVectorEnv([env.make] * N, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    assert ours.metadata == theirs.metadata
    assert_same(ours.reset(seed=5), theirs.reset(seed=5))
    total, length, ends = np.zeros(N), np.zeros(N, int), 0
    for action in actions_for(ours, 40 if env in TASKS.values() else 15):  # those of the others end sooner
        obs, reward, terminated, truncated, infos = ours.step(action)
        expected = theirs.step(action)
        total, length = total + reward, length + 1
        for i in np.flatnonzero(terminated | truncated):
            episode = infos["final_info"]["episode"]
            assert episode["_r"][i] and episode["r"][i] == total[i] and episode["l"][i] == length[i]
            total[i] = length[i] = 0
            ends += 1
        if "final_info" in infos:  # theirs have none of it
            del infos["final_info"]["episode"], infos["final_info"]["_episode"]
        assert_same((obs, reward, terminated, truncated, infos), expected)
    assert ends > 4
    theirs.close()


@pytest.mark.parametrize("workers", [1, 2, 6])
def test_the_number_of_workers_changes_no_number(make: Any, workers: int) -> None:
    one, other = make(SERIAL, TASKS["parts"]), make(multiprocess(workers=workers), TASKS["parts"])
    assert_same(one.begin(7, episodes=range(N)), other.begin(7, episodes=range(N)))
    for action in actions_for(one, 30):
        assert_same(one.step(action), other.step(action))


def play_in_rows(vec: Any, spec: EnvSpec, steps: int) -> Iterator[tuple[bytes, ...]]:
    """Step a vector whose observations are rows, by actions that are rows; all it gives, as bytes."""
    yield vec.begin(5)[0].tobytes(), b"", b""
    for action in actions_for(vec, steps):
        rows = spec.actions.zeros(N)
        spec.actions.pack(action, rows)
        obs, reward, terminated, truncated, infos = vec.step(rows)
        assert obs.dtype == spec.observations.row and len(obs) == N
        ended = terminated | truncated
        assert ("final_obs" in infos) == ended.any()
        assert not ended.any() or infos["_final_obs"].tolist() == ended.tolist()
        finals = [one.tobytes() for one in infos["final_obs"][ended]] if ended.any() else []
        yield obs.tobytes(), reward.tobytes(), b"".join(finals)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_rows_have_the_same_bytes_whatever_the_workers(make: Any, workers: int) -> None:
    serial, other = make(SERIAL, EVERYTHING, packed=True), make(multiprocess(workers=workers), EVERYTHING, packed=True)
    assert list(play_in_rows(other, EVERYTHING, 10)) == list(play_in_rows(serial, EVERYTHING, 10))


def test_final_observations_of_rows_are_rows_and_last_as_observations_do(make: Any) -> None:
    env, finals = TASKS["box"], []
    for copy in (True, False):
        venv = make(SERIAL, env, packed=True, copy=copy)
        objects = make(SERIAL, env)
        for one in (venv, objects):
            one.begin(5)
        for action in actions_for(objects, 40):
            infos, told = venv.step(action)[4], objects.step(action)[4]
            assert ("final_obs" in infos) == ("final_obs" in told)
            if "final_obs" not in infos:
                continue
            assert infos["final_obs"].dtype == np.float32 and told["final_obs"].dtype == object
            for i, final in enumerate(told["final_obs"]):
                assert infos["_final_obs"][i] == (final is not None)
                assert final is None or infos["final_obs"][i].tobytes() == final.tobytes()
            assert np.shares_memory(infos["final_obs"], venv._table.arrays.final) == (not copy)
            finals.append(infos["final_obs"])
    assert finals


def test_gymnasiums_own_cases_of_varying_size_go_through_shared_memory(make: Any) -> None:
    ours = make(multiprocess(workers=1), GYMNASIUMS_OWN)
    theirs = SyncVectorEnv([GYMNASIUMS_OWN.make] * N, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    observation, _ = ours.reset(seed=2)
    assert_same(observation, theirs.reset(seed=2)[0])
    assert observation in ours.observation_space
    ends = 0
    for action in actions_for(ours, 5):
        got, expected = ours.step(action), theirs.step(action)
        assert_same(got[:4], expected[:4])
        assert got[4]["did"].tolist() == expected[4]["did"].tolist()  # the action that each environment was given
        finals = [one for one in got[4].get("final_obs", []) if one is not None]
        assert all(one in ours.single_observation_space for one in finals)
        ends += len(finals)
    assert ends > 1


@pytest.mark.parametrize("env", [*STRUCTURED.values(), EVERYTHING, FROZEN_LAKE])
def test_rows_hold_what_gymnasiums_form_holds(make: Any, env: EnvSpec) -> None:
    rows, batches, theirs = make(SERIAL, env, packed=True), make(SERIAL, env), make(GYMNASIUM, env, packed=True)
    steps = 25 if env is FROZEN_LAKE else 12
    told = list(play_in_rows(rows, env, steps))
    assert list(play_in_rows(theirs, env, steps)) == told
    layout, ends = env.observations, 0
    for action, (whole, _, finals) in zip([None, *actions_for(batches, steps)], told, strict=True):
        observation, *_, infos = batches.begin(5) if action is None else batches.step(action)
        assert observation in batches.observation_space
        packed = layout.zeros(N)
        layout.pack(observation, packed)
        assert packed.tobytes() == whole  # bytes between the leaves are zeros
        ended = [one for one in infos.get("final_obs", []) if one is not None]
        packed = layout.zeros(len(ended))
        write = layout.writer(packed)
        for k, one in enumerate(ended):
            write(k, one)
        assert packed.tobytes() == finals
        ends += len(ended)
    assert ends > 4


def test_left_out_parts_are_nowhere(make: Any, backend: Any) -> None:
    spec = samples("everything", without=["graph.0", "edgeless", "padded.a.y", "stacked"], bounds={"pile.pile": 40})
    whole = make(SERIAL, EVERYTHING)
    vec = make(backend, spec)
    assert vec.single_observation_space == spec.spaces[0] != EVERYTHING.spaces[0]
    got, expected = vec.begin(3)[0], whole.begin(3)[0]
    assert got in vec.observation_space
    assert got.keys() == expected.keys() - {"edgeless", "stacked"}
    assert_same(got["graph"], expected["graph"][1:])
    assert_same(got["padded"]["a"], {"x": expected["padded"]["a"]["x"]})
    assert_same(got["pile"], expected["pile"])
    vec.step(actions_for(vec, 1)[0])


@pytest.mark.parametrize("workers", [None, 1])
def test_more_than_a_bound_holds_is_an_error(make: Any, workers: int | None) -> None:
    env = samples("pile", bounds={"pile": 2})
    vec = make(SERIAL if workers is None else multiprocess(workers=workers), env)
    with pytest.raises(
        EnvError, match=r"environment \d .*Samples.*items at \['pile'\].*raise env.bounds.pile"
    ) as caught:
        for _ in range(20):
            vec.reset()
    assert "\n" not in str(caught.value)
    vec = make(
        SERIAL if workers is None else multiprocess(workers=workers),
        samples("start", "pile", action_bounds={"pile": 2}),
    )
    vec.reset(seed=0)
    [action] = actions_for(vec, 1)
    piles = tuple(pile[:2] for pile in action["pile"])
    with pytest.raises(VectorMisuse, match=r"3 items at \['pile'\] where 2 at most.*raise env.action_bounds.pile"):
        vec.step(action | {"pile": (piles[0], (np.zeros(2, np.float32),) * 3, *piles[2:])})
    vec.step(action | {"pile": piles})


def mixed(**changes: Any) -> dict[str, Any]:
    return {"gear": 1, "wheel": np.ones(2, np.float32), "lamps": np.ones(2, np.int8)} | changes


@pytest.mark.parametrize(
    ("element", "wrong"),
    [
        (mixed(wheel=np.ones(2)), ""),  # as numbers of its kind are
        (mixed(gear=np.int64(-1), lamps=[1, 0]), ""),
        (mixed(gear=2), r"2 at \['gear'\] where -1 to 1 is declared"),
        (mixed(wheel=np.ones(3, np.float32)), r"shape \(3,\) at \['wheel'\]"),
        (mixed(wheel=np.ones((2, 1), np.float32)), r"shape \(2, 1\) at \['wheel'\]"),
        (mixed(lamps=np.ones(2)), r"dtype float64 at \['lamps'\]"),
        ({"gear": 1}, "no 'lamps', which is declared|no 'wheel', which is declared"),
    ],
)
def test_many_elements_at_once_are_taken_and_refused_as_one_is(element: Any, wrong: str) -> None:
    spec = samples("mixed")
    layout, elements = spec.observations, [mixed() for _ in range(MANY)]
    rows = layout.zeros(MANY + 2)
    buffer = Buffer.of(spec.spaces[0], layout, rows, packed=True)
    buffer.write(slice(1, MANY + 1), elements)
    elements[5] = element
    if wrong:
        with pytest.raises(Refused) as caught:
            buffer.write(slice(1, MANY + 1), elements)
        assert caught.value.row == 6 and re.match(wrong, str(caught.value.cause))
        return
    buffer.write(slice(1, MANY + 1), elements)
    alone = layout.zeros(MANY + 2)
    write = layout.writer(alone)
    for k, one in enumerate(elements):
        write(k + 1, one)
    assert alone.tobytes() == rows.tobytes()


ROWS = np.zeros(N, "V8")


@pytest.mark.parametrize(
    ("actions", "named"),
    [
        (
            {"gear": np.zeros(N, int)},
            r"actions must be a mapping with keys \['gear', 'lamps', 'wheel'\]; got .*\['gear'",
        ),
        (ROWS, "rows of 8 bytes where 24 are declared"),
        (ROWS[:2], r"rows of shape \(2,\) for 6 environments"),
        (
            {"gear": np.full(N, 2), "wheel": np.zeros((N, 2)), "lamps": np.zeros((N, 2), int)},
            r"2 at \['gear'\] where -1",
        ),
        (
            {"gear": np.zeros(N, int), "wheel": np.zeros((N, 3)), "lamps": np.zeros((N, 2), int)},
            r"\(6, 3\) at \['wheel'",
        ),
        ({"gear": np.zeros(N, int), "wheel": np.zeros((N, 2)), "lamps": np.zeros((N, 2))}, r"float64 at \['lamps'\]"),
        ({"gear": np.zeros(2, int), "wheel": np.zeros((N, 2)), "lamps": np.zeros((N, 2), int)}, r"\['gear'\] .* of 6"),
    ],
)
def test_actions_of_another_structure_are_one_clear_line(make: Any, actions: Any, named: str) -> None:
    vec = make(SERIAL, samples("start", "mixed"))
    vec.reset(seed=0)
    with pytest.raises(VectorMisuse, match=named) as caught:
        vec.send(actions)
    assert "\n" not in str(caught.value)
    vec.step(actions_for(vec, 1)[0])


def test_slices_in_turn_give_what_all_together_give(make: Any) -> None:
    whole, halves = make(SERIAL, TASKS["box"]), make(multiprocess(workers=2, batch_size=3), TASKS["box"])
    assert_same(halves.begin(3), whole.begin(3))
    actions = actions_for(whole, 60)
    rows = [slice(0, 3), slice(3, 6)]
    for half in rows:
        halves.send(actions[0][half], half)
    for now, later in zip(actions, [*actions[1:], None], strict=True):
        obs, reward, terminated, truncated, infos = whole.step(now)
        for half in rows:
            got = halves.recv(half)
            assert_same(got[:4], (obs[half], reward[half], terminated[half], truncated[half]))
            assert got[4]["env_id"].tolist() == list(range(N))[half]
            if "final_obs" in got[4]:
                assert_same(got[4]["final_obs"], infos["final_obs"][half])
            if later is not None:
                halves.send(later[half])  # to the rows of the last recv


def test_who_is_ready_first_changes_no_environments_numbers(make: Any) -> None:
    whole, pool = make(SERIAL, TASKS["parts"]), make(multiprocess(batch_size=2), TASKS["parts"])
    whole.begin(3), pool.begin(3)
    actions = actions_for(whole, 40)
    expected = [whole.step(action) for action in actions]
    taken = np.zeros(N, int)
    pool.send(actions[0], slice(0, N))
    while taken.min() < 20:
        _, reward, terminated, truncated, infos = pool.recv()
        ids = infos["env_id"]
        assert len(ids) == 2
        for row, i in enumerate(ids):
            step = expected[taken[i]]
            assert (reward[row], terminated[row], truncated[row]) == (step[1][i], step[2][i], step[3][i])
        taken[ids] += 1
        if taken.max() == 40:
            break
        pool.send(np.stack([actions[taken[i]][i] for i in ids]))


def test_a_key_enters_any_episode(make: Any, any_backend: Any) -> None:
    vec = make(any_backend, TASKS["box"], AutoresetMode.SAME_STEP)
    vec.begin(9)
    actions = actions_for(vec, 150)
    ended: dict[int, list[Any]] = {}
    for action in actions:
        obs, _, terminated, truncated, _ = vec.step(action)
        for i in np.flatnonzero(terminated | truncated).tolist():
            ended.setdefault(i, []).append(obs[i])
    number = min(len(firsts) for firsts in ended.values())
    assert number >= 2 and len(ended) == N
    again, _ = vec.begin(9, episodes=[number] * N)
    for i in range(N):
        np.testing.assert_array_equal(again[i], ended[i][number - 1])


# Chosen environments


def test_chosen_environments_are_stepped_and_restarted(make: Any, backend: Any) -> None:
    env = env_spec("CartPole-v1", max_episode_steps=4)
    vec, alone = make(backend, env, AutoresetMode.DISABLED), [env.make() for _ in range(N)]
    first, _ = vec.reset(seed=list(range(10, 10 + N)))
    assert_same(first, np.stack([one.reset(seed=10 + i)[0] for i, one in enumerate(alone)]))
    for chosen in ([4, 0], [1], [5, 3, 2, 1], [0, 1, 2, 3, 4, 5]):
        ids = np.array(chosen)
        action = ids % 2
        vec.send(action, ids)
        obs, _, _, truncated, infos = vec.recv(ids)
        expected = [alone[i].step(a) for i, a in zip(ids, action, strict=True)]
        assert_same(obs, np.stack([step[0] for step in expected]))
        assert_same(truncated, np.array([step[3] for step in expected]))
        assert len(ids) == N or infos["env_id"].tolist() == chosen
    mask = np.array([False, True, False, True, False, False])
    again, _ = vec.reset(seed=[None, 77, None, 78, None, None], options={"reset_mask": mask})
    assert_same(again[1], alone[1].reset(seed=77)[0])
    assert_same(again[3], alone[3].reset(seed=78)[0])
    np.testing.assert_array_equal(again[~mask][:3], obs[~mask][:3])


def test_what_others_have_to_say_waits_for_their_batch_where_some_are_reset(make: Any) -> None:
    vec = make(multiprocess(), TASKS["parts"])
    vec.reset(seed=100)
    vec.send(actions_for(vec, 1)[0])
    vec._coordinator.wait_for(slice(0, N))
    mask = np.arange(N) >= 4
    infos = vec.reset(seed=200, options={"reset_mask": mask})[1]
    assert infos.keys() == {"limit", "_limit", "options", "_options"} and infos["_limit"].tolist() == mask.tolist()
    infos = vec.recv(slice(0, 4))[4]
    assert infos["_where"].all() and infos["deep"]["name"].tolist() == ["x"] * 4


def test_two_sends_to_one_worker_are_both_answered(make: Any, backend: Any) -> None:
    vec, other = make(backend, TASKS["box"]), make(SERIAL, TASKS["box"])
    vec.reset(seed=1), other.reset(seed=1)
    ones = np.ones(N, int)
    expected = other.step(ones)
    for i in (1, 0):
        vec.send(ones[:1], np.array([i]))
    for i in (0, 1):
        obs, *_ = vec.recv(np.array([i]))
        np.testing.assert_array_equal(obs[0], expected[0][i])


def test_a_batch_is_whole_where_others_were_received_by_their_numbers(make: Any) -> None:
    vec, alone = make(multiprocess(batch_size=2), TASKS["box"]), make(SERIAL, TASKS["box"])
    vec.reset(seed=1), alone.reset(seed=1)
    ones = np.ones(N, int)
    expected = alone.step(ones)[0]
    vec.send(ones[:2], np.arange(2))
    vec.recv(np.array([0]))  # the other of this worker's two is ready, and was first
    vec.send(ones[:4], np.arange(2, 6))
    received = []
    for _ in range(2):
        obs, *_, infos = vec.recv()
        assert len(obs) == 2
        np.testing.assert_array_equal(obs, expected[infos["env_id"]])
        received += infos["env_id"].tolist()
    assert 1 in received[:2] and len(set(received)) == 4
    vec.send(ones[:2])
    assert set(vec.recv(np.array(received[2:]))[-1]["env_id"]) == set(received[2:])


def test_a_reset_drops_what_was_sent(make: Any, backend: Any) -> None:
    vec = make(backend, TASKS["parts"])
    first = vec.reset(seed=1)
    vec.send(actions_for(vec, 1)[0], slice(0, N))
    assert_same(vec.reset(seed=1), first)
    with pytest.raises(VectorMisuse, match="nothing was sent"):
        vec.recv()


# Memory


def test_batches_are_the_callers_own_unless_views_are_asked_for(make: Any, any_backend: Any) -> None:
    own, views = make(any_backend, TASKS["box"]), make(any_backend, TASKS["box"], copy=False)
    for vec, kept in ((own, True), (views, False)):
        vec.reset(seed=0)
        actions = actions_for(vec, 2)
        batch = vec.step(actions[0])
        before = pickle.dumps(batch)
        vec.step(actions[1])
        assert (pickle.dumps(batch) == before) == kept


def test_an_environment_may_keep_its_action(make: Any, backend: Any) -> None:
    vec = make(backend, env_spec("Pendulum-v1", wrappers=[{"_target_": "toy_envs.KeepActions"}]))
    vec.reset(seed=0)
    actions = actions_for(vec, 3)
    for action in actions:
        vec.step(action)
    kept = vec.get_attr("kept")
    np.testing.assert_array_equal(np.stack([np.stack(one) for one in kept], axis=1), np.stack(actions))


# What Gymnasium's have besides


def test_attributes_and_methods_of_the_environments(make: Any, backend: Any) -> None:
    vec = make(backend, env_spec("toy_envs:Faulty-v0", kwargs={"render_mode": "rgb_array"}))
    vec.reset(seed=0)
    assert vec.render_mode == "rgb_array"
    assert vec.get_attr("gain") == (1.0,) * N
    vec.set_attr("gain", 2.5)
    assert vec.step(np.zeros(N, int))[1].tolist() == [2.5] * N
    vec.set_attr("gain", [float(i) for i in range(N)])
    assert vec.step(np.zeros(N, int))[1].tolist() == list(range(N))
    assert vec.call("double", 4) == (8,) * N
    assert [frame.tolist() for frame in vec.render()] == [np.full((2, 2, 3), 2).tolist()] * N
    with pytest.raises(VectorMisuse, match="2 values for 6"):
        vec.set_attr("gain", [1, 2])
    with pytest.raises(EnvError, match=r"environment 0 .* raised in no_such"):
        vec.call("no_such")
    assert vec.step(np.zeros(N, int))[1].tolist() == list(range(N))  # that did no harm


def test_an_attribute_that_cannot_be_sent_leaves_workers_as_they_were(make: Any) -> None:
    venv = make(multiprocess(num_envs=2, workers=2, timeout_s=1.0), faulty(""))
    venv.begin(3)
    with pytest.raises(TypeError, match="pickle"):
        venv.set_attr("gain", [2.0, threading.Lock()])
    assert venv.call("double", 3) == (6, 6)


def test_spaces_without_a_size_are_for_serial(make: Any) -> None:
    env = samples("pile", "stacked")
    theirs = SyncVectorEnv([env.make] * N, autoreset_mode=AutoresetMode.SAME_STEP)
    ours = make(SERIAL, env)
    assert_same(ours.reset(seed=0), theirs.reset(seed=0))
    actions = actions_for(ours, 20)
    for action in actions:
        assert_same(ours.step(action)[0], theirs.step(action)[0])
    with pytest.raises(VectorMisuse, match="actions must be a sequence of 6; got 2"):
        ours.send(actions[0][:2])
    with pytest.raises(
        ConfigError,
        match=r"actions .* size: the space is a Sequence.*\+env.action_bounds.element=n, or wrap .*vec=serial",
    ):
        multiprocess().make(samples("start", "stacked"))
    with pytest.raises(ConfigError, match=r"observations have no fixed size: .*at pile"):
        SERIAL.make(env, packed=True)
    with pytest.raises(ConfigError, match=r"no fixed size.*at pile is a Sequence.*env.bounds.*vec=serial") as caught:
        multiprocess().make(env)
    assert "\n" not in str(caught.value)


# Misuse


@pytest.mark.parametrize(
    ("misuse", "named"),
    [
        (lambda vec: vec.send(np.zeros(N, int), slice(0, N)), "call reset first"),
        (lambda vec: vec.reset(seed=[1, 2]), "2 seeds for 6"),
        (lambda vec: vec.begin(0, episodes=[1]), "1 episode numbers for 6"),
        (lambda vec: vec.reset(options={"reset_mask": [True]}), "reset_mask must be a bool array"),
        (lambda vec: vec.reset(options={"reset_mask": np.zeros(N, bool)}), "picks no environment"),
        (lambda vec: (vec.reset(), vec.recv()), "nothing was sent"),
        (lambda vec: (vec.reset(), vec.send(np.zeros(2, int), slice(0, N))), "2 actions for 6"),
        (lambda vec: (vec.reset(), vec.send(np.zeros((N, 1), int), slice(0, N))), r"\(6, 1\); pass \(6,\)"),
        (lambda vec: (vec.reset(), vec.send(np.zeros(N), slice(0, N))), "dtype float64; expected int64"),
        (lambda vec: (vec.reset(), vec.send(np.zeros(1, int), np.array([6]))), "below 6"),
        (lambda vec: (vec.reset(), vec.send(np.zeros(2, int), np.array([1, 1]))), "twice"),
        (lambda vec: (vec.reset(), [vec.send(np.zeros(N, int), slice(0, N)) for _ in "ab"]), "call recv first"),
        (lambda vec: (vec.reset(), vec.send(np.zeros(1, int), slice(0, 1)), vec.recv(slice(0, 2))), "nothing was sent"),
        (lambda vec: (vec.close(), vec.reset()), "reset: .* closed"),
        (lambda vec: (vec.close(), vec.send(np.zeros(N, int))), "send: .* closed"),
    ],
)
@pytest.mark.parametrize("vec", [SERIAL, multiprocess(workers=1), NATIVE], ids=["serial", "multiprocess", "native"])
def test_misuse_is_one_clear_line(make: Any, vec: Any, misuse: Any, named: str) -> None:
    with pytest.raises(VectorMisuse, match=named) as caught:
        misuse(make(vec, TASKS["box"]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_envs": 0}, "num_envs=0"),
        ({"workers": 4}, "num_envs=6 is not a multiple of workers=4; try workers=3 or num_envs=4"),
        ({"workers": 7}, "workers=7 must be between 1 and num_envs=6"),
        ({"batch_size": 3}, "batch_size=3 is not a multiple of a worker's 2 environments; try 2"),
        ({"batch_size": 7}, "batch_size=7 must be between 1 and num_envs=6"),
        ({"timeout_s": 0.0}, "timeout_s=0.0"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        multiprocess(**changes)


def test_the_offered_recipe_can_be_built_from_its_file() -> None:
    keys = yaml.safe_load((ROOT / "conf" / "vec" / "multiprocess.yaml").read_text())
    assert keys.pop("_target_") == "envs.vector.Multiprocess"
    recipe = Multiprocess(**keys)
    assert recipe == pickle.loads(pickle.dumps(recipe)) and hash(recipe) == hash(Multiprocess(**keys))
    assert recipe.num_envs % recipe.processes == 0


# Faults


def faulty(fault: str, on: int | None = 104, at: int = 2) -> EnvSpec:
    return env_spec("toy_envs:Faulty-v0", kwargs={"fault": fault, "on": on, "at": at})


FAULTS = {
    "raise": r"environment 4 \(toy_envs:Faulty-v0\) raised in step: RuntimeError: the gearbox jammed",
    "leave": r"environment 4 \(toy_envs:Faulty-v0\) raised in step: SystemExit: there is nothing to do here",
    "shape": r"environment 4 .* returned an observation with shape \(3,\) where \(2,\) is declared",
    "exit": "environment 4 .* exited with status 3",
    "segfault": "environment 4 .* killed by SIGSEGV",
    "kill": "environment 4 .* killed by SIGKILL",
    "hang": r"environment 4 .* no answer for 1 s \(vec.timeout_s\)",
}
TRACES = {
    "raise": 'raise RuntimeError("the gearbox jammed")',
    "exit": "about to leave",
    "segfault": "Segmentation fault",
    "hang": "toy_envs.py",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_its_environment_and_its_cause(make: Any, fault: str) -> None:
    vec = make(multiprocess(timeout_s=1.0), faulty(fault))
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


def test_no_worker_is_to_blame_for_time_in_which_everything_was_stopped(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-Z, or where a cluster suspends jobs: nothing runs then, and the clock goes on."""
    vec = make(multiprocess(timeout_s=1.0), faulty("pause"))
    vec.reset(seed=100)
    vec.step(np.zeros(N, int))
    clock = time.monotonic
    stopped = clock() + 0.3  # in the midst of the step that takes its time
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 1000 * (clock() > stopped))
    assert vec.step(np.zeros(N, int))[1].tolist() == [1.0] * N


def test_an_info_that_is_nothing_here_is_named(make: Any) -> None:
    vec = make(multiprocess(), faulty("jam"))
    vec.reset(seed=100)
    vec.step(np.zeros(N, int))
    with pytest.raises(EnvError, match=r"worker 2: .* cannot be unpickled \(TypeError: .*\); have them say plain data"):
        vec.step(np.zeros(N, int))
    vec.reset(seed=0)
    assert vec.step(np.zeros(N, int))[1].tolist() == [1.0] * N


@pytest.mark.parametrize("value", [2**63 + 1, -(2**64), np.timedelta64(3, "s")], ids=["hash", "negative", "time"])
def test_infos_hold_numbers_that_are_too_large_for_an_array_and_times_as_they_are(value: Any) -> None:
    said: list[Any] = [1, value, 2.5, np.array(["2020"], "M8[D]")]
    for order in (said, said[::-1]):
        infos: dict[str, Any] = {}
        for row, one in enumerate(order):
            add_info(infos, {"k": one}, row, len(order))
        assert all(bool(np.all(told == one)) for told, one in zip(infos["k"], order, strict=True))
        assert infos["_k"].all()


def test_infos_of_some_rows_are_picked_whatever_their_keys_are() -> None:
    infos: Any = {}
    for row in range(3):
        said: Any = {7: row, None: {(1, 2): 10.0 * row}, "_x": True}
        add_info(infos, said, row, 3)
    picked: Any = pick_infos(infos, np.array([False, True, True]))
    assert picked.keys() == {7, "_7", None, "_None", "_x", "__x"}
    assert picked[7].tolist() == [1, 2] and picked[None][(1, 2)].tolist() == [10.0, 20.0]


def test_a_worker_that_is_stopped_while_it_is_told_much_is_given_up(make: Any) -> None:
    vec = make(multiprocess(timeout_s=1.0), samples("start"))
    (first, *_) = workers_of(vec)
    first.suspend()
    with pytest.raises(EnvError, match=r"no answer for 1 s \(vec.timeout_s\)"):
        vec.set_attr("load", np.zeros(1 << 22))  # more than a connection holds
    vec.close()


@pytest.mark.parametrize("rows", [slice(0, 2), np.array([0, 1])], ids=["slice", "numbers"])
@pytest.mark.parametrize("shapes", [[(1, 3, 2), (3, 3, 2)], [(2, 2, 3), (2, 2, 3)], [(2, 3, 2), (2, 6)]])
def test_shapes_that_are_wrong_alone_and_right_in_sum_are_refused(rows: Any, shapes: list[tuple[int, ...]]) -> None:
    space = spaces.Box(-1, 1, (2, 3, 2), np.float32)
    layout = Layout.of(space, {}, ())
    array = layout.fields(layout.zeros(2))
    buffer = Buffer.of(space, layout, array)
    buffer.write(rows, [np.ones((2, 3, 2), np.float32)] * 2)
    with pytest.raises(Refused, match=r"shape .* where \(2, 3, 2\) is declared"):
        buffer.write(rows, [np.zeros(shape, np.float32) for shape in shapes])
    assert array.min() == 1


def test_semaphores_wait_by_a_clock_that_nobody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    semaphore = shared.Semaphore(np.zeros(shared.CACHE_LINE, np.uint8))
    semaphore.initialize()

    def jumped() -> float:
        raise AssertionError("the time of day was asked for")

    monkeypatch.setattr(shared.time, "time", jumped)
    assert not semaphore.wait(0.001)
    semaphore.post()
    assert semaphore.wait(0.001)


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
    vec = make(multiprocess(timeout_s=1.0, restart=True, batch_size=batch_size), faulty(fault))
    vec.reset(seed=100)
    first = vec.step(np.zeros(N, int))
    with caplog.at_level(logging.WARNING, "envs.vector"):
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
    ("owner", "method"), [("envs.vector.table:Arrays", "end"), ("envs.vector.slots:Slots", "_write_one")]
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
    assert infos["final_obs"][0].tolist() == [3, 3]  # and not what the next one begins with
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
    envs.making._warn.cache_clear()
    vec = SERIAL.make(replace(faulty("close"), fresh=fresh))
    vec.reset(seed=0)
    while not vec.step(np.zeros(N, int))[2].any():
        pass
    vec.close()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["env.id=toy_envs:Faulty-v0 raised in close: RuntimeError: the door sticks"]


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


# Ends


def test_closing_leaves_nothing_and_is_quick() -> None:
    gc.collect()  # of other tests
    before = len(os.listdir("/proc/self/fd"))
    vec = multiprocess().make(TASKS["box"])
    vec.reset(seed=0)
    vec.send(np.zeros(N, int))  # and never received
    processes = workers_of(vec)
    started = time.monotonic()
    vec.close()
    vec.close()
    assert time.monotonic() - started < 2
    assert not any(process.is_running() for process in processes)
    del vec
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("step", ["lay_out", "initialize", "Table"])
def test_a_vector_that_cannot_begin_leaves_no_file_open(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise ConfigError("no semaphores here")

    places: dict[str, Any] = {
        "lay_out": shared.SharedBuffers,
        "initialize": shared.Semaphore,
        "Table": multiprocess_module,
    }
    real = shared.SharedBuffers.lay_out
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    # Laid out once to be measured, and then in memory.
    calls: Iterator[Any] = iter([real, fail])
    later = staticmethod(lambda *given: next(calls)(*given))
    monkeypatch.setattr(places[step], step, later if step == "lay_out" else fail)
    with pytest.raises(ConfigError, match="no semaphores here"):
        multiprocess().make(TASKS["box"])
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) == before


SCRIPT = """
import sys, numpy as np
sys.path[:0] = {path!r}
from envs.spec import EnvSpec
from envs.vector import Multiprocess
recipe = Multiprocess(num_envs=4, workers=2, batch_size=None, restart=False, timeout_s=60)
kwargs = {{"fault": {fault!r}, "at": 2, "on": None}}
env = EnvSpec(id="toy_envs:Faulty-v0", kwargs=kwargs, wrappers=(), max_episode_steps=None, fresh=False)
vec = recipe.make(env)
vec.reset(seed=0)
vec.step(np.zeros(4, int))
print(*(process.child.popen.pid for process in vec._coordinator._processes), flush=True)
{then}
"""


def run_script(then: str, fault: str = "") -> tuple[subprocess.Popen, list[psutil.Process]]:
    script = SCRIPT.format(path=[str(ROOT), str(ROOT / "tests")], fault=fault, then=then)
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]


@pytest.mark.parametrize(
    ("then", "fault"),
    [
        ("__import__('signal').pause()", ""),
        ("vec.step(np.zeros(4, int))", "hang"),
        ("while True: vec.step(np.zeros(4, int))", ""),
    ],
    ids=["idle", "hanging", "stepping"],
)
def test_no_worker_outlives_a_killed_parent(then: str, fault: str) -> None:
    process, workers = run_script(then, fault)
    assert len(workers) == 2
    assert not any(region.path.startswith("/dev/shm/") for one in workers for region in one.memory_maps())
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(alive, workers)), timeout_s=10)


def test_a_forgotten_close_holds_nothing_up() -> None:
    process, workers = run_script("sys.stdin.readline(); vec.send(np.zeros(4, int))")  # it ends when all are known
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0 and errors == ""
    wait_until(lambda: not any(map(alive, workers)), timeout_s=10)


def test_interrupting_the_group_is_the_parents_business() -> None:
    process, workers = run_script("[vec.step(np.zeros(4, int)) for _ in range(10**9)]")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt")
    wait_until(lambda: not any(map(alive, workers)), timeout_s=10)


def test_workers_leave_signals_to_their_parent_and_hide_none_from_what_environments_start() -> None:
    before = set(psutil.Process().children(recursive=True))
    with contextlib.closing(multiprocess(num_envs=4, workers=2).make(TASKS["box"])) as vec:
        vec.reset(seed=0)
        workers = set(psutil.Process().children(recursive=True)) - before
        assert len(workers) == 2
        for number in (signal.SIGINT, signal.SIGTERM):
            for worker in workers:
                worker.send_signal(number)
            vec.step(vec.action_space.sample())
        assert all(map(alive, workers))
        for worker in workers:
            ignored = re.search(r"SigIgn:\t(\w+)", Path(f"/proc/{worker.pid}/status").read_text())
            assert ignored is not None and not int(ignored[1], 16) >> (signal.SIGTERM - 1) & 1


def make_one() -> None:
    vec = multiprocess(num_envs=2, workers=1).make(TASKS["box"])
    vec.reset(seed=0)
    vec.close()


def test_a_daemonic_process_may_have_workers() -> None:
    process = multiprocessing.get_context("spawn").Process(target=make_one, daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode == 0
