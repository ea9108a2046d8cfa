"""The vector contract and its backends.

A backend is a `gymnasium.vector.VectorEnv` with `send(actions, env_ids)` and `recv()`; `step` is one then the other.
"""

from envs.vector.serial import SerialVectorEnv

__all__ = ["SerialVectorEnv"]
