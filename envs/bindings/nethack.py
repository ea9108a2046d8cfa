"""NetHack and MiniHack on seeds: their own `reset(seed)` never reaches the game."""

from typing import Any

import gymnasium


class Seeded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Hand the seed of a reset on to NetHack, which is told not to reseed itself now and then."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; without a seed NetHack goes on drawing."""
        if seed is not None:
            self.unwrapped.seed(seed, seed, reseed=False)  # type: ignore[attr-defined]
        return self.env.reset(seed=seed, options=options)
