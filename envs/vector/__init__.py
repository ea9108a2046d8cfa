"""Vector environments: many environments behind one interface, each kind in a file of its own."""

from envs.vector.contract import EnvError, VectorEnv, VectorMisuse
from envs.vector.recipes import Serial, Vec
from envs.vector.serial import SerialVectorEnv

__all__ = ["EnvError", "Serial", "SerialVectorEnv", "Vec", "VectorEnv", "VectorMisuse"]
