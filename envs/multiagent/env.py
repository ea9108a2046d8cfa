"""The form that every environment of several agents has here: PettingZoo's ParallelEnv, with turns said beside it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

from gymnasium import Space

ByAgent = Mapping[str, Any]  # by agent
Step = tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]  # observations, rewards, terminated, truncated, infos


class MultiAgentEnv(Protocol):
    """An environment of several agents, as `pettingzoo.ParallelEnv` has it (Terry et al. 2021, arXiv:2009.14471).

    An agent's seat is its place in `possible_agents`. It lives from the step that first lists it in `agents` and gives
    it an observation, to the one that says it terminated or was truncated, or to the world's end: when `agents` is
    empty. The same name may live again.
    """

    @property
    def possible_agents(self) -> Sequence[str]:
        """All agents that there may be, in the order of seats."""

    @property
    def agents(self) -> Sequence[str]:
        """Those that live, in any order; known once an episode has begun."""

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent."""

    def action_space(self, agent: str) -> Space:
        """Return the action space of an agent."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode of the whole world; observations and infos of the agents that live."""

    def step(self, actions: dict[str, Any]) -> Step:
        """Step by the actions of the acting agents; return results of agents that lived or were born."""

    def close(self) -> None:
        """Release resources."""

    def render(self) -> Any:
        """Draw the world."""


class TakesTurns(MultiAgentEnv, Protocol):
    """A world in which not every living agent acts in every step."""

    @property
    def acting(self) -> Sequence[str]:
        """The agents whose action the next step takes."""


def offers(env: Any, *names: str) -> bool:
    """Return whether an environment, or the one it wraps, has all of these attributes."""
    return all(hasattr(env, name) for name in names)


def takes_turns(world: MultiAgentEnv) -> TypeGuard[TakesTurns]:
    """Return whether an environment whose episode has begun lists its acting agents itself."""
    return offers(world, "acting")
