"""Vector environments: what all backends give alike, and what becomes of workers that fail."""

import pickle
from typing import Any

import numpy as np
import pytest
from conftest import env_spec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from vector_cases import (  # noqa: F401
    BACKENDS,
    EVERYTHING,
    NATIVE,
    SERIAL,
    STRUCTURED,
    TASKS,
    N,
    actions_for,
    any_backend_fixture,
    assert_same,
    backend_fixture,
    faulty,
    make_fixture,
    multiprocess,
    samples,
)

from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import EnvError, VectorMisuse

# The same numbers everywhere


@pytest.mark.parametrize(
    ("backend", "env"),
    [
        *(pytest.param(SERIAL, env, id=f"serial-{task}") for task, env in TASKS.items()),
        *(pytest.param(BACKENDS[name], TASKS["parts"], id=f"{name}-parts") for name in ("multiprocess", "pool")),
        *(pytest.param(SERIAL, env, id=f"serial-{task}") for task, env in STRUCTURED.items()),
        pytest.param(multiprocess(workers=2), STRUCTURED["pile"], id="multiprocess-pile"),
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


def test_left_out_parts_are_nowhere(make: Any, backend: Any) -> None:
    spec = samples("everything", without=["rooms.0", "padded.a.y", "stacked"], bounds={"pile.pile": 40})
    whole = make(SERIAL, EVERYTHING)
    vec = make(backend, spec)
    assert vec.single_observation_space == spec.spaces[0] != EVERYTHING.spaces[0]
    got, expected = vec.begin(3)[0], whole.begin(3)[0]
    assert got in vec.observation_space
    assert got.keys() == expected.keys() - {"stacked"}
    assert_same(got["rooms"], expected["rooms"][1:])
    assert_same(got["padded"]["a"], {"x": expected["padded"]["a"]["x"]})
    assert_same(got["pile"], expected["pile"])
    vec.step(actions_for(vec, 1)[0])


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
    vec = make(any_backend, TASKS["box"], autoreset=AutoresetMode.SAME_STEP)
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
    vec, alone = make(backend, env, autoreset=AutoresetMode.DISABLED), [env.make() for _ in range(N)]
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


def test_what_has_ended_is_not_stepped_before_its_reset(make: Any, any_backend: Any) -> None:
    vec = make(any_backend, env_spec("CartPole-v1", max_episode_steps=1), autoreset=AutoresetMode.DISABLED)
    vec.reset(seed=0)
    for _ in "ab":
        ids = np.array([1, 4])
        vec.send(np.zeros(2, int), ids)
        assert vec.recv(ids)[3].all()
        with pytest.raises(
            VectorMisuse, match=r"^send: the episode of environment 4 has ended; reset it first with opt"
        ):
            vec.send(np.zeros(2, int), np.array([2, 4]))
        with pytest.raises(
            VectorMisuse, match=r"^send: the episode of environment 1 has ended; reset it first with opt"
        ):
            vec.step(np.zeros(N, int))
        vec.reset(options={"reset_mask": np.isin(np.arange(N), ids)})
    vec.step(np.zeros(N, int))


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
    with pytest.raises(EnvError, match=r"environment 0 .* raised in set_attr of unwrapped: AttributeError"):
        vec.set_attr("unwrapped", None)
    assert vec.step(np.zeros(N, int))[1].tolist() == list(range(N))  # that did no harm


# Misuse


@pytest.mark.parametrize(
    ("misuse", "named"),
    [
        (lambda vec: vec.send(np.zeros(N, int), slice(0, N)), "call reset first"),
        (lambda vec: vec.reset(seed=[1, 2]), "2 seeds for 6"),
        (lambda vec: (vec.reset(), vec.recv()), "nothing was sent"),
        (lambda vec: (vec.reset(), vec.send(np.zeros(2, int), slice(0, N))), r"shape \(2,\), expected \(6,\)"),
        (lambda vec: (vec.reset(), vec.send(np.zeros(1, int), np.array([6]))), "below 6"),
        (lambda vec: (vec.reset(), vec.send(np.zeros(2, int), np.array([1, 1]))), "twice"),
        (lambda vec: (vec.reset(), [vec.send(np.zeros(N, int), slice(0, N)) for _ in "ab"]), "call recv first"),
        (lambda vec: (vec.reset(), vec.send(np.zeros(1, int), slice(0, 1)), vec.recv(slice(0, 2))), "nothing was sent"),
        (lambda vec: (vec.close(), vec.reset()), "reset: .* closed"),
    ],
)
@pytest.mark.parametrize("vec", [SERIAL, NATIVE], ids=["serial", "native"])
def test_misuse_is_one_clear_line(make: Any, vec: Any, misuse: Any, named: str) -> None:
    with pytest.raises(VectorMisuse, match=named) as caught:
        misuse(make(vec, TASKS["box"]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"workers": 4}, "num_envs=6 is not a multiple of workers=4; try workers=3 or num_envs=4"),
        ({"batch_size": 3}, "batch_size=3 is not a multiple of a worker's 2 environments; try 2"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        multiprocess(**changes)
