"""Environments whose observations are stacks of frames: the newest one last, and those before it."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import gymnasium
from gymnasium import wrappers

# What leaves observations as they are.
TRANSPARENT = (
    gymnasium.RewardWrapper,
    gymnasium.ActionWrapper,
    wrappers.TimeLimit,
    wrappers.OrderEnforcing,
    wrappers.PassiveEnvChecker,
    wrappers.RecordEpisodeStatistics,
)


@dataclass(frozen=True)
class Stack:
    """How an array's first axis is a stack."""

    frames: int
    zeros: bool  # what is ahead of an episode's first frame: zeros; False: that frame again


@runtime_checkable
class Stacks(Protocol):
    """An environment that stacks frames by itself."""

    stack: Stack


def find_stack(env: Any) -> Stack | None:
    """Return how the observations of an environment are stacks; None where they are none, or it is not known."""
    while isinstance(env, TRANSPARENT):
        env = env.env
    if isinstance(env, Stacks):
        return env.stack
    known = isinstance(env, wrappers.FrameStackObservation) and env.padding_type in ("reset", "zero")
    if not known or not isinstance(env.env.observation_space, gymnasium.spaces.Box) or env.stack_size == 1:
        return None
    return Stack(env.stack_size, env.padding_type == "zero")
