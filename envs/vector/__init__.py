"""Vector environments: many environments behind one interface."""

from paddock.envs.vector.auto import Auto
from paddock.envs.vector.contract import EnvError, VectorEnv, VectorMisuse
from paddock.envs.vector.multiprocess.vector import MultiprocessVectorEnv
from paddock.envs.vector.recipes import (
    Atari,
    EnvPool,
    Jax,
    MuJoCo,
    Multiprocess,
    Native,
    Serial,
    Vec,
    Vector,
    in_groups,
)
from paddock.envs.vector.remote import Remote
from paddock.envs.vector.serial import SerialVectorEnv

__all__ = [
    "Atari",
    "Auto",
    "EnvError",
    "EnvPool",
    "Jax",
    "MuJoCo",
    "Multiprocess",
    "MultiprocessVectorEnv",
    "Native",
    "Remote",
    "Serial",
    "SerialVectorEnv",
    "Vec",
    "Vector",
    "VectorEnv",
    "VectorMisuse",
    "in_groups",
]
