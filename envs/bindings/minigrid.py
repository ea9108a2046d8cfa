"""MiniGrid's images as three choices a cell, and not as pixels."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, MultiDiscrete
from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, OBJECT_TO_IDX

# Kind, colour and state of what is in a cell: a door's state, or which way an agent looks.
CHOICES = (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), len(DIR_TO_VEC))


class Choices(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Say that the image is made of choices, so that networks see each as such; its numbers stay the same."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, Dict)
        spaces = dict(env.observation_space.spaces)
        nvec = np.broadcast_to(np.array(CHOICES), spaces["image"].shape or ())
        self.observation_space = Dict(spaces | {"image": MultiDiscrete(nvec, dtype=np.uint8)})
