"""Our own games in C against their rules in Python: every observation, every reward and every end, to the bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import env_spec
from native_laws import (  # noqa: F401, fixtures
    assert_auto_takes,
    assert_refused,
    assert_same_in_any_company,
    assert_same_run_natively,
    maker,
    native,
)
from numpy.typing import NDArray

from paddock.envs.native import library
from paddock.envs.native.settings import game_ids, native_task
from paddock.envs.vector.serial import SerialVectorEnv

IDS = game_ids()
TWICE = [id for id in IDS if "MinAtar" not in id]  # with rules in Python, too; test_native_minatar.py has the others
EPISODES, LONGEST = 8, 2500  # of each game, and steps of all its environments at the most
N = 4


def toward(aside: NDArray[Any]) -> NDArray[np.int64]:
    """Go to a ball that is so far beside: stay (0), up or left (1), down or right (2)."""
    return np.array([0, 2, 1])[np.sign(np.rint(5 * aside)).astype(np.int64)]


PLAYERS: dict[str, Callable[[Any], NDArray[np.int64]]] = {  # who get further than random actions do
    "Pong": lambda seen: toward(seen[:, 1] - seen[:, 4]),
}


def choose(id: str, choices: int, seen: Any, draw: np.random.Generator) -> NDArray[np.int64]:
    """Draw an action for each row of a batch; half of them may know better."""
    drawn, player = draw.integers(choices, size=N), PLAYERS.get(id.partition("/")[2].removesuffix("-v0"))
    if player is not None:
        drawn[: N // 2] = player(seen)[: N // 2]
    return drawn


def assert_same(step: int, ours: Any, theirs: Any) -> None:
    assert ours.tobytes() == theirs.tobytes() and ours.dtype == theirs.dtype, (step, ours, theirs)


@pytest.mark.parametrize("id", TWICE)
def test_an_episode_is_the_same_in_c_as_in_python(make: Any, id: str) -> None:
    spec = env_spec(id)
    theirs, own = SerialVectorEnv(spec, N), make(spec, N)
    draw, ended, rewarded, step = np.random.default_rng(1), 0, 0, 0
    seen, mine = (venv.begin(3, range(N))[0] for venv in (theirs, own))
    while (ended < EPISODES or not rewarded) and step < LONGEST:
        assert_same(step, mine, seen)
        action = choose(id, int(own.single_action_space.n), seen, draw)
        seen, reward, terminated, truncated, infos = theirs.step(action)
        mine, *rest, told = own.step(action)
        step += 1
        for one, other in zip(rest, (reward, terminated, truncated), strict=True):
            assert one.tobytes() == other.tobytes(), (step, one, other)
        over = terminated | truncated
        ended, rewarded = ended + int(over.sum()), rewarded + int((reward != 0).sum())
        for i in np.flatnonzero(over):
            assert_same(step, told["final_obs"][i], infos["final_obs"][i])
        if over.any():
            for key in "rl":
                assert told["final_info"]["episode"][key].tobytes() == infos["final_info"]["episode"][key].tobytes()
    theirs.close()
    assert ended and rewarded, "what was compared has no end, or no reward"


@pytest.mark.parametrize("id", IDS)
def test_saved_restored_and_in_any_company_the_same_bits(make: Any, id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same_in_any_company(make, env_spec(id, max_episode_steps=40), 60, monkeypatch)


@pytest.mark.parametrize("id", IDS)
def test_its_rows_are_as_long_as_in_c_and_auto_takes_it(id: str) -> None:
    spec = env_spec(id)
    task = native_task(spec)
    shape, own = library.describe(task.name), task.action_space
    assert spec.observations.itemsize == (shape.row_bytes or 4 * shape.observations) and own.n == shape.choices  # type: ignore[attr-defined]
    assert task.exact and task.observation_space == spec.spaces[0]
    assert_auto_takes(spec)


def test_what_has_no_native_version_is_refused_in_one_line() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("paddock.envs.games:paddock/Pong-v0", {"kwargs": {"side": 5}}, "env.kwargs.side=5"),
        ("paddock.envs.sanity:paddock/Aim-v0", {}, "Aim-v0 has no native version"),
    ]
    for id, changes, named in cases:
        assert_refused(env_spec(id, **changes), named)


def test_time_limit_is_the_specified_or_else_the_registered_one() -> None:
    for given, limit in {None: 10_000, 20_000: 20_000, 3: 3}.items():
        assert native_task(env_spec("paddock.envs.games:paddock/Pong-v0", max_episode_steps=given)).time_limit == limit


def test_a_run_is_the_same_natively_step_by_step_and_resumed(tmp_path: Path) -> None:
    words = ["algo=ppo", "env=pong", "env.max_episode_steps=40", "compute=serial", "vec.num_envs=8"]
    words += ["algo.num_steps=16", "algo.minibatch_size=64", "algo.hidden_sizes=[8]", "algo.eval_every_iterations=2"]
    assert_same_run_natively(words, "steps", 128, 256, tmp_path)
