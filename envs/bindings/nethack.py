"""Seeding of NetHack and MiniHack, whose `reset(seed)` does not reach the game."""

from typing import Any

import gymnasium


class Seeded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that passes the seed of a reset to NetHack and disables NetHack's own reseeding."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; without a seed NetHack's generator continues."""
        if seed is not None:
            self.unwrapped.seed(seed, seed, reseed=False)  # type: ignore[attr-defined]
        return self.env.reset(seed=seed, options=options)
