"""Wrappers for environments whose draws no seed reaches, since they come from generators of the whole process."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np


class _Generators:
    """Python's and NumPy's generators as they would be in a process of one's own."""

    def __init__(self) -> None:
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Restart both."""
        self._python = random.Random(seed).getstate()
        self._numpy = np.random.MT19937(seed)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Have them stand in for the process's."""
        python, numpy = random.getstate(), np.random.get_bit_generator()  # type: ignore[attr-defined]
        random.setstate(self._python)
        np.random.set_bit_generator(self._numpy)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            self._python = random.getstate()
            random.setstate(python)
            np.random.set_bit_generator(numpy)  # type: ignore[attr-defined]


class OwnGenerators(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Give an environment generators of its own in place of Python's and NumPy's global ones, seeded by its resets.

    Costs some 30 us a step. Draws of the constructor stay as they are.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._generators = _Generators()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; a seed restarts both generators."""
        if seed is not None:
            self._generators.seed(seed)
        with self._generators.in_place():
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, with the generators of its own in place."""
        with self._generators.in_place():
            return self.env.step(action)


class MultiAgentOwnGenerators:
    """The same for an environment of several agents, whatever its form."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._generators = _Generators()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_env":  # asked for before there is one, by who copies
            raise AttributeError(name)
        return getattr(self._env, name)

    @property
    def unwrapped(self) -> Any:
        """The environment itself, as PettingZoo has it of wrappers."""
        return getattr(self._env, "unwrapped", self._env)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode; a seed restarts both generators."""
        if seed is not None:
            self._generators.seed(seed)
        with self._generators.in_place():
            return self._env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        """Step, with the generators of its own in place."""
        with self._generators.in_place():
            return self._env.step(actions)
