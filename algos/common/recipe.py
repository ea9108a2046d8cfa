"""Recipe of an algorithm, from which members of a population or runs of a test suite are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddock.algos.common.threads import one_thread
from paddock.algos.pool.serial import SerialPool

if TYPE_CHECKING:
    # Help and configuration errors must not wait for the import of Gymnasium.
    from paddock.envs.spec import EnvSpec
    from paddock.envs.vector import Vec


@dataclass(frozen=True)
class AlgorithmRecipe:
    """Class of an algorithm and its settings, except env, vec, pool, seed, total_steps and folder."""

    target: Callable[..., Any]  # the class
    settings: Mapping[str, Any]  # by configuration key
    takes: frozenset[str]  # the arguments among env, vec, pool, seed and total_steps that the class takes

    def make_alone(self, env: EnvSpec, vec: Vec, seed: int, **more: Any) -> Any:
        """Build the algorithm on a pool within this process; `more` replaces settings, and may name a folder."""
        objects = {"env": env, "vec": vec, "pool": SerialPool(), "seed": seed, "total_steps": None}
        with one_thread():  # keeps initial weights bit-identical
            return self.target(**{**self.settings, **more}, **{k: objects[k] for k in objects if k in self.takes})
