"""Vector environments: what all backends give alike, and what becomes of workers that fail."""

import pickle
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from conftest import ROOT, env_spec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy_envs import Faulty, Jam
from vector_cases import (  # noqa: F401
    BACKENDS,
    EVERYTHING,
    GYMNASIUM,
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
from paddock.envs.vector import EnvError, Multiprocess, Serial, VectorMisuse
from paddock.envs.vector.contract import keyed_seed
from paddock.envs.vector.infos import add_info, pick_infos

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


def test_what_has_ended_is_not_stepped_before_its_reset(make: Any, any_backend: Any) -> None:
    vec = make(any_backend, env_spec("CartPole-v1", max_episode_steps=1), AutoresetMode.DISABLED)
    vec.reset(seed=0)
    for _ in "ab":
        ids = np.array([1, 4])
        vec.send(np.zeros(2, int), ids)
        assert vec.recv(ids)[3].all()
        with pytest.raises(VectorMisuse, match=r"^send: the episode of environment 4 is over; reset it first, by opt"):
            vec.send(np.zeros(2, int), np.array([2, 4]))
        with pytest.raises(VectorMisuse, match=r"^send: the episode of environment 1 is over; reset it first, by opt"):
            vec.step(np.zeros(N, int))
        vec.reset(options={"reset_mask": np.isin(np.arange(N), ids)})
    vec.step(np.zeros(N, int))


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


def test_a_key_is_the_same_number_whatever_holds_it(make: Any) -> None:
    vec, key = make(SERIAL, TASKS["box"]), np.array([3, 1, 2], np.int8)
    np.testing.assert_array_equal(vec.begin(key[0], np.full(N, 2))[0], vec.begin(3, [2] * N)[0])
    assert keyed_seed(*key) == keyed_seed(3, 1, 2)


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


def test_what_the_caller_registered_is_found_without_its_version_too(make: Any) -> None:
    for version in (1, 3):
        gymnasium.register(f"Unversioned-v{version}", "toy_envs:Faulty", kwargs={"at": version})
    try:
        for vec in (Serial(num_envs=1), multiprocess(num_envs=1, workers=1)):
            assert make(vec, env_spec("Unversioned")).get_attr("at") == (3,)
    finally:
        for version in (1, 3):
            del gymnasium.registry[f"Unversioned-v{version}"]


def test_an_attribute_that_cannot_be_sent_leaves_workers_as_they_were(make: Any) -> None:
    venv = make(multiprocess(num_envs=2, workers=2), faulty(""))
    venv.begin(3)
    with pytest.raises(TypeError, match="pickle"):
        venv.set_attr("gain", [2.0, threading.Lock()])
    with pytest.raises(EnvError, match=r"worker 0: what it was asked cannot be done \(TypeError: .* 'cause'\)"):
        venv.set_attr("gain", Jam("gearbox", "sand"))
    assert venv.call("double", 3) == (6, 6)


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
        ({"timeout_s": float("inf")}, "timeout_s=inf must be above 0, and at most 1e6"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        multiprocess(**changes)


def test_the_offered_recipe_can_be_built_from_its_file() -> None:
    keys = yaml.safe_load((ROOT / "conf" / "vec" / "multiprocess.yaml").read_text())
    assert keys.pop("_target_") == "paddock.envs.vector.Multiprocess"
    recipe = Multiprocess(**keys)
    assert recipe == pickle.loads(pickle.dumps(recipe)) and hash(recipe) == hash(Multiprocess(**keys))
    assert recipe.num_envs % recipe.processes == 0


# Infos


@pytest.mark.parametrize("value", [2**63 + 1, -(2**64), np.timedelta64(3, "s")], ids=["hash", "negative", "time"])
def test_infos_hold_numbers_that_are_too_large_for_an_array_and_times_as_they_are(value: Any) -> None:
    said: list[Any] = [1, value, 2.5, np.array(["2020"], "M8[D]")]
    for order in (said, said[::-1]):
        infos: dict[str, Any] = {}
        for row, one in enumerate(order):
            add_info(infos, {"k": one}, row, len(order))
        assert all(bool(np.all(told == one)) for told, one in zip(infos["k"], order, strict=True))
        assert infos["_k"].all()


@pytest.mark.parametrize("key", ["acts", "over", "final_obs", "final_info", "env_id", "stray_reward", "_acts"])
@pytest.mark.parametrize("vec", [SERIAL, GYMNASIUM], ids=["serial", "gymnasium"])
def test_an_info_that_says_what_a_vector_says_is_refused(
    make: Any, vec: Any, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, Any] = {"deep": {key: 1}}
    start, step = Faulty.reset, Faulty.step
    monkeypatch.setattr(Faulty, "reset", lambda *given, **others: (start(*given, **others)[0], said))
    monkeypatch.setattr(Faulty, "step", lambda *given: (*step(*given)[:4], said))
    venv = make(vec, faulty(""))
    assert venv.reset(seed=0)[1]["deep"][key].tolist() == [1] * N
    said[key] = 1
    with pytest.raises(
        EnvError,
        match=rf"^environment 0 \(toy_envs:Faulty-v0\): an info has {key}, which a vector says itself; rename it",
    ):
        venv.step(np.zeros(N, int))
    venv = make(vec, faulty(""))
    with pytest.raises(EnvError, match=rf"^environment 0 \(toy_envs:Faulty-v0\): an info has {key}, which"):
        venv.reset(seed=0)


def test_an_info_at_an_episodes_end_that_cannot_be_entered_is_named_too(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "step", lambda *given: (np.zeros(2, np.float32), 0.0, True, False, {"x": 1, "_x": 2}))
    venv = make(SERIAL, faulty(""))
    venv.reset(seed=0)
    with pytest.raises(EnvError, match=r"^environment 0 \(toy_envs:Faulty-v0\): an info has 'x' and '_x', which"):
        venv.step(np.zeros(N, int))


def test_infos_of_some_rows_are_picked_whatever_their_keys_are() -> None:
    infos: Any = {}
    for row in range(3):
        said: Any = {7: row, None: {(1, 2): 10.0 * row}, "_x": True}
        add_info(infos, said, row, 3)
    picked: Any = pick_infos(infos, np.array([False, True, True]))
    assert picked.keys() == {7, "_7", None, "_None", "_x", "__x"}
    assert picked[7].tolist() == [1, 2] and picked[None][(1, 2)].tolist() == [10.0, 20.0]
