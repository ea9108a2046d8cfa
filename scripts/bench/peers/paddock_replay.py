"""Paddock's side of scripts/bench/replay.py and runs/seeds.py, with requests as JSON lines."""

import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from paddock.algos.pool.serial import SerialPool
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm, read_plain

NEVER = 10**9  # steps between evaluations
AT_ONCE = 64  # updates per row


@contextlib.contextmanager
def built_from(words: list[str]) -> Iterator[Any]:
    """Build an algorithm from overrides, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        yield build_algorithm(read_plain(compose_alone(words)), SerialPool(), folder=Path(folder))


def train(recipe: dict[str, Any], setting: int, updates: int, seed: int) -> dict[str, Any]:
    """Fill the replay, warm up, and time updates: 64 per step of an environment that costs nothing.

    The setting is the number of threads; with one, seconds are processor time.
    """
    values = {
        "algo": recipe["algo"],
        "env": "gymnasium",
        "env.id": "blank:bench/Blank-v0",
        "env.fresh": "false",
        "vec.num_envs": 1,
        "algo.hidden_sizes": json.dumps(recipe["hidden_sizes"]).replace(" ", ""),
        "algo.batch_size": recipe["batch_size"],
        "algo.learning_starts": recipe["rows"],
        "algo.buffer_size": recipe["rows"],
        "algo.num_steps": 1,
        "algo.log_every_steps": 1,
        "algo.updates_per_step": AT_ONCE,
        "algo.eval_every_steps": NEVER,
        "algo.threads": setting,
        "seed": seed,
    }
    values |= {f"+env.kwargs.{name}": json.dumps(recipe[name]) for name in ("observed", "actions", "discrete")}
    words = [f"{name}={value}" for name, value in (values | recipe.get("overrides", {})).items()]
    clock = time.process_time if setting == 1 else time.perf_counter
    with built_from(words) as algorithm, closing(algorithm.plan()) as plan:
        next(row for row in plan if row["step"] > recipe["rows"])  # warms up
        started = clock()
        count = len(list(itertools.islice(plan, updates // AT_ONCE)))
        seconds = clock() - started
    return {"steps": count * AT_ONCE, "seconds": seconds}


def play(num_envs: int, num_steps: int, rows: int, seed: int) -> dict[str, Any]:
    """Time DQN on native CartPole, 64-64 with an update of 64 per 4 steps, for `rows` of 20,000 steps."""
    values: dict[str, Any] = {
        "vec.num_envs": num_envs,
        "algo.num_steps": num_steps,
        "algo.updates_per_step": 0.25,
        "algo.log_every_steps": 20_000,
        "algo.eval_every_steps": NEVER,
        "algo.double": False,  # as in CleanRL, like the next two
        "algo.huber": "null",
        "algo.max_grad_norm": "null",
        "seed": seed,
    }
    return _time(["algo=dqn", "env=cartpole", "vec=native", *(f"{k}={v}" for k, v in values.items())], rows)


def whole(experiment: str, steps: int, seed: int) -> dict[str, Any]:
    """Time an experiment after its first 2,048 steps, without evaluations."""
    words = [f"experiment={experiment}", f"algo.eval_every_steps={NEVER}", f"seed={seed}", "algo.log_every_steps=2048"]
    return _time(words, steps // 2048)


def _time(words: list[str], rows: int) -> dict[str, Any]:
    """Return steps and processor seconds of rows of metrics after the first."""
    with built_from(words) as algorithm, closing(algorithm.plan()) as plan:
        first, started = next(plan)["step"], time.process_time()
        *_, last = itertools.islice(plan, rows)
        seconds = time.process_time() - started
    return {"steps": last["step"] - first, "seconds": seconds}


def score(recipe: dict[str, Any], last_episodes: int, seed: int) -> dict[str, Any]:
    """Train by an experiment, and evaluate the deterministic last policy."""
    words = [f"experiment={recipe['experiment']}", f"seed={seed}", f"algo.eval_every_steps={NEVER}", "algo.threads=1"]
    words += [f"algo.eval_episodes={last_episodes}"]
    with built_from(words) as algorithm, closing(algorithm.plan()) as plan:
        step = next(row["step"] for row in plan if row["step"] >= recipe["steps"])
        [row] = algorithm.evaluate_last()
    return {"steps": step, "return_mean": row["eval/return_mean"]}


ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {  # by a key that is unique to the request
    "num_envs": play,
    "experiment": whole,
    "last_episodes": score,
}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        answer = next((ANSWERS[key] for key in ANSWERS if key in request), train)
        print(json.dumps(answer(**request)), flush=True)
