"""What tests/native/test_native_sanitized.py runs under sanitizers: every native task, misused at random.

python native_fuzz.py FOLDER SET SEED: the library in the folder, on that set of instructions. What is asserted here are
laws: numbers stay finite, and no body moves further in a step than Box2D lets it.
"""

import ctypes
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Dict, Discrete
from gymnasium.vector import AutoresetMode

from paddock.envs.native import library, rollout
from paddock.envs.native.forward import DenseForward
from paddock.envs.native.functions import fast_exp, fast_log, fast_tanh
from paddock.envs.native.networks import DenseLayout, Network, Networks, Normalizer
from paddock.envs.native.settings import NativeTask, find_version, game_ids, native_ids, native_task
from paddock.envs.native.steps import StepPlayer, StochasticNetwork
from paddock.envs.native.vector import NativeVectorEnv
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import VectorMisuse
from paddock.envs.vector.table import OVER

EXTREMES = np.array([0, -0.0, 1, -1, 1e30, -1e30, 3.4028235e38, -3.4028235e38, 1e-45, -1e-40, 0.5], np.float32)
WORLDS = (  # a map of each kind
    *("Empty-Random-5x5-v0", "DoorKey-8x8-v0", "FourRooms-v0", "LavaGapS7-v0", "LavaCrossingS11N5-v0"),
    *(
        "Dynamic-Obstacles-Random-6x6-v0",
        "MemoryS17Random-v0",
        "MultiRoom-N6-v0",
    ),
    *("Unlock-v0", "BlockedUnlockPickup-v0", "KeyCorridorS6R3-v0", "ObstructedMaze-1Dlhb-v0"),
)
BOARDS = ("pettingzoo.classic.connect_four_v3:env", "pettingzoo.classic.tictactoe_v3:env")
PARTIES = ("paddock.envs.tasks.snake:Snake", "paddock.envs.tasks.spread:Spread")
MOVES = 2.0  # m in a step, which Box2D never lets a body exceed
PUSHED = 1.0  # m, by which joints and ground may correct it besides
Draw = np.random.Generator


def interval(draw: Draw, least: int, most: int, whole: bool) -> list[Any]:
    """A random one, and now and then the greatest or the least."""
    low, high = (least, most - 1), (most - 1, most)
    if draw.random() < 0.3:
        low, high = (low, low) if draw.random() < 0.5 else (high, high)
        return [low[0], low[0] + 1] if whole else [low[0], low[0]]
    if not whole:
        return sorted(draw.uniform(least, most, 2).tolist())
    start = int(draw.integers(least, most))
    return [start, int(draw.integers(start + 1, most + 1))]


def cppn(draw: Draw) -> dict[str, Any]:
    """A network of one hidden node; its steepest ground rises by some hundred metres."""
    activation, weight = str(draw.choice(["identity", "sin", "tanh"])), draw.uniform(-10, 10, 2).tolist()
    return {
        "nodes": [
            {"id": 0, "bias": 0.0, "response": 1.0, "activation": "identity"},
            {"id": 1, "bias": 0.0, "response": 1.0, "activation": activation},
        ],
        "connections": [
            {"source": -1, "target": 1, "weight": weight[0], "enabled": True},
            {"source": 1, "target": 0, "weight": weight[1], "enabled": True},
        ],
    }


def encoding(draw: Draw) -> dict[str, Any]:
    """Arguments of a Terrain, out of all that are allowed."""
    kwargs: dict[str, Any] = {"length": int(draw.choice([60, 61, 200, int(draw.integers(60, 2000)), 2000]))}
    if draw.random() < 0.15:
        return kwargs | {"cppn": cppn(draw)}
    kwargs["roughness"] = float(draw.choice([0, 1, 10, draw.uniform(0, 10)]))
    most = int(draw.choice([2, 5, 100]))
    for key in ("pit_gap", "stump_height", "stair_height"):
        kwargs[key] = interval(draw, 0, most, False) if draw.random() < 0.7 else None
    for key, least in (("stump_width", 1), ("stump_float", 0), ("stair_width", 1), ("stair_steps", 1)):
        kwargs[key] = interval(draw, least, most, True)
    return kwargs | ({"ground": int(draw.integers(2**31))} if draw.random() < 0.2 else {})


