"""Whole episodes of one policy: in the company of others, which is fast, or so that nothing else has a part in them."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from algos.common.keys import Stream, keyed_generator
from algos.common.threads import one_thread
from algos.learning.episodes import Episodes, Moments, Players, play
from algos.networks.flat import FlatPolicy, Population
from algos.pool.broadcast import Broadcast
from envs.cores import usable_cores
from envs.errors import ConfigError
from envs.native import library
from envs.native import rollout as native
from envs.native.networks import Network, Normalizer
from envs.native.settings import NativeTask, native_task
from envs.spec import EnvSpec
from envs.vector import Native, Vec, VectorEnv
from envs.vector.serial import SerialVectorEnv

COMPANY = 4  # environments side by side where a policy acts on all rows at once
LANES = 8  # of native environments, and of networks that act on each row by itself; others gain nothing by company


@dataclass(frozen=True, eq=False)
class Performance:
    """Who plays where, and how."""

    env: EnvSpec
    policy: Any  # with `act`; with `drawing` too, if stochastic
    max_steps: int  # after which an episode is cut off
    stochastic: bool  # actions are drawn, from noise keyed by the episode's seed


@dataclass(frozen=True)
class NativePlayer:
    """Plays whole episodes without Python, of environments and networks that have a native version."""

    task: NativeTask
    network: Network
    threads: int

    @classmethod
    def of(cls, vec: Vec, env: EnvSpec, network: Network) -> "NativePlayer | None":
        """Return what plays the episodes of an environment; None where one step after another must do."""
        if not isinstance(vec, Native):
            return None
        task = native_task(env)
        return cls(task, network, vec.threads or usable_cores()) if native.supports(task, network) else None

    def play(
        self,
        parameters: NDArray[np.float32],
        member: Sequence[int],
        normalizer: Normalizer | None,
        seeds: Sequence[int],
        *,
        cap: int | None,
        observe: Sequence[bool] = (),
    ) -> Episodes:
        """Play as `episodes.play` does, with networks of parameters [M, P]; member[e] plays episode e."""
        observe = observe or [False] * len(seeds)
        played = native.play_episodes(
            self.task,
            self.network,
            parameters,
            member,
            seeds,
            normalizer=normalizer,
            cap=cap,
            observe=observe,
            threads=self.threads,
        )
        moments = [
            Moments(int(length), mean, m2) if seen else None
            for seen, length, mean, m2 in zip(observe, played.lengths, played.mean, played.m2, strict=True)
        ]
        return Episodes(played.returns, played.lengths, moments, np.zeros((len(seeds), 0)))


def exact_task(spec: EnvSpec) -> NativeTask | None:
    """Return the native version of an environment, if it is here and gives the same numbers."""
    try:
        task = native_task(spec)
        if not task.exact or spec.metrics:
            return None
        library.load()
    except ConfigError:
        return None
    return task


def play_in_company(env: EnvSpec, policy: Any, seeds: Sequence[int], max_steps: int) -> Episodes:
    """Play one episode from each seed, all by one policy, whose last bits may depend on the rows beside.

    Args:
        max_steps: after which an episode is cut off.
    """
    with closing(SerialVectorEnv(env, COMPANY, AutoresetMode.DISABLED, packed=True)) as venv:
        return play(venv, EverySlot(env, policy), seeds, cap=max_steps, metrics=env.metrics)


def perform(what: Performance, seeds: Sequence[int], threads: int = 1) -> Episodes:
    """Play one episode from each seed, natively where that gives the same numbers.

    Each row goes through the policy by itself and each slot has a memory of its own, so that an episode depends on its
    seed alone: not on the company it is played in, nor on where.

    Args:
        threads: of native episodes; they change no number.
    """
    task, policy, cap = exact_task(what.env), what.policy, what.max_steps
    flat = isinstance(policy, FlatPolicy)
    if flat and task is not None and native.supports(task, policy.mlp.network):
        player = NativePlayer(task, policy.mlp.network, threads)
        return player.play(policy.parameters[None], [0] * len(seeds), policy.normalizer, seeds, cap=cap)
    slots = min(LANES, len(seeds)) if flat or task is not None else 1
    players: Players
    if flat:
        players = Members(Population(policy.mlp, slots), lambda _: policy.parameters, policy.normalizer)
    else:
        players = Alone(what, seeds, slots)
    with one_thread(), closing(_open(what.env, task, slots)) as venv:
        return play(venv, players, seeds, cap=cap, metrics=what.env.metrics)


def perform_share(task: tuple[Broadcast[Performance], Sequence[int]]) -> Episodes:
    """Play some of the episodes, on a worker."""
    shared, seeds = task
    return perform(shared.value, seeds)


def policy_of_episode(what: Performance, seed: int) -> Any:
    """Return the policy as it plays the episode of a seed."""
    return what.policy.drawing(keyed_generator(seed, Stream.ACTION)) if what.stochastic else what.policy


class Members:
    """Networks of a population, one in each slot: `load(e)` gives the parameters [P] that play episode e."""

    def __init__(
        self, population: Population, load: Callable[[int], NDArray[np.float32]], normalizer: Normalizer | None
    ) -> None:
        self._inputs = inputs = population.mlp.inputs
        self.shape: tuple[int, ...] = (inputs.width,) if inputs.plain else ()
        self.dtype = np.dtype(np.float32) if inputs.plain else inputs.dtype
        self._population = population
        self._load = load
        self._normalizer = normalizer

    def start(self, slot: int, episode: int) -> None:
        """See `Players.start`."""
        self._population.load(slot, self._load(episode))

    def act(self, obs: NDArray[Any]) -> NDArray[Any]:
        """See `Players.act`."""
        numbers = self._inputs.numbers(obs)
        normalized = numbers if self._normalizer is None else self._normalizer(numbers)
        return self._population.act(normalized, self._inputs.legal(obs))

    def numbers(self, obs: NDArray[Any]) -> NDArray[Any]:
        """See `Players.numbers`."""
        return self._inputs.numbers(obs)


class EverySlot:
    """One policy in every slot, acting on all rows at once."""

    def __init__(self, env: EnvSpec, policy: Any) -> None:
        row = env.observations.row
        self.shape, self.dtype = row.shape, row.base
        self._policy = policy
        self._state: Any = None

    def start(self, slot: int, episode: int) -> None:
        """See `Players.start`."""
        if self._state is not None:
            self._state[slot] = 0

    def act(self, obs: NDArray[Any]) -> NDArray[Any]:
        """See `Players.act`."""
        actions, _, state = self._policy.act(obs, self._state)
        self._state = None if state is None else state.copy()
        return actions

    def numbers(self, obs: NDArray[Any]) -> NDArray[Any]:
        """See `Players.numbers`."""
        return obs


class Alone:
    """One policy in every slot, each as if it were alone."""

    def __init__(self, what: Performance, seeds: Sequence[int], slots: int) -> None:
        row = what.env.observations.row
        self.shape, self.dtype = row.shape, row.base
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

    def numbers(self, obs: NDArray[Any]) -> NDArray[Any]:
        """See `Players.numbers`."""
        return obs


def _open(spec: EnvSpec, task: NativeTask | None, slots: int) -> VectorEnv:
    if task is None:
        return SerialVectorEnv(spec, slots, AutoresetMode.DISABLED, packed=True)
    from envs.native.vector import NativeVectorEnv  # only those who choose it need the compiled library

    return NativeVectorEnv(task, slots, AutoresetMode.DISABLED)
