"""Adapters of third-party vector environments to `VectorEnv`."""
