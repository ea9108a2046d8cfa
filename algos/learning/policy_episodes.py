"""Whole episodes of one policy, natively where that gives the same numbers.

Each row goes through the policy by itself and each slot has a memory of its own, so that an episode depends on its
seed alone: not on the company it is played in, nor on where.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from algos.common.keys import Stream, keyed_generator
from algos.common.threads import one_thread
from algos.learning.episodes import Episodes, play
from algos.learning.native_episodes import NativePlayer
from algos.networks.flat import FlatPolicy
from algos.pool.broadcast import Broadcast
from envs.errors import ConfigError
from envs.native import library
from envs.native.rollout import supports
from envs.native.settings import NativeTask, native_task
from envs.spec import EnvSpec
from envs.vector import VectorEnv
from envs.vector.serial import SerialVectorEnv

LANES = 8  # native environments side by side; others gain nothing by company


@dataclass(frozen=True, eq=False)
class Performance:
    """Who plays where, and how."""

    env: EnvSpec
    policy: Any  # with `act`; with `drawing` too, if stochastic
    max_steps: int  # after which an episode is cut off
    stochastic: bool  # actions are drawn, from noise keyed by the episode's seed


def exact_task(spec: EnvSpec) -> NativeTask | None:
    """Return the native version of an environment, if it is here and gives the same numbers."""
    try:
        task = native_task(spec)
        if not task.exact:
            return None
        library.load()
    except ConfigError:
        return None
    return task


def perform(what: Performance, seeds: Sequence[int], threads: int = 1) -> Episodes:
    """Play one episode from each seed.

    Args:
        threads: of native episodes; they change no number.
    """
    task, policy, observe = exact_task(what.env), what.policy, [False] * len(seeds)
    if task is not None and isinstance(policy, FlatPolicy) and supports(task, policy.mlp.network):
        player = NativePlayer(task, policy.mlp.network, threads)
        member = [0] * len(seeds)
        scaling = policy.normalizer
        return player.play(policy.parameters[None], member, scaling, seeds, cap=what.max_steps, observe=observe)
    slots = 1 if task is None else min(LANES, len(seeds))
    with one_thread(), closing(_open(what.env, task, slots)) as venv:
        return play(venv, Alone(what, seeds, slots), seeds, cap=what.max_steps, observe=observe)


def perform_share(task: tuple[Broadcast[Performance], Sequence[int]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Play some of the episodes, on a worker; their returns and lengths."""
    shared, seeds = task
    played = perform(shared.value, seeds)
    return played.returns, played.lengths


def policy_of_episode(what: Performance, seed: int) -> Any:
    """Return the policy as it plays the episode of a seed."""
    return what.policy.drawing(keyed_generator(seed, Stream.ACTION)) if what.stochastic else what.policy


class Alone:
    """One policy in every slot, each as if it were alone."""

    def __init__(self, what: Performance, seeds: Sequence[int], slots: int) -> None:
        space: Any = what.env.spaces[0]
        self.shape, self.dtype = space.shape, space.dtype
        self._policy_of: Callable[[int], Any] = lambda episode: policy_of_episode(what, seeds[episode])
        self._policies: list[Any] = [self._policy_of(0)] * slots
        self._states: list[Any] = [None] * slots

    def start(self, slot: int, episode: int) -> None:
        """See `Players.start`."""
        self._policies[slot], self._states[slot] = self._policy_of(episode), None

    def act(self, obs: NDArray[Any]) -> NDArray[Any]:
        """See `Players.act`."""
        actions = []
        for slot, policy in enumerate(self._policies):
            action, _, self._states[slot] = policy.act(obs[slot : slot + 1], self._states[slot])
            actions.append(action)
        return np.concatenate(actions)


def _open(spec: EnvSpec, task: NativeTask | None, slots: int) -> VectorEnv:
    if task is None:
        return SerialVectorEnv(spec, slots, AutoresetMode.DISABLED)
    from envs.native.vector import NativeVectorEnv  # only those who choose it need the compiled library

    return NativeVectorEnv(task, slots, AutoresetMode.DISABLED)
