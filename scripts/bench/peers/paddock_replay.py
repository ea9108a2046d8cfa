"""Paddock's learners from replay with a recipe of scripts/bench/replay.py, as its algorithms drive them.

Reads requests as JSON lines. A setting is a number of threads; seconds are the processor's where it is one, and else
pass by the clock. Batches are drawn and learned from as many at a time as an algorithm that owes so many does it.
"""

import contextlib
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from paddock.algos.learning.offpolicy.from_replay import AT_ONCE, FromReplay
from paddock.algos.pool.late import LatePool
from paddock.algos.pool.serial import SerialPool
from paddock.config.build import build as paddock_build
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm, read_plain
from paddock.runs.checkpoint import Checkpoints

NEVER = 10**9  # steps between evaluations


def build(recipe: dict[str, Any], setting: int, seed: int, folder: Path) -> Any:
    """The algorithm that a recipe describes."""
    of = {f"+env.kwargs.{name}": json.dumps(recipe[name]) for name in ("observed", "actions", "discrete")}
    values = {
        "algo": recipe["algo"],
        "env": "gymnasium",
        "env.id": "blank:bench/Blank-v0",
        "env.fresh": "false",
        "vec.num_envs": 1,
        "algo.hidden": json.dumps(recipe["hidden"]).replace(" ", ""),
        "algo.batch_size": recipe["batch_size"],
        "algo.warmup": recipe["rows"],
        "algo.row_every": recipe["rows"],
        "algo.num_steps": 100,
        "algo.capacity": recipe["rows"],
        "algo.eval_every": NEVER,
        "algo.threads": setting,
        "seed": seed,
    }
    given = [f"{name}={value}" for name, value in (values | of | recipe.get("overrides", {})).items()]
    return build_algorithm(read_plain(compose_alone(given)), SerialPool(), folder=folder)


@contextlib.contextmanager
def made_of(words: list[str]) -> Iterator[Any]:
    """Build the algorithm that a command's words describe, in a folder that goes with it."""
    with tempfile.TemporaryDirectory() as folder:
        yield build_algorithm(read_plain(compose_alone(words)), SerialPool(), folder=Path(folder))


