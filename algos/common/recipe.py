"""How an algorithm is made, as it was found where configuration becomes objects.

So whoever trains several, members of a population or trials of a suite, makes each from what is written here, and
looks at no signature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddock.algos.common.threads import one_thread
from paddock.algos.pool.serial import SerialPool

if TYPE_CHECKING:
    # Help and errors of a configuration, which may name a recipe, need not wait for Gymnasium.
    from paddock.envs.spec import EnvSpec
    from paddock.envs.vector import Vec


@dataclass(frozen=True)
class AlgorithmRecipe:
    """A class of algorithms with all that it takes but its parts: env, vec, pool, seed, total_steps, and folder if it has files."""

    target: Callable[..., Any]  # the class
    settings: Mapping[str, Any]  # by key of its section
    takes: frozenset[str]  # which of the parts it is made with

    def make_alone(self, env: EnvSpec, vec: Vec, seed: int, **more: Any) -> Any:
        """Make the algorithm at its beginning, on a pool that is this process.

        Args:
            more: settings in place of its own, and a folder.
        """
        parts = {"env": env, "vec": vec, "pool": SerialPool(), "seed": seed, "total_steps": None}
        with one_thread():  # for the last bits of a network's first weights, too
            return self.target(
                **{**self.settings, **more}, **{name: parts[name] for name in parts if name in self.takes}
            )
