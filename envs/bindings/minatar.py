"""MinAtar (Young and Tian 2019, arXiv:1903.03176): its own ids, as `paddock.envs.bindings.minatar:MinAtar/Breakout-v1`.

Gymnasium looks for them no more by itself.
"""

from typing import Any

import gymnasium
from minatar.gym import register_envs

if not any(id.startswith("MinAtar/") for id in gymnasium.registry):
    register_envs()


class Forgetful(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Begin each episode without a last action: MinAtar's `reset` keeps it, and sticky actions would repeat it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        game: Any = self.unwrapped
        game.game.last_action = 0
        return self.env.reset(seed=seed, options=options)
