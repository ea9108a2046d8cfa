"""Agents in each other's environments, as tasks for a pool: each plays the same episodes that all others meet."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from algos.learning.policy_episodes import Performance, perform
from algos.networks.flat import MLP, FlatPolicy
from algos.pool.broadcast import Broadcast
from envs.spec import EnvSpec


@dataclass(frozen=True, eq=False)
class Tournament:
    """What all tasks share."""

    mlp: MLP
    agents: NDArray[np.float32]  # [A, P]
    envs: tuple[EnvSpec, ...]
    seeds: tuple[int, ...]  # of the episodes, in any of the environments
    max_steps: int  # of an episode


def play_match(task: tuple[Broadcast[Tournament], int, int]) -> tuple[float, int]:
    """One agent in one environment, on a worker: its mean return, and the steps of all episodes."""
    shared, agent, env = task
    tournament = shared.value
    policy = FlatPolicy(tournament.mlp, tournament.agents[agent], None)
    what = Performance(tournament.envs[env], policy, tournament.max_steps, stochastic=False)
    episodes = perform(what, tournament.seeds)
    return float(episodes.returns.mean()), int(episodes.lengths.sum())
