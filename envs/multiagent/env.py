"""Interface of multi-agent environments: PettingZoo's ParallelEnv, plus the list of acting agents."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

from gymnasium import Space

ByAgent = Mapping[str, Any]  # by agent
Step = tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]  # observations, rewards, terminated, truncated, infos


class MultiAgentEnv(Protocol):
    """Multi-agent environment like `pettingzoo.ParallelEnv` (Terry et al. 2021, arXiv:2009.14471).

    An agent's seat is its index in `possible_agents`. An agent lives from the step that first lists it in `agents` with
    an observation until it is terminated or truncated or the episode ends (`agents` is empty). It may live again.
    """

    @property
    def possible_agents(self) -> Sequence[str]:
        """Return all agents that may appear, in the order of seats."""

    @property
    def agents(self) -> Sequence[str]:
        """Return the living agents, in any order; available once an episode has started."""

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent."""

    def action_space(self, agent: str) -> Space:
        """Return the action space of an agent."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode; return observations and infos of the living agents."""

    def step(self, actions: dict[str, Any]) -> Step:
        """Step with the actions of the acting agents; return results of agents that lived or appeared."""

    def close(self) -> None:
        """Release resources."""

    def render(self) -> Any:
        """Render the environment."""


class TakesTurns(MultiAgentEnv, Protocol):
    """Multi-agent environment in which only some living agents act in a step."""

    @property
    def acting(self) -> Sequence[str]:
        """Return the agents whose actions the next step takes."""


def offers(env: Any, *names: str) -> bool:
    """Return whether an environment has all of these attributes."""
    return all(hasattr(env, name) for name in names)


def takes_turns(env: MultiAgentEnv) -> TypeGuard[TakesTurns]:
    """Return whether an environment, after a reset, lists its acting agents."""
    return offers(env, "acting")
