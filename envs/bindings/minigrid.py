"""MiniGrid's images as three categorical values per cell instead of pixels."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, MultiDiscrete
from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, OBJECT_TO_IDX

# Type, colour and state of a cell: the state is that of a door or an agent's direction.
CHOICES = (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), len(DIR_TO_VEC))


class Choices(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that declares the image categorical, so that networks one-hot encode it; values stay the same."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Wrap an environment with the image in a Dict observation."""
        super().__init__(env)
        assert isinstance(env.observation_space, Dict)
        spaces = dict(env.observation_space.spaces)
        nvec = np.broadcast_to(np.array(CHOICES), spaces["image"].shape or ())
        self.observation_space = Dict(spaces | {"image": MultiDiscrete(nvec, dtype=np.uint8)})
