"""Descriptors of LunarLander's landings, as in the tutorials of pyribs."""

from typing import Any

import gymnasium

X, Y_VELOCITY, LEFT_LEG, RIGHT_LEG = 0, 3, 6, 7  # of an observation; legs are 1 while they touch the ground


class Impact(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that reports where and how fast the lander first touches the ground, in the final info.

    `impact_x` is the horizontal position, 0 between the flags, and `impact_y_velocity` the vertical velocity, negative
    downwards. Without contact they are the last position and the highest downward velocity.
    """

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        self._impact: tuple[float, float] | None = None
        self._lowest = float("inf")
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step; the final info has the descriptors."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._lowest = min(self._lowest, float(obs[Y_VELOCITY]))
        if self._impact is None and (obs[LEFT_LEG] or obs[RIGHT_LEG]):
            self._impact = float(obs[X]), float(obs[Y_VELOCITY])
        if terminated or truncated:
            x, velocity = self._impact or (float(obs[X]), self._lowest)
            info = {**info, "impact_x": x, "impact_y_velocity": velocity}
        return obs, reward, terminated, truncated, info
