"""Whole episodes of many networks without Python: environments, policies and observations' moments in C."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from algos.learning.episodes import Episodes, Moments
from envs.cores import usable_cores
from envs.native import rollout as native
from envs.native.networks import Network, Normalizer
from envs.native.settings import NativeTask, native_task
from envs.spec import EnvSpec
from envs.vector import Native, Vec


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
        """Play as `algos.learning.episodes.play`, with networks of parameters [M, P]; member[e] plays episode e."""
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
        return Episodes(played.returns, played.lengths, moments)
