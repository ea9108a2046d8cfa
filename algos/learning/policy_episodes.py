"""Whole episodes of policies: in native code if that gives identical results, else step by step.

`evaluate_policy` serves evaluations during training, `paddock.evaluate`, and members of PBT. During training with
`vec=native`, evaluations use native environments. ES and POET use `NativePlayer.of`.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.algos.common.threads import one_thread
from paddock.algos.learning.episodes import Episodes, Moments, Players
from paddock.algos.learning.players import EveryRow, Members, RowByRow, drawn_in_row
from paddock.algos.multiagent.episodes import play_episodes
from paddock.algos.multiagent.rows import policy_in_row, rows_per_env
from paddock.algos.networks.flat import FlatPolicy, Population
from paddock.algos.networks.native_policy import NativePolicy
from paddock.algos.pool.broadcast import Broadcast
from paddock.envs.errors import ConfigError
from paddock.envs.machine import usable_cores
from paddock.envs.native import library
from paddock.envs.native import rollout as native
from paddock.envs.native.networks import Network, Normalizer
from paddock.envs.native.settings import NativeTask, native_task
from paddock.envs.native.vector import NativeVectorEnv
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Native, Vec, VectorEnv
from paddock.envs.vector.serial import SerialVectorEnv

BATCH_ENVS = 4  # environments of a policy that acts on a batch of rows
ROW_ENVS = 8  # native environments, or environments of networks that act row by row
FULL_BATCH = 128  # episodes that keep SIMD registers mostly full


@dataclass(frozen=True, eq=False)
class EvaluationSpec:
    """Policy, environment and settings of an evaluation."""

    env: EnvSpec
    policy: Any  # has `act`; if stochastic, `drawing` too
    max_steps: int  # of an episode
    stochastic: bool  # sample actions, with noise keyed by the episode's seed
    # Act on BATCH_ENVS rows at once when stepping: faster in torch, but the last bits may depend on the other rows.
    # Otherwise an episode depends only on its seed.
    batched: bool = False
    native: bool = False  # use native environments, as `vec=native` does, even if their results differ


@dataclass(frozen=True)
class NativePlayer:
    """Player of whole episodes in native code, for environments and networks that have a native version."""

    task: NativeTask
    network: Network
    threads: int

    @classmethod
    def of(cls, vec: Vec, env: EnvSpec, network: Network | None) -> "NativePlayer | None":
        """Return a player if `vec`, the environment and the network are native, else None."""
        if not isinstance(vec, Native) or network is None:
            return None
        task = native_task(env)
        return cls(task, network, threads_of(vec)) if native.supports(task, network) else None

    @classmethod
    def exact(
        cls, env: EnvSpec, network: Network | None, threads: int = 1, native_anyway: bool = False
    ) -> "NativePlayer | None":
        """Return a player with the results of the environment itself, or any with `native_anyway`, if there is one."""
        task = exact_task(env, native_anyway) if network is not None else None
        if task is None or network is None or not native.supports(task, network):
            return None
        return cls(task, network, threads)

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
        """Play as `episodes.play` does, with M networks of parameters [M, P]; network member[e] plays episode e."""
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


def threads_of(vec: Vec) -> int:
    """Return the number of threads for native episodes: `vec.threads` of native environments, else 1."""
    return vec.threads or usable_cores() if isinstance(vec, Native) else 1


def exact_task(spec: EnvSpec, native_anyway: bool = False) -> NativeTask | None:
    """Return the native version of an environment, if available and exact (or `native_anyway`)."""
    try:
        task = native_task(spec)
        if spec.metrics or not (task.exact or native_anyway):
            return None
        library.load()
    except ConfigError:
        return None
    return task


def runs_natively(what: EvaluationSpec) -> bool:
    """Return whether native code plays these episodes, so that tasks should hold many of them."""
    policy = None if what.stochastic else NativePolicy.of(what.policy)
    return policy is not None and NativePlayer.exact(what.env, policy.network, native_anyway=what.native) is not None


def evaluate_policy(what: EvaluationSpec, seeds: Sequence[int], threads: int = 1) -> Episodes:
    """Play one episode from each seed, in native code if results are identical; `threads` does not affect them."""
    policy = None if what.stochastic else NativePolicy.of(what.policy)
    player = None if policy is None else NativePlayer.exact(what.env, policy.network, threads, what.native)
    if policy is not None and player is not None:
        cap = what.max_steps
        played = player.play(policy.parameters[None], [0] * len(seeds), policy.normalizer, seeds, cap=cap)
        if not np.isnan(played.returns).any():  # else an action was non-finite, for which the environment raises
            return played
    return _step(what, seeds)


def evaluate_share(task: tuple[Broadcast[EvaluationSpec], Sequence[int]]) -> Episodes:
    """Play a share of the episodes on a worker."""
    shared, seeds = task
    return evaluate_policy(shared.value, seeds)


def _step(what: EvaluationSpec, seeds: Sequence[int]) -> Episodes:
    """Play one episode from each seed step by step, with each row separate unless batched."""
    task, policy = exact_task(what.env, what.native), what.policy
    slots = min(ROW_ENVS, len(seeds)) if isinstance(policy, FlatPolicy) or task is not None else 1
    players: Players
    if what.batched:
        slots, players = BATCH_ENVS, EveryRow(what.env, policy)
    elif isinstance(policy, FlatPolicy):
        players = Members(
            Population(policy.mlp, slots * rows_per_env(what.env)), lambda _: policy.parameters, policy.normalizer
        )
    else:
        players = alone(what, seeds, slots)
    with one_thread(), closing(open_env(what.env, task, slots)) as venv:
        return play_episodes(venv, what.env, players, seeds, cap=what.max_steps, metrics=what.env.metrics)


def alone(what: EvaluationSpec, seeds: Sequence[int], slots: int) -> RowByRow:
    """Return players of these seeds' episodes that act on each row separately."""
    per_env = rows_per_env(what.env)
    return RowByRow(what.env, lambda episode, row: policy_of_episode(what, seeds[episode], row % per_env), slots)


def policy_of_episode(what: EvaluationSpec, seed: int, row: int = 0) -> Any:
    """Return the policy for the episode of a seed, in a row of its environment."""
    policy = policy_in_row(what.policy, row)
    return drawn_in_row(policy, seed, row) if what.stochastic else policy


def open_env(spec: EnvSpec, task: NativeTask | None, slots: int) -> VectorEnv:
    """Make environments for stepping whole episodes: native ones if a task is given."""
    if task is None:
        return SerialVectorEnv(spec, slots, AutoresetMode.DISABLED, packed=True)
    return NativeVectorEnv(task, slots, AutoresetMode.DISABLED, packed=True)
