"""Recipes for vector environments: how many environments run side by side, and where. `vec=` chooses one."""

from dataclasses import dataclass
from typing import Protocol

from gymnasium.vector import AutoresetMode

from envs.errors import require
from envs.spec import EnvSpec
from envs.vector.contract import VectorEnv
from envs.vector.serial import SerialVectorEnv


class Vec(Protocol):
    """A recipe: picklable, hashable, checked when it is built."""

    @property
    def num_envs(self) -> int:
        """N, environments side by side in one vector."""
        ...

    @property
    def seeded_slots(self) -> bool:
        """Whether chosen environments can be restarted on chosen seeds, and stepped alone."""
        ...

    def make(self, spec: EnvSpec, autoreset: AutoresetMode = AutoresetMode.SAME_STEP) -> VectorEnv:
        """Build the environments."""
        ...


@dataclass(frozen=True, kw_only=True)
class Serial:
    """Environments stepped one after another in the process that asks."""

    num_envs: int
    seeded_slots = True

    def __post_init__(self) -> None:
        check_num_envs(self.num_envs)

    def make(self, spec: EnvSpec, autoreset: AutoresetMode = AutoresetMode.SAME_STEP) -> VectorEnv:
        """Build the environments."""
        return SerialVectorEnv(spec, self.num_envs, autoreset)


def check_num_envs(num_envs: int) -> None:
    """Raise ConfigError unless so many environments are allowed in one vector."""
    require(1 <= num_envs <= 4096, f"num_envs={num_envs} must be between 1 and 4096; 8 suits most")
