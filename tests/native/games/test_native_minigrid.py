"""MiniGrid's worlds in C against minigrid itself: every map, every observation and every reward, to the bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import env_spec
from gymnasium.vector import AutoresetMode
from native_laws import (  # noqa: F401, fixtures
    assert_auto_takes,
    assert_refused,
    assert_same_in_any_company,
    assert_same_run_natively,
    maker,
    native,
)
from numpy.typing import NDArray

from paddock.envs.native.minigrid import CHOICES
from paddock.envs.native.originals import EXACT, is_exact
from paddock.envs.native.settings import native_task
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.serial import SerialVectorEnv

minigrid = pytest.importorskip("minigrid")
pytestmark = pytest.mark.skipif(not is_exact("minigrid"), reason=f"the numbers in C are minigrid {EXACT['minigrid']}'s")

WORLDS = {  # ids by map, without MiniGrid- and -v0
    "empty": ["Empty-5x5", "Empty-Random-5x5", "Empty-6x6", "Empty-Random-6x6", "Empty-8x8", "Empty-16x16"],
    "doorkey": ["DoorKey-5x5", "DoorKey-6x6", "DoorKey-8x8", "DoorKey-16x16"],
    "fourrooms": ["FourRooms"],
    "lavagap": ["LavaGapS5", "LavaGapS6", "LavaGapS7"],
    "lavacrossing": ["LavaCrossingS9N1", "LavaCrossingS9N2", "LavaCrossingS9N3", "LavaCrossingS11N5"],
    "simplecrossing": ["SimpleCrossingS9N1", "SimpleCrossingS9N2", "SimpleCrossingS9N3", "SimpleCrossingS11N5"],
    "dynamic": ["Dynamic-Obstacles-5x5", "Dynamic-Obstacles-Random-6x6", "Dynamic-Obstacles-16x16"],
    "memory": ["MemoryS7", "MemoryS11", "MemoryS13Random", "MemoryS17Random"],
    "multiroom": ["MultiRoom-N2-S4", "MultiRoom-N4-S5-v1", "MultiRoom-N6"],
    "unlock": ["Unlock", "UnlockPickup", "BlockedUnlockPickup"],
    "keycorridor": ["KeyCorridorS3R1", "KeyCorridorS3R3", "KeyCorridorS6R3"],
    "maze": ["ObstructedMaze-1Dl", "ObstructedMaze-1Dlh", "ObstructedMaze-1Dlhb"],
}
EPISODES, NIGHTLY = 8, 1000  # of a map
KINDS, AHEAD = 11, (3, 5)  # kinds of things; where the cell in front is in an image
N = 4


def world(name: str, **changes: Any) -> EnvSpec:
    """The recipe of a world without its task in words."""
    version = "" if name[-3:-1] == "-v" else "-v0"
    return env_spec(f"minigrid:MiniGrid-{name}{version}", without=("mission",), **changes)


def likely() -> NDArray[np.float64]:
    """How likely each action is, by the kind of what lies in front: mostly what does something to it."""
    chance = np.tile([1.0, 1, 1, 1, 0.3, 1, 0.2], (KINDS, 1))
    empty, door, key, box, goal, lava = 1, 4, 5, 7, 8, 9
    chance[empty, 2], chance[goal, 2], chance[lava, 2] = 6, 9, 0.3
    chance[door, 2], chance[door, 5] = 4, 8
    chance[key : box + 1, 3], chance[box, 5] = 6, 2
    return chance


def choose(image: NDArray[np.uint8], actions: int, draw: np.random.Generator) -> NDArray[np.int64]:
    chance = likely()[image[:, *AHEAD, 0], :actions]
    return (draw.random((len(image), 1)) < (chance / chance.sum(1, keepdims=True)).cumsum(1)).argmax(1)


def assert_same(name: str, step: int, ours: Any, theirs: Any) -> None:
    assert ours.keys() == theirs.keys()
    for key in ours:
        np.testing.assert_array_equal(ours[key], theirs[key], err_msg=f"{name}, step {step}, {key}")


def play_both(make: Any, name: str, episodes: int, seed: int) -> int:
    """Play episodes of a world here and there; how many were rewarded."""
    spec = world(name, kwargs={"max_steps": 30})
    theirs, ours = SerialVectorEnv(spec, N), make(spec, N)
    actions = int(ours.task.action_space.n)
    draw, rewarded, ended, step = np.random.default_rng(seed), 0, 0, 0
    seen, own = (venv.begin(seed, range(N))[0] for venv in (theirs, ours))
    while ended < episodes:
        assert_same(name, step, own, seen)
        action = choose(seen["image"], actions, draw)
        seen, reward, terminated, truncated, infos = theirs.step(action)
        own, *rest, told = ours.step(action)
        step += 1
        for mine, other in zip(rest, (reward, terminated, truncated), strict=True):
            assert mine.tobytes() == other.tobytes(), (name, step)
        over = np.flatnonzero(terminated | truncated)
        for i in over:
            assert_same(name, step, told["final_obs"][i], infos["final_obs"][i])
        if len(over):
            for key in "rl":
                assert told["final_info"]["episode"][key].tobytes() == infos["final_info"]["episode"][key].tobytes()
        ended, rewarded = ended + len(over), rewarded + int((reward > 0).sum())
    theirs.close()
    return rewarded


@pytest.mark.parametrize("names", WORLDS.values(), ids=WORLDS)
def test_an_episode_is_minigrid_s_to_the_bit(make: Any, names: list[str]) -> None:
    for seed, name in enumerate(names):
        play_both(make, name, EPISODES // len(names), seed)


@pytest.mark.nightly
@pytest.mark.parametrize("names", WORLDS.values(), ids=WORLDS)
def test_a_thousand_episodes_are_minigrid_s_to_the_bit(make: Any, names: list[str]) -> None:
    rewarded = sum(play_both(make, name, NIGHTLY // len(names), seed + 100) for seed, name in enumerate(names))
    print(f"{rewarded} episodes of {names} were rewarded")


HEAD, GENERATOR = 64, 40  # bytes in front of all that is saved, and in front of an environment's own
WHERE = slice(4, 8)  # of its own: column, row, direction and what is carried


@pytest.mark.parametrize(
    "name",
    ["UnlockPickup", "BlockedUnlockPickup", "KeyCorridorS3R3", "ObstructedMaze-1Dlhb"],
)
def test_what_is_asked_for_is_paid_when_it_is_picked_up(make: Any, name: str) -> None:
    spec = world(name)
    theirs, ours = spec.make(), make(spec, 1, AutoresetMode.DISABLED)
    theirs.reset(seed=2), ours.reset(seed=2)
    grid: Any = theirs.unwrapped
    x, y = map(int, grid.obj.cur_pos)
    for action in (6, 3):  # looked at, then picked up
        grid.agent_pos, grid.agent_dir = (x - 1, y), 0
        state = ours.state_dict()
        state["saved"][HEAD + GENERATOR :][WHERE] = (x - 1, y, 0, 0)
        ours.load_state_dict(state)
        seen, reward, terminated, *_ = theirs.step(action)
        own, paid, ended, *_ = ours.step(np.array([action]))
        np.testing.assert_array_equal(own["image"][0], seen["image"])
        assert (paid[0], ended[0]) == (reward, terminated)
    assert terminated and reward == 1 - 0.9 * (2 / grid.max_steps)


@pytest.mark.parametrize("name", ["Dynamic-Obstacles-Random-6x6", "ObstructedMaze-1Dlhb"])
def test_saved_restored_and_in_any_company_the_same_bits(make: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same_in_any_company(make, world(name, kwargs={"max_steps": 20}), 60, monkeypatch)


def test_the_wrapper_that_names_choices_is_native_and_auto_takes_it() -> None:
    spec = world("DoorKey-5x5", wrappers=({"_target_": CHOICES},))
    task = native_task(spec)
    assert task.exact and task.time_limit == 250 and task.observation_space == spec.spaces[0]
    assert native_task(world("DoorKey-5x5", max_episode_steps=9)).time_limit == 9
    assert_auto_takes(spec)


def test_a_run_is_the_same_natively_step_by_step_and_resumed(tmp_path: Path) -> None:
    words = ["algo=ppo", "env=minigrid_empty", "+env.kwargs.max_steps=20", "compute=serial"]
    words += ["algo.num_steps=16", "algo.minibatch_size=64", "algo.hidden_sizes=[8]", "algo.eval_every_iterations=2"]
    words += ["vec.num_envs=8", "env.id=minigrid:MiniGrid-Empty-Random-5x5-v0"]
    assert_same_run_natively(words, "steps", 256, 640, tmp_path)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (world("Fetch-5x5-N2"), "FetchEnv has no native version"),
        (world("Empty-8x8", kwargs={"size": 30}), "the native EmptyEnv does not support"),
        (world("Empty-8x8", wrappers=({"_target_": "minigrid.wrappers.ImgObsWrapper"},)), "cannot wrap native"),
        (env_spec("minigrid:MiniGrid-Empty-8x8-v0", without=("direction", "mission")), r"set env.without=\[mission\]"),
    ],
)
def test_what_has_no_native_version_is_refused_in_one_line(spec: EnvSpec, named: str) -> None:
    assert_refused(spec, named)
