"""A module `mine` with environments, as somebody has one in a working directory."""

from pathlib import Path

SOURCE = """
import os
import time

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Paced(CartPoleEnv):
    def __init__(self, pace_s={pace_s}, **settings):
        super().__init__(**settings)
        self.pace_s = pace_s

    def reset(self, **settings):
        if os.path.exists({slow!r}):
            time.sleep(self.pace_s)
        return super().reset(**settings)


class Broken(CartPoleEnv):
    def __init__(self, broken=True, **settings):
        super().__init__(**settings)
        self.broken = broken

    def step(self, action):
        if self.broken:
            raise RuntimeError("the gearbox jammed")
        return super().step(action)


if "SLURM_JOB_ID" not in os.environ:
    gymnasium.register("Absent-v0", "mine:Paced")
gymnasium.register("Paced-v0", "mine:Paced")
gymnasium.register("Broken-v0", "mine:Broken")
"""


def write_package(folder: Path, slow: Path | str = "slow", pace_s: float = 0.05) -> None:
    """Write it; the episodes of `Paced-v0` begin late while the file `slow` is there."""
    (folder / "mine.py").write_text(SOURCE.format(slow=str(slow), pace_s=pace_s))
