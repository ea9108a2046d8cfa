"""Algorithms that learn in one process beside others of their kind, as members of a population do."""

import functools
import inspect
from typing import Any

from algos.common.threads import one_thread
from algos.pool.serial import SerialPool
from envs.spec import EnvSpec
from envs.vector import Vec


def make_alone(make: functools.partial[Any], env: EnvSpec, vec: Vec, seed: int, **settings: Any) -> Any:
    """Make an algorithm at its beginning, on a pool that is this process; it gets of the parts what it names."""
    parts = {"env": env, "vec": vec, "pool": SerialPool(), "seed": seed}
    named = inspect.signature(make.func).parameters
    with one_thread():  # for the last bits of a network's first weights, too
        return make(**settings, **{name: part for name, part in parts.items() if name in named})