def field(draw: Draw) -> dict[str, int]:
    """Arguments of a field of snakes, out of all that are allowed."""
    width, height = (int(draw.choice([4, 7, 32])) for _ in range(2))
    half = width * height // 2
    snakes = int(draw.integers(2, min(16, half - 1) + 1))
    longest = int(draw.integers(1, min(32, (half - 1) // snakes) + 1))
    food = int(draw.integers(1, min(512, half - snakes * longest) + 1))
    sizes = {"snakes": snakes, "width": width, "height": height, "food": food, "longest": longest}
    return sizes | {"absence": int(draw.integers(1, 6)), "max_steps": int(draw.choice([1, 30, 2**30]))}


def recipe(id: str, draw: Draw) -> NativeTask:
    """A native task, with a random course where it has one."""
    kwargs = encoding(draw) if "Terrain" in id else {}
    if "Pendulum" in id:
        kwargs = {"g": float(draw.choice([0, 10, -1e3]))}
    if "Snake" in id:
        kwargs = field(draw)
    if "Spread" in id:
        kwargs = {
            "N": int(draw.choice([2, 3, 16])),
            "local_ratio": draw.random(),
            "max_cycles": int(draw.choice([1, 25, 2**30])),
        }
    if "Tag" in id:
        kwargs = {name: int(draw.choice([1, 3, 8])) for name in ("num_good", "num_adversaries", "num_obstacles")}
        kwargs["max_cycles"] = int(draw.choice([1, 25, 2**30]))
    limit = int(draw.choice([5, 50, 1000]))
    without = ("mission",) if "MiniGrid" in id else ()
    return native_task(
        EnvSpec(id=id, kwargs=kwargs, wrappers=(), max_episode_steps=limit, fresh=False, without=without)
    )


def actions(task: NativeTask, num_envs: int, draw: Draw) -> Any:
    if isinstance(task.action_space, Discrete):
        return draw.integers(task.action_space.n, size=num_envs)
    if isinstance(task.action_space, Dict):  # of several roles, as rows
        return draw.integers(library.describe(task.name).choices, size=num_envs).view("V8")
    shape = (num_envs, *(task.action_space.shape or ()))
    kind = draw.integers(4)
    if kind == 0:
        return draw.choice(EXTREMES, shape)
    if kind == 1:
        return np.full(shape, draw.choice(EXTREMES), np.float32)
    return draw.uniform(-1.5, 1.5, shape).astype(np.float32)


def poses(vec: NativeVectorEnv) -> Any:
    """x, y and angle of each body, [N, 5, 3]."""
    c: Any = library.load()
    c.walker_poses.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    found = np.zeros((vec.num_envs, 5, 3), np.float32)
    for i in range(vec.num_envs):
        assert c.walker_poses(vec._vector, i, found[i].ctypes.data) == 0
    return found


def check_numbers(vec: NativeVectorEnv) -> None:
    names = ["reward", "running_return", "final_return"]
    if vec.arrays.observation.dtype.kind == "f":
        names += ["observation", "final"]
    for name in names:
        assert np.isfinite(getattr(vec.arrays, name)).all(), (vec.task.source, name)


def play(task: NativeTask, draw: Draw, steps: int) -> None:
    """Step a vector, parts of it at times, restart rows of it, and save and load it in between."""
    num_envs, threads = int(draw.choice([1, 5, 19, 40])), int(draw.integers(1, 4))
    autoreset = AutoresetMode.SAME_STEP if draw.random() < 0.6 else AutoresetMode.DISABLED
    vec, other = (NativeVectorEnv(task, num_envs, autoreset, threads=threads) for _ in range(2))
    seats = np.arange(vec.seats)
    if draw.random() < 0.5:
        vec.begin(int(draw.integers(2**40)), draw.integers(1000, size=num_envs))
    else:
        vec.reset(seed=int(draw.integers(2**40)))
    before = poses(vec) if task.name == "walker" else None
    number = vec.arrays.episode.copy()
    for k in range(steps):
        given = actions(task, vec.num_envs, draw)
        chosen = np.arange(num_envs)[k % 5 == 0 and draw.integers(num_envs) :]
        chosen = (chosen[:, None] * vec.seats + seats).ravel()
        if autoreset is AutoresetMode.DISABLED:
            restart_over(vec)
        vec.send(given[chosen], chosen)
        vec.recv(chosen)
        check_numbers(vec)
        if before is not None:
            after = poses(vec)
            same = vec.arrays.episode == number
            moved = np.abs(after - before)[same, :, :2]
            assert np.isfinite(after).all() and (not moved.size or moved.max() <= MOVES + PUSHED), moved.max()
            before, number = after, vec.arrays.episode.copy()
        if k % 11 == 10 and autoreset is AutoresetMode.DISABLED:
            vec.reset(options={"reset_mask": (np.arange(num_envs) == draw.integers(num_envs)).repeat(vec.seats)})
            before = poses(vec) if before is not None else None
        if k % 9 == 8:
            state = vec.state_dict()
            other.load_state_dict(state)
            assert other.state_dict()["saved"].tobytes() == state["saved"].tobytes()
            vec, other = other, vec
    vec.close()
    other.close()


def restart_over(vec: NativeVectorEnv) -> None:
    """Reset the environments that wait for it, and worlds in which nobody lives."""
    over = vec._table.flag == OVER[0]
    if (lives := vec.arrays.lives) is not None:
        over |= ~lives.alive.reshape(-1, vec.seats).any(axis=1).repeat(vec.seats)
    if over.any():
        vec.reset(options={"reset_mask": over})


def roll(task: NativeTask, draw: Draw) -> None:
    """Whole episodes of random networks, some of which are not numbers."""
    (inputs,) = task.observation_space.shape or ()
    discrete = isinstance(task.action_space, Discrete)
    outputs = int(task.action_space.n) if isinstance(task.action_space, Discrete) else task.action_space.shape[0]  # type: ignore[index]
    sizes = (inputs, *draw.integers(1, 40, draw.integers(0, 3)).tolist(), outputs)
    space: Any = task.action_space
    bounds: dict[str, Any] = {} if discrete else {"low": tuple(space.low.tolist()), "high": tuple(space.high.tolist())}
    head = "discrete" if discrete else str(draw.choice(["bounded", "clipped"]))
    network = Network(sizes, str(draw.choice(rollout.ACTIVATIONS)), head, **bounds)
    assert rollout.supports(task, network)
    members, episodes = int(draw.integers(1, 9)), int(draw.integers(1, 50))
    parameters = draw.normal(0, draw.choice([0, 1, 100]), (members, network.num_parameters)).astype(np.float32)
    parameters[draw.random(parameters.shape) < 0.002] = draw.choice([np.nan, np.inf, -np.inf, 1e38, 1e-45])
    mean, std = draw.normal(size=(2, inputs)).astype(np.float32)
    normalizer = Normalizer(mean, np.abs(std) + np.float32(1e-6), 5.0) if draw.random() < 0.5 else None
    played = rollout.play_episodes(
        task,
        network,
        parameters,
        draw.integers(members, size=episodes).tolist(),
        draw.integers(2**40, size=episodes).tolist(),
        normalizer=normalizer,
        cap=int(draw.integers(1, 20)),
        observe=(draw.random(episodes) < 0.5).tolist(),
        threads=int(draw.integers(1, 4)),
    )
    with np.errstate(all="ignore"):
        networks = Networks(network, members)
        networks.parameters[:] = parameters
        assert networks(draw.normal(size=(members, inputs)).astype(np.float32)).shape == (members, outputs)
    assert not np.isinf(played.returns).any()
    assert np.isfinite(played.mean).all() and np.isfinite(played.m2).all()


def steps(task: NativeTask, draw: Draw) -> None:
    """Steps of one random policy whose actions are drawn, some of which are not numbers."""
    (inputs,), space, num_envs = task.observation_space.shape or (), task.action_space, int(draw.choice([1, 5, 19, 40]))
    discrete = isinstance(space, Discrete)
    numbers = 0 if discrete else space.shape[0]  # type: ignore[index]
    drawn: Any = "choices" if discrete else str(draw.choice(["clipped", "squashed", "soft", "tanh"]))
    outputs = int(space.n) if isinstance(space, Discrete) else numbers * (2 if drawn == "soft" else 1)
    layout = DenseLayout((inputs, *draw.integers(1, 40, draw.integers(0, 3)).tolist(), outputs), out_first=True)
    nothing = np.zeros(numbers, np.float32)
    activation = str(draw.choice(rollout.ACTIVATIONS))
    venv = NativeVectorEnv(task, num_envs, threads=int(draw.integers(1, 4)))
    player = StepPlayer(
        venv, StochasticNetwork(layout, activation, drawn, nothing - 1, nothing + 1, nothing + 1, nothing)
    )
    venv.begin(int(draw.integers(2**40)))
    for _ in range(3):
        parameters = draw.normal(0, draw.choice([0, 1, 100]), layout.num_parameters).astype(np.float32)
        parameters[draw.random(parameters.shape) < 0.002] = draw.choice([np.nan, np.inf, -np.inf, 1e38, 1e-45])
        mean, std = draw.normal(size=(2, inputs)).astype(np.float32)
        normalizer = Normalizer(mean, np.abs(std) + np.float32(1e-6), 5.0) if draw.random() < 0.5 else None
        T = int(draw.integers(1, 30))
        with np.errstate(all="ignore"):
            player.load(parameters, draw.normal(0, 3, len(nothing)).astype(np.float32), normalizer)
        try:
            played = player.play(
                draw.normal(0, draw.choice([0, 1, 1e30]), (T, num_envs, numbers or outputs)).astype(np.float32)
            )
        except VectorMisuse:
            continue
        assert np.isfinite(played.obs).all() and np.isfinite(played.reward).all()
        assert np.isfinite(played.final_obs).all() and (played.lengths > 0).all()
    venv.close()


def forward(draw: Draw) -> None:
    """One network of any width on any number of rows, and the functions that it is made of."""
    sizes = tuple(draw.integers(1, 70, int(draw.integers(2, 5))).tolist())
    layout, rows = DenseLayout(sizes, out_first=bool(draw.random() < 0.5)), int(draw.integers(0, 100))
    network = DenseForward(layout, str(draw.choice(rollout.ACTIVATIONS)))
    with np.errstate(all="ignore"):
        network.load(draw.normal(0, draw.choice([0, 1, 100]), layout.num_parameters).astype(np.float32))
        assert network(draw.choice(EXTREMES, (rows, sizes[0]))).shape == (rows, sizes[-1])
        x = draw.integers(2**32, size=rows, dtype=np.uint32).view(np.float32)
        assert all(function(x).shape == x.shape for function in (fast_exp, fast_log, fast_tanh))


def main(folder: str, name: str, seed: int) -> None:
    os.environ[library.SET_VARIABLE] = name
    library.FOLDER = Path(folder)
    draw = np.random.default_rng(seed)
    ids = native_ids()
    kinds: list[tuple[str, Callable[[NativeTask], None]]] = []
    for id in ids:
        walks = "Walker" in id or "Terrain" in id
        times = 3 if "Terrain" in id else 1
        kinds += times * [(id, lambda task, count=20 if walks else 30: play(task, draw, count))]
        kinds += [(id, lambda task: roll(task, draw)), (id, lambda task: steps(task, draw))]
    for name in WORLDS if importlib.util.find_spec("minigrid") else ():
        kinds.append((f"minigrid:MiniGrid-{name}", lambda task: play(task, draw, 30)))
    for id in game_ids():
        kinds.append((id, lambda task: play(task, draw, 30)))
        if library.describe(find_version(id).name).observations:
            kinds += [(id, lambda task: roll(task, draw)), (id, lambda task: steps(task, draw))]
    for name in (*BOARDS, *PARTIES) if importlib.util.find_spec("pettingzoo") else PARTIES:
        kinds += 2 * [(name, lambda task: play(task, draw, 30))]
    for _ in range(20):
        forward(draw)
    for id, run in kinds:
        run(recipe(id, draw))
    print(f"{len(kinds)} vectors and rollouts on {library.widest()}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
