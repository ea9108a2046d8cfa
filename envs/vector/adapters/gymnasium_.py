"""Adapter of Gymnasium's `SyncVectorEnv` and `AsyncVectorEnv`, which are also the benchmarks' baselines."""

import functools
from typing import Any

import gymnasium
from gymnasium import Space
from gymnasium.error import CustomSpaceError
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import create_shared_memory

from paddock.envs.spec import EnvSpec
from paddock.envs.vector.adapters.batched import BatchedVectorEnv
from paddock.envs.vector.slots import rebuild


def make_gymnasium(
    spec: EnvSpec,
    num_envs: int,
    start_method: str | None,
    autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
    copy: bool = True,
    packed: bool = False,
) -> BatchedVectorEnv:
    """Build an `AsyncVectorEnv` with a start method for its processes, or a `SyncVectorEnv` for None.

    `autoreset`, `copy` and `packed` are those of `Vec.make`.

    Raises:
        ConfigError: the environment cannot be made.
    """
    make = functools.partial(Rebuilt, spec) if spec.fresh else spec.make
    # Gymnasium's autoreset would overwrite an episode's last observation.
    mode = AutoresetMode.DISABLED
    venv: SyncVectorEnv | AsyncVectorEnv
    if start_method is None:
        venv = SyncVectorEnv([make] * num_envs, copy=copy, autoreset_mode=mode)
    else:
        shared = _can_share(spec.raw_spaces[0])
        venv = AsyncVectorEnv([make] * num_envs, shared, copy, context=start_method, autoreset_mode=mode)
    return BatchedVectorEnv(venv, spec, autoreset, copy=False, packed=packed)


def _can_share(space: Space) -> bool:
    """Return whether Gymnasium supports shared memory for a space; otherwise it uses pipes."""
    try:
        create_shared_memory(space)
    except (TypeError, CustomSpaceError):
        return False
    return True


class Rebuilt(gymnasium.Wrapper):
    """Wrapper that rebuilds the environment for every episode except the first."""

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__(spec.make())
        self._recipe = spec
        self._started = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        if self._started:
            self.env, seed = rebuild(self.env, self._recipe, seed)
        self._started = True
        return self.env.reset(seed=seed, options=options)