def train(recipe: dict[str, Any], setting: int, updates: int, seed: int) -> dict[str, Any]:
    """Fill the replay, warm up, then make `updates` that count, in whole calls."""
    with tempfile.TemporaryDirectory() as folder:
        algorithm = build(recipe, setting, seed, Path(folder))
        plan = algorithm.plan()
        try:
            next(plan)  # which owes no update
            assert algorithm.pace.updates == 0 and algorithm.replay.size == recipe["rows"]
            size = min(updates, AT_ONCE)
            learn(algorithm, 0, size)
            clock = time.process_time if setting == 1 else time.perf_counter
            started = clock()
            for first in range(size, updates + 1, size):
                learn(algorithm, first, size)
            seconds = clock() - started
        finally:
            plan.close()
    return {"steps": updates // size * size, "seconds": seconds}


def learn(algorithm: FromReplay, first: int, count: int) -> None:
    """Make so many updates by one call."""
    batch = algorithm.replay.sample(first, count, algorithm.batch_size)
    algorithm.learner.update(batch, algorithm.rate)


def fill(rows: int, observed: int, overrides: dict[str, Any], seed: int, folder: Path) -> Any:
    """DQN whose first row is due when its replay has so many transitions of so many numbers."""
    recipe = {"algo": "dqn", "observed": observed, "actions": 2, "discrete": True, "hidden": [8], "batch_size": 256}
    return build(recipe | {"rows": rows, "overrides": {"algo.num_steps": 1000} | overrides}, 1, seed, folder)


def prioritized(rows: int, draws: int, seed: int) -> dict[str, Any]:
    """Draw a batch by priorities, and give its rows new ones, so many times."""
    with tempfile.TemporaryDirectory() as folder:
        algorithm = fill(rows, 4, {"algo.priority_exponent": 0.6}, seed, Path(folder))
        plan = algorithm.plan()
        try:
            next(plan)
            replay, count = algorithm.replay, draws // 10
            for number in range(count + draws):
                if number == count:
                    started = time.process_time()
                batch = replay.sample(number, 1, 256)
                replay.set_priorities(batch.ids, abs(batch.reward))
            seconds = time.process_time() - started
        finally:
            plan.close()
    return {"steps": draws, "seconds": seconds}


def checkpoint(observed: int, rows: int, prioritized: bool, saves: int) -> dict[str, Any]:
    """Fill a replay, and save a checkpoint after each further 1,000 transitions: seconds that pass (median), bytes."""
    drawn = {"algo.priority_exponent": 0.6} if prioritized else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        algorithm = fill(rows, observed, {"algo.row_every": 1000} | drawn, 0, folder / "attachments")
        keeping = Checkpoints(folder / "checkpoints", keep=2, files=folder / "attachments")
        plan, seconds = algorithm.plan(), []
        try:
            for _ in range(rows // 1000):
                next(plan)
            for number in range(saves):
                started = time.perf_counter()
                path = keeping.save(number, algorithm.state_dict())
                seconds.append(time.perf_counter() - started)
                next(plan)
        finally:
            plan.close()
        return {"steps": 1, "seconds": statistics.median(seconds), "bytes": path.stat().st_size}


def play(lanes: int, num_steps: int, rows: int, seed: int) -> dict[str, Any]:
    """Learn CartPole in C with DQN, 64-64 and an update of 64 for 4 steps: all that it does for rows of 20,000 steps.

    Seconds are the processor's: it waits for nothing, and others may be at work.
    """
    values: dict[str, Any] = {
        "vec.num_envs": lanes,
        "algo.num_steps": num_steps,
        "algo.updates_per_step": 0.25,
        "seed": seed,
    }
    values |= {"algo.row_every": 20_000, "algo.eval_every": NEVER, "algo.double": False}
    values |= {"algo.huber": "null", "algo.max_grad_norm": "null"}  # as CleanRL's
    words = ["algo=dqn", "env=cartpole", "vec=native", *(f"{name}={value}" for name, value in values.items())]
    with made_of(words) as algorithm, closing(algorithm.plan()) as plan:
        first, started = next(plan)["step"], time.process_time()
        *_, last = itertools.islice(plan, rows)
        seconds = time.process_time() - started
    return {"steps": last["step"] - first, "seconds": seconds}


def whole(experiment: str, steps: int, seed: int) -> dict[str, Any]:
    """Train by a recipe, behind its first 2,048 steps, without evaluations: seconds of the processor."""
    words = [f"experiment={experiment}", f"algo.eval_every={NEVER}", f"seed={seed}", "algo.row_every=2048"]
    with made_of(words) as algorithm, closing(algorithm.plan()) as plan:
        first, started = next(plan)["step"], time.process_time()
        *_, last = itertools.islice(plan, steps // 2048)
        seconds = time.process_time() - started
    return {"steps": last["step"] - first, "seconds": seconds}


def score(recipe: dict[str, Any], last_episodes: int, seed: int) -> dict[str, Any]:
    """Train by an experiment's recipe, and play so many episodes of the last policy's best actions."""
    words = [f"experiment={recipe['experiment']}", f"seed={seed}", f"algo.eval_every={NEVER}", "algo.threads=1"]
    words += [f"algo.eval_episodes={last_episodes}"]
    with made_of(words) as algorithm, closing(algorithm.plan()) as plan:
        step = next(row["step"] for row in plan if row["step"] >= recipe["steps"])
        [row] = algorithm.evaluate_last()
    return {"steps": step, "return_mean": row["eval/return_mean"]}


def ape(actors: int, env: str, num_steps: int, updates_per_step: float, rows: int, seed: int) -> dict[str, Any]:
    """Learn an environment in Python by `algo=apex`: for rows of 8,192 steps.

    Args:
        actors: on as many workers, of 16 environments together; 0: this process plays, and then learns.

    Returns:
        Steps, seconds that passed, and which share of them the learner waited.
    """
    values: dict[str, Any] = {
        "vec.num_envs": 16 // max(actors, 1),
        "algo.num_steps": num_steps,
        "algo.updates_per_step": updates_per_step,
        "seed": seed,
    }
    values |= {"algo.row_every": 8192, "algo.eval_every": NEVER, "compute.workers": max(actors, 1)}
    values |= {"algo.num_actors": actors} if actors else {"algo.rollouts": "inline"}
    words = ["algo=apex", f"env={env}", "vec=serial", "compute=local", *(f"{k}={v}" for k, v in values.items())]
    config = read_plain(compose_alone(words))
    pool: Any = LatePool(paddock_build("compute", config["compute"])) if actors else SerialPool()
    with tempfile.TemporaryDirectory() as folder, closing(pool):
        if actors:
            pool.open({"paddock"})
        plan = build_algorithm(config, pool, folder=Path(folder)).plan()
        try:
            first, started = next(plan)["step"], time.perf_counter()
            found = list(itertools.islice(plan, rows))
            seconds = time.perf_counter() - started
        finally:
            plan.close()
    waited = sum(row["system/wait_share"] * row["system/iteration_s"] for row in found)
    return {"steps": found[-1]["step"] - first, "seconds": seconds, "idle": waited / seconds}


def gather(zeros: str, whole: bool, updates: int, seed: int) -> dict[str, Any]:
    """Make updates of DQN on an environment whose observations are mostly zeros, 64 a call.

    Args:
        zeros: the environment's choice in conf/env.
        whole: multiply by the zeros too, as a network of any numbers does.

    Returns:
        Updates, the processor's seconds, and the mean value of the last batch, which is the same.
    """
    values = {"vec.num_envs": 16, "algo.num_steps": 16, "algo.warmup": 2000, "algo.row_every": 2000, "seed": seed}
    words = ["algo=dqn", f"env={zeros}", "vec=native", f"algo.eval_every={NEVER}"]
    words += [f"{name}={value}" for name, value in values.items()]
    with made_of(words) as algorithm, closing(algorithm.plan()) as plan:
        next(plan)
        architecture = algorithm.learner.architecture
        assert architecture.inputs.sparse is not None, f"{zeros} has few zeros"
        if whole:
            vars(architecture.inputs)["sparse"] = None  # in place of the property that was cached
        learner = algorithm._learner(architecture, seed)
        batch = algorithm.replay.sample(0, AT_ONCE, algorithm.batch_size)
        learner.update(batch, algorithm.rate)
        started = time.process_time()
        for _ in range(updates // AT_ONCE):
            report, _ = learner.update(batch, algorithm.rate)
        seconds = time.process_time() - started
    return {"steps": updates // AT_ONCE * AT_ONCE, "seconds": seconds, "value": float(report[-1, 1])}


MADE: dict[str, Callable[..., dict[str, Any]]] = {
    "draws": prioritized,
    "lanes": play,
    "actors": ape,
    "zeros": gather,
    "experiment": whole,
    "last_episodes": score,
    "saves": checkpoint,
}  # by their own keys


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        made = next((MADE[name] for name in MADE if name in request), train)
        print(json.dumps(made(**request)), flush=True)
