"""Who runs in scripts/bench/vec.py: the same random actions through each library's own vector environments.

Each library plays in a process of its own, maybe by another interpreter: `python vectors.py LIBRARY`
reads one request a line and answers each with a line of JSON. An interpreter for PufferLib needs gymnasium and what the
rows need, and none of Paddock's other packages.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from paddock.envs.spec import EnvSpec

ROOT = Path(__file__).resolve().parents[3]
BATCHES = 64  # of actions, drawn before the clock starts and played in turn
DISTRIBUTIONS = {
    "gymnasium": ("gymnasium", "numpy", "minigrid", "Box2D", "ale-py"),
    "stable_baselines3": ("stable-baselines3", "torch"),
    "pufferlib": ("pufferlib", "pufferlib-core"),
    "paddock.envs.vector": ("paddock",),
    **{name: (name, "jax") for name in ("gymnax", "pgx")},
}
Setting = dict[str, int]  # num_envs and workers, where a contender has them
Advance = Callable[[], int]  # one step of the vector; returns how many environments stepped


@dataclass(frozen=True)
class Row:
    """One line of the table: an environment, and what it needs."""

    spec: EnvSpec
    package: str | None  # that has it, where it is not Gymnasium
    envpool: str | None  # its name in EnvPool, where there is one


def row(id: str, *, package: str | None = None, envpool: str | None = None, **changes: Any) -> Row:
    given: dict[str, Any] = {"kwargs": {}, "wrappers": (), "max_episode_steps": None, "fresh": False}
    return Row(EnvSpec(id=id, **(given | changes)), package, envpool)


ATARI = {"_target_": "gymnasium.wrappers.AtariPreprocessing", "frame_skip": 4, "screen_size": 84}
ROWS = {
    "CartPole-v1": row("CartPole-v1", envpool="CartPole-v1"),
    "Pendulum-v1": row("Pendulum-v1", envpool="Pendulum-v1"),
    "MiniGrid-Empty-8x8-v0": row(
        "minigrid:MiniGrid-Empty-8x8-v0",
        package="minigrid",
        envpool="MiniGrid-Empty-8x8-v0",
        wrappers=[{"_target_": "minigrid.wrappers.ImgObsWrapper"}],
    ),
    "BipedalWalker-v3": row("BipedalWalker-v3", package="Box2D", envpool="BipedalWalker-v3"),
    "paddock/BipedalWalker-v3": row("paddock.envs.bipedal:paddock/BipedalWalker-v3", package="Box2D"),
    "ALE/Breakout-v5": row(
        "ale_py:ALE/Breakout-v5",
        package="ale_py",
        envpool="Breakout-v5",
        kwargs={"frameskip": 1, "repeat_action_probability": 0.0},
        wrappers=[ATARI],
    ),
    "Uneven-v0": row("scripts.bench.loads.uneven:bench/Uneven-v0", kwargs={"sleep_s": 0.0}),
    "Uneven-v0, sleeping": row("scripts.bench.loads.uneven:bench/Uneven-v0", kwargs={"sleep_s": 0.0001}),
}


@dataclass(frozen=True)
class Contender:
    """A way to run environments.

    Attributes:
        python: whether it runs the same Python environment as we do.
        sizes: whether the number of environments is a setting; what is the most of it.
        workers: whether their number is a setting.
    """

    library: str
    begin: Callable[[Row, Setting, ExitStack], Advance]
    python: bool = True
    sizes: bool = True
    most_envs: int | None = None
    workers: bool = False

    def settings(self, num_envs: tuple[int, ...], workers: tuple[int, ...]) -> list[Setting]:
        """Its part of the grid."""
        if not self.sizes:
            return [{}]
        sizes = [N for N in num_envs if self.most_envs is None or self.most_envs >= N] or [min(num_envs)]
        counts: list[Setting] = [{"workers": count} for count in workers] if self.workers else [{}]
        return [{"num_envs": N, **count} for N, count in itertools.product(sizes, counts)]


def play(contender: str, row_name: str, setting: Setting, warm_s: float, seconds: float) -> dict[str, float]:
    """Build, warm up, measure, close."""
    return measure(partial(CONTENDERS[contender].begin, ROWS[row_name], setting), warm_s, seconds)


def measure(begin: Callable[[ExitStack], Advance], warm_s: float, seconds: float) -> dict[str, float]:
    """Steps, seconds, and the processor time of all threads, of what `begin` begins."""
    with ExitStack() as stack:
        advance = begin(stack)
        _advance_for(advance, warm_s)
        busy_since = time.process_time()
        steps, elapsed = _advance_for(advance, seconds)
        busy_s = time.process_time() - busy_since
    return {"steps": steps, "seconds": elapsed, "cpu_s": busy_s}


def _advance_for(advance: Advance, seconds: float) -> tuple[int, float]:
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        for _ in range(4):
            steps += advance()
    return steps, elapsed


def draw(space: Space, num_envs: int) -> Iterator[Any]:
    """Batches of random actions, for ever the same ones."""
    space.seed(0)
    empty: Any = create_empty_array(space, num_envs)
    samples = ([space.sample() for _ in range(num_envs)] for _ in range(BATCHES))
    return itertools.cycle([np.array(concatenate(space, batch, empty)) for batch in samples])


def bare(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    env = row.spec.make()
    stack.callback(env.close)
    env.action_space.seed(0)
    actions = itertools.cycle([env.action_space.sample() for _ in range(BATCHES)])
    env.reset(seed=0)

    def advance() -> int:
        _, _, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset()
        return 1

    return advance


def stepping(venv: Any, stack: ExitStack, actions: Iterator[Any], seeded: bool = True) -> Advance:
    stack.callback(venv.close)
    venv.reset(seed=0) if seeded else venv.reset()
    N, step = venv.num_envs, venv.step

    def advance() -> int:
        step(next(actions))
        return N

    return advance


def gymnasium_sync(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    venv = SyncVectorEnv([row.spec.make] * setting["num_envs"], copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    return stepping(venv, stack, draw(venv.single_action_space, venv.num_envs))


def gymnasium_async(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    venv = AsyncVectorEnv([row.spec.make] * setting["num_envs"], copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    return stepping(venv, stack, draw(venv.single_action_space, venv.num_envs))


def sb3_dummy(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    from stable_baselines3.common.vec_env import DummyVecEnv

    venv = DummyVecEnv([row.spec.make for _ in range(setting["num_envs"])])
    return stepping(venv, stack, draw(venv.action_space, venv.num_envs), seeded=False)


def sb3_subproc(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    venv = SubprocVecEnv([row.spec.make for _ in range(setting["num_envs"])], start_method="fork")
    return stepping(venv, stack, draw(venv.action_space, venv.num_envs), seeded=False)


def envpool_pool(row: Row, setting: Setting, stack: ExitStack, parts: int) -> Advance:
    """EnvPool as it comes: the step in which it restarts an environment counts as a step."""
    import envpool

    if row.envpool is None:
        raise LookupError("EnvPool has no such task")
    N = setting["num_envs"]
    options: dict[str, Any] = {
        "num_envs": N,
        "batch_size": N // parts,
        "num_threads": setting["workers"],
        "env_type": "gymnasium",
    }
    pool = envpool.make(row.envpool, **options)
    stack.callback(pool.close)
    actions = draw(pool.action_space, N // parts)
    pool.async_reset()

    def advance() -> int:
        *_, info = pool.recv()
        pool.send(next(actions), info["env_id"])
        return N // parts

    return advance


def puffer(row: Row, setting: Setting, stack: ExitStack, backend: str, parts: int) -> Advance:
    """PufferLib's emulation of a Gymnasium environment; with several parts, the first that is ready."""
    from pufferlib import vector
    from pufferlib.emulation import GymnasiumPufferEnv

    def make(buf: Any = None, seed: int = 0) -> Any:
        return GymnasiumPufferEnv(env_creator=row.spec.make, buf=buf, seed=seed)

    N = setting["num_envs"]
    options: dict[str, Any] = {}
    if backend == "Multiprocessing":
        options = {"num_workers": setting["workers"], "batch_size": N // parts, "overwork": True}
        options["sync_traj"] = parts == 1
    venv = vector.make(make, backend=backend, num_envs=N, **options)
    stack.callback(venv.close)
    actions = draw(venv.single_action_space, N // parts)
    venv.async_reset(0)

    def advance() -> int:
        venv.recv()
        venv.send(next(actions))
        return N // parts

    return advance


def ours_serial(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    venv = configured("serial", setting["num_envs"]).make(row.spec, copy=False)
    return stepping(venv, stack, draw(venv.single_action_space, venv.num_envs))


def ours_multiprocess(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    venv = configured("multiprocess", setting["num_envs"], workers=setting["workers"]).make(row.spec, copy=False)
    return stepping(venv, stack, draw(venv.single_action_space, venv.num_envs))


def ours_pool(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    N, B = setting["num_envs"], setting["num_envs"] // 2
    vec = configured("multiprocess", N, workers=setting["workers"], batch_size=B)
    venv = vec.make(row.spec, copy=False)
    stack.callback(venv.close)
    actions = draw(venv.single_action_space, B)
    venv.reset(seed=0)
    for half in (slice(0, B), slice(B, N)):
        venv.send(next(actions), half)
    send, recv = venv.send, venv.recv

    def advance() -> int:
        recv()
        send(next(actions))
        return B

    return advance


def configured(name: str, num_envs: int, **changes: Any) -> Any:
    """A recipe with the settings of conf/vec, except these."""
    import yaml

    from paddock.envs.errors import resolve

    keys = yaml.safe_load((ROOT / "conf" / "vec" / f"{name}.yaml").read_text())
    return resolve(keys.pop("_target_"), "vec")(**(keys | {"num_envs": num_envs} | changes))


PROCESSES = 16  # at most, where each environment has its own; more of them lose on the machines this is for
CONTENDERS = {
    "one environment": Contender("gymnasium", bare, sizes=False),
    "Gymnasium sync": Contender("gymnasium", gymnasium_sync),
    "Gymnasium async": Contender("gymnasium", gymnasium_async, most_envs=PROCESSES),
    "SB3 dummy": Contender("stable_baselines3", sb3_dummy),
    "SB3 subproc": Contender("stable_baselines3", sb3_subproc, most_envs=PROCESSES),
    "PufferLib serial": Contender("pufferlib", partial(puffer, backend="Serial", parts=1)),
    "PufferLib multiproc": Contender("pufferlib", partial(puffer, backend="Multiprocessing", parts=1), workers=True),
    "PufferLib pool": Contender("pufferlib", partial(puffer, backend="Multiprocessing", parts=2), workers=True),
    "EnvPool sync": Contender("envpool", partial(envpool_pool, parts=1), python=False, workers=True),
    "EnvPool async": Contender("envpool", partial(envpool_pool, parts=2), python=False, workers=True),
    "ours serial": Contender("paddock.envs.vector", ours_serial),
    "ours multiprocess": Contender("paddock.envs.vector", ours_multiprocess, workers=True),
    "ours pool": Contender("paddock.envs.vector", ours_pool, workers=True),
}
BARE = "one environment"
OURS = [name for name, contender in CONTENDERS.items() if contender.library == "paddock.envs.vector"]
PEERS = [name for name, contender in CONTENDERS.items() if contender.python and name not in (*OURS, BARE)]


def serve(library: str, play: Callable[..., dict[str, float]]) -> None:
    """Answer requests for this library's contenders by `play` until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not come between
    try:
        import_module(library)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=answers)
        return
    print(json.dumps({"versions": _versions(library), "python": sys.version.split()[0]}), file=answers)
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = play(**json.loads(line))
        except Exception as error:
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
        print(json.dumps(answer), file=answers)


def _versions(library: str) -> dict[str, str]:
    found = {}
    for package in DISTRIBUTIONS.get(library, (library,)):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    serve(sys.argv[1], play)
