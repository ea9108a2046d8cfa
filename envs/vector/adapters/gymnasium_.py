"""Gymnasium's own vector environments, sync and async, behind our contract; they are also our peers in benchmarks."""

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
    """Build a `SyncVectorEnv`, or an `AsyncVectorEnv` with one process for each environment.

    Args:
        start_method: how the processes of the async kind begin; None for the sync kind.
        autoreset, copy, packed: see `Vec.make`.

    Raises:
        ConfigError: the environment cannot be made.
    """
    make = functools.partial(Rebuilt, spec) if spec.fresh else spec.make
    # Not restarted by itself: Gymnasium keeps no copy of an episode's last observation while a reset writes over it.
    mode = AutoresetMode.DISABLED
    venv: SyncVectorEnv | AsyncVectorEnv
    if start_method is None:
        venv = SyncVectorEnv([make] * num_envs, copy=copy, autoreset_mode=mode)
    else:
        shared = _can_share(spec.raw_spaces[0])
        venv = AsyncVectorEnv([make] * num_envs, shared, copy, context=start_method, autoreset_mode=mode)
    return BatchedVectorEnv(venv, spec, autoreset, copy=False, packed=packed)


def _can_share(space: Space) -> bool:
    """Return whether Gymnasium has a form in shared memory for observations; others go through pipes."""
    try:
        create_shared_memory(space)
    except (TypeError, CustomSpaceError):
        return False
    return True


class Rebuilt(gymnasium.Wrapper):
    """An environment that is rebuilt for every episode but the first."""

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__(spec.make())
        self._recipe = spec
        self._lived = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        if self._lived:
            self.env, seed = rebuild(self.env, self._recipe, seed)
        self._lived = True
        return self.env.reset(seed=seed, options=options)
