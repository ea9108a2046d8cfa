"""Every interface that environments of several agents have, in the one form that worlds have here."""

import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from bindings import WORLDS, need
from conftest import env_section, env_spec

from paddock.envs.errors import resolve
from paddock.envs.sanity.suite import RELAY, ROLES
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Serial
from paddock.health.env_checks import check_env


@pytest.fixture
def steps() -> Iterator[Any]:
    """Play the actions of one world; rows of (observations, rewards, flags, who acts next)."""

    def play(env: EnvSpec, actions: Any) -> list[Any]:
        with closing(Serial(num_envs=1).make(env)) as venv:
            obs, infos = venv.begin(0)
            told: list[Any] = [(obs[:, 0].tolist(), who(infos))]
            for one in actions:
                obs, reward, terminated, truncated, infos = venv.step(np.array(one))
                pairs = zip(terminated, truncated, strict=True)
                flags = "".join("t" if end else "c" if cut else "-" for end, cut in pairs)
                told.append((obs[:, 0].tolist(), reward.round(6).tolist(), flags, who(infos), infos["over"].tolist()))
        return told

    def who(infos: Any) -> str:
        return "".join("01"[int(act)] for act in infos["acts"])

    yield play


def test_turns_pay_everybody_at_every_step_and_end_one_by_one(steps: Any) -> None:
    told = steps(env_spec("toy_worlds:Bidding"), [[2, 0, 0], [0, 0, 0], [0, 0, 3], [0, 0, 0]])
    assert told == [
        ([0, 0, 0], "100"),
        ([2, 2, 2], [0, 0.2, 0.2], "---", "010", [False]),
        ([2, 0, 2], [0, -1, 0], "-t-", "001", [False]),  # cy has not acted yet, and is next
        ([5, 0, 5], [0.3, 0, 0], "---", "100", [False]),
        ([0, 0, 0], [-1, 0, 5], "t-t", "100", [True]),  # the next episode begins, with ann
    ]


def test_tuples_are_seats(steps: Any) -> None:
    env = env_spec("toy_worlds:Gathering", agents=2)
    told = steps(env, [[1, 2], [0, 1], [2, 2]])
    assert told[1:] == [
        ([1, 2], [1, 2], "--", "11", [False]),
        ([2, 3], [0, 1], "--", "11", [False]),
        ([0, 1], [2, 2], "tt", "11", [True]),
    ]
    each = steps(env_spec("toy_worlds:Gathering", agents=2, kwargs={"each": True}), [[1, 2], [0, 1]])
    assert [one[2:4] for one in each[1:]] == [("t-", "01"), ("--", "01")]


def test_the_limit_that_gymnasium_knows_of_stays(steps: Any) -> None:
    env = env_spec("toy_worlds:toy/Gathering-v0", agents=2)
    assert env.limited(1000) is env
    assert steps(env.limited(1000), [[1, 2], [0, 1]])[2][2:] == ("cc", "11", [True])
    assert env_spec("toy_worlds:Bidding").limited(1000).max_episode_steps == 1000


def test_dictionaries_say_by_observations_who_acts(steps: Any) -> None:
    told = steps(env_spec("toy_worlds:Table"), [[0, 0, 0]] * 3)
    assert told == [
        ([0, 0, 0], "100"),
        ([0, 1, 0], [1, 0, 0], "---", "010", [False]),
        ([2, 0, 2], [0, 1, 0], "-t-", "101", [False]),
        ([0, 0, 0], [1, 0, 1], "c-c", "100", [True]),
    ]


OWN = {"_target_": "paddock.envs.seeding.MultiAgentOwnGenerators"}


