"""Vector environments in which everything is a row of bytes: what rows hold, and what they have no room for."""

from typing import Any

import numpy as np
import pytest
from conftest import env_spec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy_envs import GYMNASIUMS
from vector_cases import (  # noqa: F401
    EVERYTHING,
    SERIAL,
    STRUCTURED,
    TASKS,
    N,
    actions_for,
    assert_same,
    make_fixture,
    multiprocess,
    play_in_rows,
    samples,
)

from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import EnvError, VectorMisuse

FROZEN_LAKE = env_spec("FrozenLake-v1")
THEIR_BOUNDS = {f"{k}{path}": bound for k, (_, bounds) in enumerate(GYMNASIUMS) for path, bound in bounds.items()}
GYMNASIUMS_OWN = samples("gymnasiums", bounds=THEIR_BOUNDS)


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


@pytest.mark.parametrize("env", [STRUCTURED["pile"], STRUCTURED["rooms"], EVERYTHING, FROZEN_LAKE])
def test_rows_hold_what_gymnasiums_form_holds(make: Any, env: EnvSpec) -> None:
    rows, batches = make(SERIAL, env, packed=True), make(SERIAL, env)
    steps = 25 if env is FROZEN_LAKE else 12
    told = list(play_in_rows(rows, env, steps))
    layout, ends = env.observations, 0
    for action, (whole, _, finals) in zip([None, *actions_for(batches, steps)], told, strict=True):
        observation, *_, infos = batches.reset(seed=5) if action is None else batches.step(action)
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


def test_more_than_a_bound_holds_is_an_error(make: Any) -> None:
    env = samples("pile", bounds={"pile": 2})
    vec = make(SERIAL, env)
    with pytest.raises(
        EnvError, match=r"environment \d .*Samples.*items at \['pile'\].*increase env.bounds.pile"
    ) as caught:
        for _ in range(20):
            vec.reset()
    assert "\n" not in str(caught.value)


ROWS = np.zeros(N, "V8")


@pytest.mark.parametrize(
    ("actions", "named"),
    [
        ({"gear": np.zeros(N, int)}, "no 'wheel', which the space contains"),
        (ROWS, "rows of 8 bytes, expected 24"),
        (ROWS[:2], r"rows of shape \(2,\) for 6 environments"),
        (
            {"gear": np.zeros(2, int), "wheel": np.zeros((N, 2)), "lamps": np.zeros((N, 2), int)},
            r"\(2,\) at \['gear'\]",
        ),
    ],
)
def test_actions_of_another_structure_are_one_clear_line(make: Any, actions: Any, named: str) -> None:
    vec = make(SERIAL, samples("start", "mixed"))
    vec.reset(seed=0)
    with pytest.raises(VectorMisuse, match=named) as caught:
        vec.send(actions)
    assert "\n" not in str(caught.value)
    vec.step(actions_for(vec, 1)[0])


def test_spaces_without_a_bound_are_refused() -> None:
    with pytest.raises(ConfigError, match="the space is a Sequence, whose elements vary in size; wrap"):
        SERIAL.make(samples("start", "stacked"))
    with pytest.raises(ConfigError, match=r"at pile is a Sequence.*\+env.bounds.pile=n") as caught:
        multiprocess().make(samples("pile", "start"))
    assert "\n" not in str(caught.value)
