"""Contenders of scripts/bench/native.py: the same random actions in compiled environments and in Gymnasium's.

`python scripts/bench/contenders/compiled.py LIBRARY` runs one library, with the protocol of vectors.py. Contenders with
one thread are bound to one core, including the threads of their library.
"""

import itertools
import logging
import math
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from scripts.bench.contenders.vectors import (
    BATCHES,
    Advance,
    Row,
    Setting,
    draw,
    envpool_pool,
    measure,
    one_env,
    row,
    serve,
)

WALKERS = ("BipedalWalker-v3", "BipedalWalkerHardcore-v3")
CLASSIC = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")
WORLDS = ("MiniGrid-Empty-8x8-v0", "MiniGrid-DoorKey-8x8-v0")
ROWS = {id: row(id, envpool=id) for id in (*WALKERS, *CLASSIC)}
ROWS |= {id: row(f"minigrid:{id}", package="minigrid", envpool=id, without=("mission",)) for id in WORLDS}
GAMES = ("paddock/Pong-v0",)
MINATAR = tuple(f"paddock/MinAtar{game}-v0" for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"))
ROWS |= {id: row(f"paddock.envs.games:{id}") for id in GAMES}
ROWS |= {id: row(f"paddock.envs.games:{id}", package="minatar") for id in MINATAR}
BOARDS = ("connect_four_v3", "tictactoe_v3")
SNAKES = {"snakes": 4, "width": 16, "height": 16, "food": 8, "longest": 24, "absence": 10, "max_steps": 500}
ROWS |= {id: row(f"pettingzoo.classic.{id}:env", package="pettingzoo") for id in BOARDS}
ROWS["snake"] = row("paddock.envs.tasks.snake:Snake", kwargs=SNAKES)
SPREAD = {"N": 3, "local_ratio": 0.5, "max_cycles": 25}
ROWS["spread"] = row("paddock.envs.tasks.spread:Spread", kwargs=SPREAD)
JAX = ("gymnax:CartPole-v1", "gymnax:Breakout-MinAtar")
ROBOTS = tuple(f"{name}-v5" for name in ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid"))
ROWS |= {id: row(id) for id in JAX} | {id: row(f"paddock.envs.bindings.mujoco:{id}") for id in ROBOTS}
GYMNASIUM = (*WALKERS, *CLASSIC, *WORLDS, *GAMES)
HIDDEN = (32,)
EPISODES = 256  # per call that plays whole episodes
CAP = 400  # steps of these episodes
SCAN = 128  # steps of a compiled rollout


@dataclass(frozen=True)
class Contender:
    """Way to run environments.

    Attributes:
        threads: threads that step environments; with one, the process is bound to a core.
        rows: environments that it supports.
        settings: its grid, starting with the one for --quick.
    """

    library: str
    begin: Callable[[Row, Setting, ExitStack], Advance]
    threads: int
    rows: tuple[str, ...] = GYMNASIUM
    settings: tuple[Setting, ...] = ({},)


def play(contender: str, row_name: str, setting: Setting, warm_s: float, seconds: float) -> dict[str, float]:
    """Build, warm up, measure and close a contender; on one core if it has one thread."""
    one = CONTENDERS[contender]
    cores = os.sched_getaffinity(0)
    if one.threads == 1:
        os.sched_setaffinity(0, {max(cores)})
    try:
        setting = setting | {"workers": one.threads}
        return measure(partial(one.begin, ROWS[row_name], setting), warm_s, seconds)
    finally:
        os.sched_setaffinity(0, cores)


def native(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    """Step native environments as `Collector` does: send actions, and receive a batch with its infos."""
    from paddock.envs.native.settings import native_task
    from paddock.envs.native.vector import NativeVectorEnv

    N = setting["num_envs"]
    venv = NativeVectorEnv(native_task(row.spec), N, copy=False, threads=setting["workers"], packed=True)
    stack.callback(venv.close)
    venv.reset(seed=0)
    actions = draw(venv.single_action_space, venv.num_envs)
    taken = N if row.package == "pettingzoo" else venv.num_envs  # one agent per environment in turn-based games

    def advance() -> int:
        venv.send(next(actions))
        venv.recv()
        return taken

    return advance


def pettingzoo(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    """Step PettingZoo's AEC API as documented: observe, then act."""
    env = row.spec.make().env
    stack.callback(env.close)
    stack.callback(logging.disable, logging.root.manager.disable)
    logging.disable()  # warnings about illegal actions
    space = env.action_space(env.possible_agents[0])
    space.seed(0)
    actions = itertools.cycle([space.sample() for _ in range(BATCHES)])
    env.reset(seed=0)

    def advance() -> int:
        *_, terminated, truncated, _ = env.last()
        if terminated or truncated:
            env.reset()
            env.last()
        env.step(next(actions))
        return 1

    return advance


def native_episodes(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    """Play whole episodes of random networks in native environments, as a population does."""
    from paddock.envs.native.rollout import Network, play_episodes
    from paddock.envs.native.settings import native_task

    task = native_task(row.spec)
    observations, actions = (math.prod(space.shape or ()) for space in (task.observation_space, task.action_space))
    network = Network((observations, *HIDDEN, actions), "tanh", "bounded", (-1.0,) * actions, (1.0,) * actions)
    random = np.random.default_rng(0)
    parameters = random.normal(0, 0.3, (EPISODES, network.num_parameters)).astype(np.float32)
    observe = [False] * EPISODES
    rounds = itertools.count()

    def advance() -> int:
        first = EPISODES * next(rounds)
        seeds = range(first, first + EPISODES)
        played = play_episodes(
            task,
            network,
            parameters,
            range(EPISODES),
            seeds,
            normalizer=None,
            cap=CAP,
            observe=observe,
            threads=setting["workers"],
        )
        return int(played.lengths.sum())

    return advance


def envpool(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    """Step EnvPool's environments."""
    return envpool_pool(row, setting, stack, setting["num_batches"])


def minatar(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    """Step the game of the package minatar."""
    game = row.spec.id.partition("MinAtar")[2].removesuffix("-v0")
    return one_env(
        replace(row, spec=replace(row.spec, id=f"paddock.envs.bindings.minatar:MinAtar/{game}-v1")), setting, stack
    )


def recipe(name: str, row: Row, setting: Setting, stack: ExitStack) -> Advance:
    """Step a recipe of `paddock.envs.vector` as `Collector` does."""
    from paddock.envs import vector

    N, threads = setting["num_envs"], {"threads": setting["workers"]} if name == "MuJoCo" else {}
    venv = getattr(vector, name)(num_envs=N, **threads).make(row.spec, copy=False, packed=True)
    stack.callback(venv.close)
    venv.begin(0)
    actions = draw(venv.single_action_space, N)

    def advance() -> int:
        venv.send(next(actions))
        venv.recv()
        return N

    return advance


def gymnax_scan(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    """Run gymnax's rollout: a compiled `lax.scan` over its vmapped step, whose results stay in JAX's arrays."""
    import gymnax
    import jax

    N = setting["num_envs"]
    env, params = gymnax.make(row.spec.id.partition(":")[2])
    each = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def step(carry: Any, actions: Any) -> Any:
        key, state = carry
        key, use = jax.random.split(key)
        observation, state, reward, terminated, truncated, _ = each(jax.random.split(use, N), state, actions, params)
        return (key, state), (observation, reward, terminated, truncated)

    rollout = jax.jit(lambda carry, actions: jax.lax.scan(step, carry, actions))
    key = jax.random.PRNGKey(0)
    _, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, N), params)
    drawn = draw(row.spec.spaces[1], N)
    actions = jax.numpy.stack([next(drawn).astype(np.int32) for _ in range(SCAN)])
    carry = [(key, state)]

    def advance() -> int:
        carry[0], results = rollout(carry[0], actions)
        jax.block_until_ready(results)
        return N * SCAN

    return advance


def sizes(*num_envs: int, num_batches: tuple[int, ...] = ()) -> tuple[Setting, ...]:
    """Return a grid of numbers of environments, and of batches if these are given."""
    counts: list[Setting] = [{"num_batches": count} for count in num_batches] or [{}]
    return tuple({"num_envs": N, **count} for N, count in itertools.product(num_envs, counts))


ONE = Contender(
    "paddock.envs.native", native, threads=1, rows=tuple(ROWS.keys() - {*JAX, *ROBOTS}), settings=sizes(1024, 256, 4096)
)
POOL = Contender("envpool", envpool, threads=1, settings=sizes(256, 64, 1024, num_batches=(1, 2)))
WHOLE = Contender("paddock.envs.native", native_episodes, threads=1, rows=WALKERS)
SERIAL = Contender("mujoco", partial(recipe, "Serial"), threads=1, rows=ROBOTS, settings=sizes(64))
MUJOCO = replace(SERIAL, begin=partial(recipe, "MuJoCo"))
BATCHED = Contender("gymnax", partial(recipe, "Jax"), threads=1, rows=JAX, settings=sizes(1024, 4096, 16384))
CONTENDERS = {
    "Gymnasium": Contender("gymnasium", one_env, threads=1),
    "MinAtar": Contender("minatar", minatar, threads=1, rows=MINATAR),
    "PettingZoo": Contender("pettingzoo", pettingzoo, threads=1, rows=BOARDS),
    "EnvPool": POOL,
    "EnvPool, 2 threads": replace(POOL, threads=2),
    "gymnax's lax.scan": replace(BATCHED, begin=gymnax_scan),
    "vec=jax": BATCHED,
    "vec=serial": SERIAL,
    "vec=mujoco": MUJOCO,
    "vec=mujoco, 2 threads": replace(MUJOCO, threads=2),
    "native": ONE,
    "native, 2 threads": replace(ONE, threads=2),
    "native, whole episodes": WHOLE,
}

if __name__ == "__main__":
    serve(sys.argv[1], play)