@pytest.mark.parametrize(
    "env",
    [
        env_spec("toy_worlds:Skirmish", wrappers=[OWN], max_episode_steps=9),
        env_spec("toy_worlds:Skirmish", kwargs={"agents": 1}),
    ],
    ids=["passed on", "one seat"],
)
def test_what_is_set_is_set_in_the_environment_itself(env: EnvSpec) -> None:
    own: Any = resolve(env.id, "env.id")
    with closing(Serial(num_envs=1).make(env)) as venv:
        venv.set_attr("level", 7)  # that none has
        assert venv.get_attr("level") == (7,)
        layer = venv.envs[0]
        while not isinstance(layer, own):
            assert "level" not in vars(layer)
            layer = next(vars(layer)[name] for name in ("env", "_env", "_world") if name in vars(layer))
        assert layer.level == 7


# What conf/env offers


SLOW = {"battle", "multiwalker", "pursuit", "warehouse"}  # seconds each
SLOW |= {"cooperative_pong", "knights_archers_zombies", "pistonball"}


@pytest.fixture(params=[pytest.param(one, marks=pytest.mark.slow if one in SLOW else ()) for one in sorted(WORLDS)])
def offered(request: pytest.FixtureRequest) -> EnvSpec:
    need(request.param)
    section = env_section(request.param)
    assert section.pop("_target_") == "paddock.envs.spec.EnvSpec"
    return EnvSpec(**section)


def test_an_offered_worlds_episode_depends_on_its_seed_alone(offered: EnvSpec) -> None:
    other = pickle.loads(pickle.dumps(offered))
    assert other == offered and hash(other) == hash(offered) and other.seats == offered.seats > 1
    slow = any(name in offered.id for name in ("pistonball", "cooperative_pong"))  # to draw
    findings = dict(check_env(offered, 4 if slow else 30))
    assert {"lives", "seed", "history", "others", "speed"} <= findings.keys()
    assert {
        name: str(one) for name, one in findings.items() if one.level != "ok" and name not in ("rewards", "ends")
    } == {}


def played(name: str, actions: Callable[[Any], Any], worlds: int = 8, steps: int = 8) -> list[float]:
    """Returns of the lives that ended."""
    section = env_section(name)
    del section["_target_"]
    returns: list[float] = []
    with closing(Serial(num_envs=worlds).make(EnvSpec(**section))) as venv:
        obs, _ = venv.begin(0)
        for _ in range(steps):
            obs, *_, infos = venv.step(actions(obs))
            episode = infos["final_info"]["episode"] if "final_info" in infos else {"r": obs[:0], "_r": []}
            returns += [r for r, ended in zip(episode["r"], episode["_r"], strict=True) if ended]
    return returns


def test_the_sanity_tasks_of_worlds_pay_what_they_say() -> None:
    generator = np.random.default_rng(0)

    def right(obs: Any) -> Any:
        return (obs[:, 0] > 0).astype(int)

    def random(obs: Any) -> Any:
        return generator.integers(2, size=len(obs))

    for name, task, lives in (("roles", ROLES, 8 * 8 * 2), ("relay", RELAY, 8 * 2 * 4)):
        returns = played(name, right)
        assert len(returns) == lives and np.allclose(returns, task.best)
        drawn = played(name, random, worlds=64, steps=32)
        assert abs(np.mean(drawn) - task.chance) < 4 * np.std(drawn) / len(drawn) ** 0.5


@pytest.mark.parametrize(
    ("world", "kwargs", "named"),
    [
        ("Skirmish", {}, "warn.* disappeared without terminated or truncated"),
        ("Dark", {}, "warn.* observations never changed in 60 steps; .*render_mode"),
        ("Scripted", {"agents": "ab", "steps": [{"agents": "ab", "reward": {"a": np.nan}}]}, "a: the reward is nan"),
    ],
)
def test_what_is_wrong_with_a_world_is_found(world: str, kwargs: dict[str, Any], named: str) -> None:
    findings = check_env(env_spec(f"toy_worlds:{world}", kwargs=kwargs), 60)
    assert any(re.search(named, f"{one.level} {one}") for _, one in findings)
