"""Contenders of scripts/bench/vec.py: the same random actions in each library's vector environments.

Each library runs in a separate process, possibly with another interpreter: `python vectors.py LIBRARY` reads one
request per line and answers with a line of JSON. PufferLib's interpreter needs gymnasium and the packages of the rows.
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
BATCHES = 64  # of actions, sampled in advance and repeated
DISTRIBUTIONS = {
    "gymnasium": ("gymnasium", "numpy", "minigrid", "Box2D", "ale-py"),
    "stable_baselines3": ("stable-baselines3", "torch"),
    "pufferlib": ("pufferlib", "pufferlib-core"),
    "paddock.envs.vector": ("paddock",),
    **{name: (name, "jax") for name in ("gymnax", "pgx")},
}
Setting = dict[str, int]  # num_envs and workers, if a contender has them
Advance = Callable[[], int]  # steps the vector and returns the number of environments that stepped


@dataclass(frozen=True)
class Row:
    """Environment in the table, with its requirements."""

    spec: EnvSpec
    package: str | None  # that contains it, if not Gymnasium
    envpool: str | None  # its name in EnvPool, if it exists there


def row(id: str, *, package: str | None = None, envpool: str | None = None, **changes: Any) -> Row:
    """Return a row with default settings of the environment, except `changes`."""
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
}


@dataclass(frozen=True)
class Contender:
    """Way to run environments.

    Attributes:
        python: whether it runs the same Python environment as ours.
        sizes: whether the number of environments is a setting, at most `most_envs`.
        workers: whether the number of workers is a setting.
    """

    library: str
    begin: Callable[[Row, Setting, ExitStack], Advance]
    python: bool = True
    sizes: bool = True
    most_envs: int | None = None
    workers: bool = False

    def settings(self, num_envs: tuple[int, ...], workers: tuple[int, ...]) -> list[Setting]:
        """Return its part of the grid."""
        if not self.sizes:
            return [{}]
        sizes = [N for N in num_envs if self.most_envs is None or self.most_envs >= N] or [min(num_envs)]
        counts: list[Setting] = [{"workers": count} for count in workers] if self.workers else [{}]
        return [{"num_envs": N, **count} for N, count in itertools.product(sizes, counts)]


def play(contender: str, row_name: str, setting: Setting, warm_s: float, seconds: float) -> dict[str, float]:
    """Build, warm up, measure and close a contender."""
    return measure(partial(CONTENDERS[contender].begin, ROWS[row_name], setting), warm_s, seconds)


def measure(begin: Callable[[ExitStack], Advance], warm_s: float, seconds: float) -> dict[str, float]:
    """Return steps, seconds and the processor time of all threads of the vector that `begin` opens."""
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
    """Return an endless iterator over `BATCHES` batches of random actions."""
    space.seed(0)
    empty: Any = create_empty_array(space, num_envs)
    samples = ([space.sample() for _ in range(num_envs)] for _ in range(BATCHES))
    return itertools.cycle([np.array(concatenate(space, batch, empty)) for batch in samples])


def one_env(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    """Step a single environment without a vector."""
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
    """Return a function that steps a vector environment."""
    stack.callback(venv.close)
    venv.reset(seed=0) if seeded else venv.reset()
    N, step = venv.num_envs, venv.step

    def advance() -> int:
        step(next(actions))
        return N

    return advance


def gymnasium_vector(row: Row, setting: Setting, stack: ExitStack, cls: Any) -> Advance:
    """Step Gymnasium's sync or async vector environment."""
    venv = cls([row.spec.make] * setting["num_envs"], copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    return stepping(venv, stack, draw(venv.single_action_space, venv.num_envs))


def sb3_vector(row: Row, setting: Setting, stack: ExitStack, cls: str, **options: Any) -> Advance:
    """Step Stable-Baselines3's dummy or subprocess vector environment."""
    from stable_baselines3.common import vec_env

    venv = getattr(vec_env, cls)([row.spec.make for _ in range(setting["num_envs"])], **options)
    return stepping(venv, stack, draw(venv.action_space, venv.num_envs), seeded=False)


def envpool_pool(row: Row, setting: Setting, stack: ExitStack, num_batches: int) -> Advance:
    """Step EnvPool's environments; a step that resets an environment counts."""
    import envpool

    if row.envpool is None:
        raise LookupError("EnvPool has no such task")
    N = setting["num_envs"]
    options: dict[str, Any] = {
        "num_envs": N,
        "batch_size": N // num_batches,
        "num_threads": setting["workers"],
        "env_type": "gymnasium",
    }
    pool = envpool.make(row.envpool, **options)
    stack.callback(pool.close)
    actions = draw(pool.action_space, N // num_batches)
    pool.async_reset()

    def advance() -> int:
        *_, info = pool.recv()
        pool.send(next(actions), info["env_id"])
        return N // num_batches

    return advance


def puffer(row: Row, setting: Setting, stack: ExitStack, backend: str, num_batches: int) -> Advance:
    """Step PufferLib's emulation of a Gymnasium environment; with several batches, the first that is ready."""
    from pufferlib import vector
    from pufferlib.emulation import GymnasiumPufferEnv

    def make(buf: Any = None, seed: int = 0) -> Any:
        return GymnasiumPufferEnv(env_creator=row.spec.make, buf=buf, seed=seed)

    N = setting["num_envs"]
    options: dict[str, Any] = {}
    if backend == "Multiprocessing":
        options = {"num_workers": setting["workers"], "batch_size": N // num_batches, "overwork": True}
        options["sync_traj"] = num_batches == 1
    venv = vector.make(make, backend=backend, num_envs=N, **options)
    stack.callback(venv.close)
    actions = draw(venv.single_action_space, N // num_batches)
    venv.async_reset(0)

    def advance() -> int:
        venv.recv()
        venv.send(next(actions))
        return N // num_batches

    return advance


def ours_vector(row: Row, setting: Setting, stack: ExitStack, name: str) -> Advance:
    """Step Paddock's serial or multiprocess vector environment."""
    venv = configured(name, **setting).make(row.spec, copy=False)
    return stepping(venv, stack, draw(venv.single_action_space, venv.num_envs))


def ours_pool(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    """Step Paddock's multiprocess environments in two halves, the first that is ready."""
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
    """Return a vectorization with the settings of conf/vec, except these."""
    import yaml

    from paddock.envs.errors import resolve

    keys = yaml.safe_load((ROOT / "conf" / "vec" / f"{name}.yaml").read_text())
    return resolve(keys.pop("_target_"), "vec")(**(keys | {"num_envs": num_envs} | changes))


PROCESSES = 16  # at most, with one process per environment; more are slower on small machines
CONTENDERS = {
    "one environment": Contender("gymnasium", one_env, sizes=False),
    "Gymnasium sync": Contender("gymnasium", partial(gymnasium_vector, cls=SyncVectorEnv)),
    "Gymnasium async": Contender("gymnasium", partial(gymnasium_vector, cls=AsyncVectorEnv), most_envs=PROCESSES),
    "SB3 dummy": Contender("stable_baselines3", partial(sb3_vector, cls="DummyVecEnv")),
    "SB3 subproc": Contender(
        "stable_baselines3", partial(sb3_vector, cls="SubprocVecEnv", start_method="fork"), most_envs=PROCESSES
    ),
    "PufferLib serial": Contender("pufferlib", partial(puffer, backend="Serial", num_batches=1)),
    "PufferLib multiproc": Contender(
        "pufferlib", partial(puffer, backend="Multiprocessing", num_batches=1), workers=True
    ),
    "PufferLib pool": Contender("pufferlib", partial(puffer, backend="Multiprocessing", num_batches=2), workers=True),
    "EnvPool sync": Contender("envpool", partial(envpool_pool, num_batches=1), python=False, workers=True),
    "EnvPool async": Contender("envpool", partial(envpool_pool, num_batches=2), python=False, workers=True),
    "ours serial": Contender("paddock.envs.vector", partial(ours_vector, name="serial")),
    "ours multiprocess": Contender("paddock.envs.vector", partial(ours_vector, name="multiprocess"), workers=True),
    "ours pool": Contender("paddock.envs.vector", ours_pool, workers=True),
}
ONE_ENV = "one environment"
OURS = [name for name, contender in CONTENDERS.items() if contender.library == "paddock.envs.vector"]
PEERS = [name for name, contender in CONTENDERS.items() if contender.python and name not in (*OURS, ONE_ENV)]


def serve(library: str, play: Callable[..., dict[str, float]]) -> None:
    """Answer requests for this library's contenders with `play` until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # redirects output of the library
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
