"""Recipe that builds an algorithm for a population member or a sanity run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddock.algos.common.threads import one_thread
from paddock.algos.pool.serial import SerialPool

if TYPE_CHECKING:
    # Importing Gymnasium would slow down `--help` and configuration errors.
    from paddock.envs.spec import EnvSpec
    from paddock.envs.vector import Vec


@dataclass(frozen=True)
class AlgorithmRecipe:
    """Algorithm class and its settings, except env, vec, pool, seed, total_steps and folder."""

    target: Callable[..., Any]  # the algorithm class
    settings: Mapping[str, Any]  # by configuration key
    accepted: frozenset[str]  # arguments among env, vec, pool, seed and total_steps

    def make_alone(self, env: EnvSpec, vec: Vec, seed: int, **more: Any) -> Any:
        """Build the algorithm with an in-process pool; `more` overrides settings and may add `folder`."""
        objects = {"env": env, "vec": vec, "pool": SerialPool(), "seed": seed, "total_steps": None}
        with one_thread():  # keeps initial weights bit-identical
            return self.target(**{**self.settings, **more}, **{k: objects[k] for k in objects if k in self.accepted})
