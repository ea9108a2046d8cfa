"""Worlds of several agents: who lives, acts and ends in each row, the same on every backend."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import env_spec
from gymnasium.vector import AutoresetMode
from toy_worlds import Scripted
from vector_cases import make_fixture  # noqa: F401

from paddock.envs.errors import ConfigError
from paddock.envs.multiagent.roles import narrow, widen
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import EnvError, Multiprocess, Serial, Vector, VectorMisuse
from paddock.envs.vector.contract import keyed_seed

W = 4  # worlds


def multiprocess(workers: int, **changes: Any) -> Multiprocess:
    given: dict[str, Any] = {"num_envs": W, "batch_size": None, "restart": False, "timeout_s": 60.0}
    return Multiprocess(workers=workers, **(given | changes))


SERIAL = Serial(num_envs=W)
ALIKE = env_spec("toy_worlds:Skirmish")
APART = env_spec("toy_worlds:Skirmish", kwargs={"kinds": 2})


def scripted(*steps: dict[str, Any], agents: str = "abc", **kwargs: Any) -> EnvSpec:
    return env_spec("toy_worlds:Scripted", kwargs={"agents": agents, "steps": list(steps), **kwargs})


def play(venv: Any, steps: int, start: Any = None, turn: int = 0) -> list[Any]:
    """Every byte that a vector gives in so many steps."""
    given = [start if start is not None else venv.begin(5)]
    venv.action_space.seed(turn)
    for _ in range(steps):
        given.append(venv.step(venv.action_space.sample()))
    return [flatten(one) for one in given]


def flatten(value: Any) -> Any:
    """Arrays as bytes, whatever they lie in; of final observations those that there are."""
    if isinstance(value, dict) and "_final_obs" in value:
        value = value | {"final_obs": value["final_obs"][value["_final_obs"]]}
    if isinstance(value, dict):
        return {key: flatten(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [flatten(part) for part in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [flatten(part) for part in value.tolist()]
    return value.tobytes() if isinstance(value, np.ndarray | np.generic) else value


# The table, by hand


def test_each_row_is_what_the_table_says(make: Any) -> None:
    env = scripted(
        {"agents": "abc", "reward": {"a": 1.0, "b": 2.0, "c": 3.0}},
        {"agents": "ac", "reward": {"a": 1.0, "b": 2.0, "c": 3.0}, "terminated": "b"},
        {"agents": "a", "reward": {"a": 1.0, "b": 50.0, "c": 3.0}, "truncated": "c"},  # b is given what is not its
        {"agents": "ab", "reward": {"a": 1.0}},  # b is born again
        {"agents": "", "reward": {"a": 1.0, "b": 4.0}, "terminated": "a"},  # and the world leaves it behind
        {"agents": "abc"},
    )
    venv = make(Serial(num_envs=1), env)
    assert (venv.num_envs, venv.worlds, venv.seats, venv.observation_space.shape) == (3, 1, 3, (3, 2))
    obs, infos = venv.begin(7)
    assert obs.tolist() == [[0, 0], [0, 1], [0, 2]] and infos["acts"].tolist() == [True] * 3
    script: Scripted = venv.envs[0]

    def step() -> tuple[Any, ...]:
        obs, reward, terminated, truncated, infos = venv.step(np.array([4, 5, 6]))
        episode = infos["final_info"]["episode"] if "final_info" in infos else {"r": np.zeros(3), "l": np.zeros(3, int)}
        lives = list(zip(episode["r"].tolist(), episode["l"].tolist(), strict=True))
        flags = "".join("tc"[int(cut)] if end or cut else "-" for end, cut in zip(terminated, truncated, strict=True))
        acts = "".join("01"[int(act)] for act in infos["acts"])
        finals = [None if one is None else one.tolist() for one in infos.get("final_obs", [])]
        return obs.tolist(), reward.tolist(), flags, acts, infos["over"].tolist(), lives, finals, infos

    none = [(0.0, 0)] * 3
    assert step()[:-1] == ([[1, 0], [1, 1], [1, 2]], [1, 2, 3], "---", "111", [False], none, [])
    died = step()
    assert died[:4] == ([[2, 0], [0, 0], [2, 2]], [1, 2, 3], "-t-", "101")
    assert died[5:7] == ([(0.0, 0), (4.0, 2), (0.0, 0)], [None, [2, 1], None])
    cut = step()
    assert cut[:4] == ([[3, 0], [0, 0], [0, 0]], [1, 0, 3], "--c", "100")
    assert cut[5:7] == ([(0.0, 0), (0.0, 0), (9.0, 3)], [None, None, [3, 2]])
    assert cut[7]["stray_reward"].tolist() == [0, 50, 0] and cut[7]["_stray_reward"].tolist() == [False, True, False]
    assert step()[:7] == ([[4, 0], [4, 1], [0, 0]], [1, 0, 0], "---", "110", [False], none, [])
    over = step()  # and the next episode begins in the same step
    assert over[:5] == ([[0, 0], [0, 1], [0, 2]], [1, 4, 0], "tc-", "111", [True])
    assert over[5:7] == ([(5.0, 5), (4.0, 1), (0.0, 0)], [[5, 0], [5, 1], None])
    assert script.taken == [
        {"a": 4, "b": 5, "c": 6},
        {"a": 4, "b": 5, "c": 6},
        {"a": 4, "c": 6},
        {"a": 4},
        {"a": 4, "b": 5},
    ]
    assert script.seeds == [keyed_seed(7, 0, 0), keyed_seed(7, 0, 1)]


def test_an_end_that_nobody_told_is_a_truncation(make: Any) -> None:
    env = scripted({"agents": "ab"}, {"agents": "b"}, {"agents": "", "unseen": "b"}, agents="ab")
    venv = make(Serial(num_envs=1), env)
    venv.begin(0)
    given = [venv.step(np.zeros(2, int)) for _ in range(3)]
    assert [one[3].tolist() for one in given] == [[False, False], [True, False], [False, True]]
    assert given[2][4]["final_obs"][1].tolist() == [2, 1], "what it saw last"


def test_with_autoreset_disabled_a_world_waits(make: Any) -> None:
    venv = make(Serial(num_envs=2), scripted({"agents": "ab", "terminated": "c"}, {}), autoreset=AutoresetMode.DISABLED)
    venv.reset(seed=[3, 4])
    assert venv.envs[1].seeds == [4]
    venv.step(np.zeros(6, int))
    obs, _, _, truncated, infos = venv.step(np.zeros(6, int))
    assert infos["over"].tolist() == [True, True] and not infos["acts"].any() and not obs.any()
    assert truncated.tolist() == [True, True, False] * 2
    assert infos["final_info"]["episode"]["l"].tolist() == [2, 2, 0] * 2
    mask = np.repeat([False, True], 3)
    obs, infos = venv.reset(seed=[0, 9], options={"reset_mask": mask})
    assert infos["acts"].tolist() == mask.tolist() and venv.envs[1].seeds == [4, 9]
    with pytest.raises(VectorMisuse, match="environment 0 has ended; reset it first"):
        venv.step(np.zeros(6, int))
    venv.send(np.zeros(3, int), np.arange(3, 6))  # it was refused before anything was done
    assert venv.recv()[4]["over"].tolist() == [False]


# The same bytes everywhere


@pytest.mark.parametrize("env", [ALIKE, APART], ids=["alike", "apart"])
def test_neither_workers_nor_the_order_of_agents_change_a_byte(make: Any, env: EnvSpec) -> None:
    expected = play(make(SERIAL, env, packed=True), 60)
    assert sum("final_obs" in step[4] for step in expected[1:]) > 10, "lives end"
    turned = replace(env, kwargs={**env.arguments, "turned": True})
    for vec, spec in [(SERIAL, turned), (multiprocess(2), turned)]:
        assert play(make(vec, spec, packed=True), 60) == expected
    assert play(make(multiprocess(2), env), 40) == play(make(SERIAL, env), 40), "in Gymnasium's form"


def test_a_key_enters_any_episode_of_a_world(make: Any) -> None:
    venv = make(SERIAL, ALIKE)
    play(venv, 60)
    episodes = venv._table.arrays.episode.copy()
    assert episodes.min() > 0
    (obs, infos), expected = venv.begin(5, episodes), []
    start = flatten((obs, infos))
    venv.action_space.seed(1)
    expected = play(venv, 30, start=(obs, infos), turn=1)
    other = make(multiprocess(2), ALIKE)
    again = other.begin(5, episodes)
    assert flatten(again) == start and play(other, 30, start=again, turn=1) == expected


@pytest.mark.parametrize("fresh", [False, True])
def test_seeds_of_reset_say_all_that_follows(make: Any, fresh: bool) -> None:
    env = env_spec("toy_worlds:Skirmish", fresh=fresh)
    given = []
    for vec in (SERIAL, multiprocess(2)):
        venv = make(vec, env, packed=True)
        for _ in range(2):
            given.append(play(venv, 60, start=venv.reset(seed=3)))
            # Restarts of a world that is not made anew go on from its own generator, as Gymnasium's do.
            assert sum(np.frombuffer(step[4]["over"], bool).any() for step in given[-1][1:]) > 1
    assert all(one == given[0] for one in given[1:])


def test_a_worker_that_dies_ends_its_worlds_and_no_others(make: Any, caplog: Any) -> None:
    env = env_spec("toy_worlds:Skirmish", kwargs={"fault": "exit"})
    venv, whole = make(multiprocess(W, restart=True), env), make(SERIAL, ALIKE)
    venv.begin(5)
    whole.begin(5)
    venv.action_space.seed(0)
    lost = False
    while not lost:
        actions, before = venv.action_space.sample(), venv.restarts
        alive = venv._table.arrays.lives.alive.copy()
        got, wanted = venv.step(actions), whole.step(actions)
        lost = venv.restarts > before
        assert lost or flatten(got[:4]) == flatten(wanted[:4])
    (world,) = (w for w in range(W) if got[4]["over"][w] and not np.array_equal(got[3], wanted[3]))
    rows = slice(4 * world, 4 * world + 4)
    assert got[3][rows].tolist() == alive[rows].tolist() and not got[2][rows].any() and not got[1][rows].any()
    others = np.delete(np.arange(4 * W), np.r_[rows])
    assert all(np.array_equal(one[others], other[others]) for one, other in zip(got[:4], wanted[:4], strict=True))
    assert got[4]["acts"][rows].sum() >= 3, "the next keyed episode has begun"
    assert f"environment {world} (toy_worlds:Skirmish): the worker process exited with status 3" in caplog.text


def test_a_reward_that_is_no_number_names_who_was_given_it(make: Any) -> None:
    venv = make(Serial(num_envs=3), scripted({"agents": "abc"}))
    venv.begin(0)
    venv.envs[1].steps = [{"agents": "abc", "reward": {"b": None}}]
    what = r"agent b of world 1 \(toy_worlds:Scripted\) returned reward as \w+; return one number"
    with pytest.raises(EnvError, match=what):
        venv.step(np.zeros(9, int))


def test_one_seat_is_the_environment_of_one_agent(make: Any) -> None:
    env = env_spec("toy_worlds:Skirmish", kwargs={"agents": 1}, max_episode_steps=6)
    assert env.seats == 1 and env.spaces == (env.roles[0].observation_space, env.roles[0].action_space)
    venv = make(Serial(num_envs=2), env)
    venv.begin(0)
    for _ in range(12):
        assert "acts" not in venv.step(np.zeros(2, int))[4]
    assert venv.seats == 1 and venv.num_envs == 2


# Seats and roles


def test_roles_are_those_who_see_and_do_the_same() -> None:
    assert [(role.name, role.seats) for role in APART.roles] == [("other", (0, 3)), ("one", (1, 2))]
    assert ALIKE.seats == 4 and [role.agents for role in ALIKE.roles] == [("one_0", "one_1", "one_2", "one_3")]


def test_rows_of_several_roles_are_read_and_written_by_each_ones_layout(make: Any) -> None:
    plain, packed = make(SERIAL, APART), make(SERIAL, APART, packed=True)
    batch, _ = plain.begin(0)
    rows, _ = packed.begin(0)
    plain.action_space.seed(0)
    seat = np.arange(4 * W) % 4
    for _ in range(20):
        for role in APART.roles:
            own = narrow(rows[np.isin(seat, role.seats)], role.observations)
            assert flatten(role.observations.batch(own)) == flatten(batch[role.name])
        actions = plain.action_space.sample()
        wide = np.zeros(4 * W, packed._table.arrays.action.dtype)
        for role in APART.roles:
            of_role = actions[role.name]
            wide[np.isin(seat, role.seats)] = widen(role_rows(role, of_role), role.actions, wide.dtype)
        batch, *_ = plain.step(actions)
        rows, *_ = packed.step(wide)


def role_rows(role: Any, actions: Any) -> Any:
    packed = role.actions.zeros(len(actions))
    role.actions.pack(actions, packed)
    return packed


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"agents": 3}, "env.agents=3: env.id=toy_worlds:Skirmish reports 4 agents itself; remove env.agents"),
        ({"id": "toy_worlds:Skirmsh"}, "did you mean 'Skirmish'"),
        ({"id": "builtins:dict"}, "returns a dict, which is neither"),
    ],
)
def test_what_cannot_be_made_is_one_clear_line(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as error:
        replace(ALIKE, **changes).roles  # noqa: B018
    assert "\n" not in str(error.value)


def test_who_takes_one_agent_refuses_a_world() -> None:
    with pytest.raises(ConfigError, match="has 4 agents, but a single-agent environment is needed"):
        ALIKE.observations  # noqa: B018
    with pytest.raises(ConfigError, match="has 4 agents, but a single-agent environment is needed"):
        Vector(num_envs=2, target="paddock.envs.tasks.cartpole.CartPoleVector").check(ALIKE)
