"""Detection of environments whose observations are stacks of frames, newest last."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import gymnasium
from gymnasium import wrappers

# Wrappers that do not change observations.
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
    """Frame stack along an array's first axis."""

    frames: int
    zeros: bool  # pad an episode's start with zeros; False: with its first frame


@runtime_checkable
class Stacks(Protocol):
    """Environment that stacks frames itself."""

    stack: Stack


def find_stack(env: Any) -> Stack | None:
    """Return an environment's frame stack; None if there is none or it is unknown."""
    while isinstance(env, TRANSPARENT):
        env = env.env
    if isinstance(env, Stacks):
        return env.stack
    known = isinstance(env, wrappers.FrameStackObservation) and env.padding_type in ("reset", "zero")
    if not known or not isinstance(env.env.observation_space, gymnasium.spaces.Box) or env.stack_size == 1:
        return None
    return Stack(env.stack_size, env.padding_type == "zero")
