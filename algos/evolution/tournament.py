"""Agents in each other's environments, as tasks for a pool: each plays the same episodes that all others meet."""

from contextlib import closing
from dataclasses import dataclass

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from algos.evolution.population import Members
from algos.learning.episodes import play
from algos.learning.native_episodes import NativePlayer
from algos.learning.policy_episodes import exact_task
from algos.networks.flat import MLP, Population
from algos.pool.broadcast import Broadcast
from envs.native.rollout import supports
from envs.spec import EnvSpec
from envs.vector.serial import SerialVectorEnv

SLOTS = 8  # environments side by side, at most


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
    native = exact_task(tournament.envs[env])
    network, cap = tournament.mlp.network, tournament.max_steps
    if native is not None and supports(native, network):
        everyone = [0] * len(tournament.seeds)
        player = NativePlayer(native, network, threads=1)
        parameters, observe = tournament.agents[agent : agent + 1], [False] * len(everyone)
        episodes = player.play(parameters, everyone, None, tournament.seeds, cap=cap, observe=observe)
        return float(episodes.returns.mean()), int(episodes.lengths.sum())
    slots = min(len(tournament.seeds), SLOTS)
    players = Members(Population(tournament.mlp, slots), lambda _: tournament.agents[agent], None)
    observe = [False] * len(tournament.seeds)
    with closing(SerialVectorEnv(tournament.envs[env], slots, AutoresetMode.DISABLED)) as venv:
        episodes = play(venv, players, tournament.seeds, cap=cap, observe=observe)
    return float(episodes.returns.mean()), int(episodes.lengths.sum())
