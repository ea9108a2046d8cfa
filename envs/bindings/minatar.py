"""Registration of MinAtar (Young and Tian 2019, arXiv:1903.03176), such as `MinAtar/Breakout-v1`.

Gymnasium no longer loads MinAtar's entry points itself.
"""

from typing import Any

import gymnasium
from minatar.gym import register_envs

if not any(id.startswith("MinAtar/") for id in gymnasium.registry):
    register_envs()


class ClearLastAction(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that clears the last action on reset, which MinAtar keeps and sticky actions would repeat."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        game: Any = self.unwrapped
        game.game.last_action = 0
        return self.env.reset(seed=seed, options=options)
