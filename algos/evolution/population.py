"""ES tasks on a worker, which rebuilds noise from keys: sample members of a search distribution and play episodes."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.algos.common.keys import PhiloxNoise, Stream, episode_seed, keyed_generator
from paddock.algos.learning.episodes import Episodes, Moments
from paddock.algos.learning.players import Members
from paddock.algos.learning.policy_episodes import NativePlayer
from paddock.algos.multiagent.episodes import play_episodes
from paddock.algos.networks.flat import MLP, Population
from paddock.algos.pool.broadcast import Broadcast
from paddock.algos.pool.executor import register_cleanup
from paddock.envs.native.networks import Normalizer
from paddock.envs.ranges import Range
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec, VectorEnv

EpisodeCap = Annotated[int | None, Range("must be at least 1 step, or null for no cap", low=1)]

KEPT_PROBLEMS = 8  # per thread: environments take memory, and are rebuilt in milliseconds


@dataclass(frozen=True)
class Problem:
    """Settings that are constant during a run; a worker builds environments and networks from them once."""

    env: EnvSpec
    vec: Vec
    mlp: MLP
    seed: int
    episodes_per_member: int
    episode_cap: EpisodeCap
    eval_max_steps: int  # step limit of evaluation episodes
    observation_sampling: float  # share of pairs whose observations update the normalization; 0: none

    @property
    def noise(self) -> PhiloxNoise:
        """The noise source, which gives the same vectors on every machine."""
        return PhiloxNoise(self.seed, self.mlp.num_parameters)


@dataclass(frozen=True)
class SearchDistribution:
    """Gaussian from which an iteration's members are sampled."""

    problem: Problem
    iteration: int
    mean: NDArray[np.float32]  # [P]
    sigma: float | None  # None: evaluate the mean only
    normalizer: Normalizer | None = None
    niche_index: int = 0  # gives concurrent searches of one run independent samples

    def key(self, index: int) -> int:
        """Return the key of a sample that is unique in this iteration, among all niches."""
        return self.niche_index << 32 | index


def play_members(task: tuple[Broadcast[SearchDistribution], int, int]) -> Any:
    """Run `play_pairs`, or `play_mean` if there is no sigma, for start..stop-1 on a worker."""
    shared, start, stop = task
    return (play_mean if shared.value.sigma is None else play_pairs)(shared.value, start, stop)


def play_pairs(
    distribution: SearchDistribution, start: int, stop: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], list[Moments], NDArray[np.float64]]:
    """Play the mirrored pairs start..stop-1, both signs in the same episodes, so that a lost worker loses whole pairs.

    Return mean returns [n, 2], summed lengths [n, 2], the moments of the sampled pairs in order, and environment
    metrics [n, 2, episodes, M].
    """
    problem, sigma = distribution.problem, distribution.sigma
    assert sigma is not None
    noise = _workspaces.of(problem).noise
    episodes = problem.episodes_per_member
    members = [(pair, sign) for pair in range(start, stop) for sign in (1, -1)]
    jobs = [(m, members[m][0], k) for m in range(len(members)) for k in range(episodes)]

    def load(m: int) -> NDArray[np.float32]:
        pair, sign = members[m]
        return distribution.mean + np.float32(sign * sigma) * noise(distribution.iteration, distribution.key(pair))

    def observed(pair: int) -> bool:
        if problem.observation_sampling in (0.0, 1.0):
            return problem.observation_sampling == 1.0
        coin = keyed_generator(problem.seed, Stream.OBSERVE, distribution.iteration, distribution.key(pair)).random()
        return coin < problem.observation_sampling

    seeds = [
        episode_seed(problem.seed, Stream.EPISODE, distribution.iteration, distribution.key(pair * episodes + k))
        for _, pair, k in jobs
    ]
    observe = [observed(pair) for _, pair, _ in jobs]
    played = _play(distribution, load, [m for m, _, _ in jobs], seeds, problem.episode_cap, observe)
    shape = (stop - start, 2, episodes)
    moments = [sample for sample in played.moments if sample is not None]
    returns, lengths = played.returns.reshape(shape).mean(axis=2), played.lengths.reshape(shape).sum(axis=2)
    return returns, lengths, moments, played.env_metrics.reshape(*shape, len(problem.env.metrics))


def play_mean(distribution: SearchDistribution, first: int, last: int) -> Episodes:
    """Play episodes first..last-1 of the mean's evaluation."""
    problem = distribution.problem
    keys = [distribution.key(k) for k in range(first, last)]
    seeds = [episode_seed(problem.seed, Stream.EVALUATION, distribution.iteration, key) for key in keys]
    return _play(distribution, lambda _: distribution.mean, [0] * len(seeds), seeds, problem.eval_max_steps)


def _play(
    distribution: SearchDistribution,
    load: Callable[[int], NDArray[np.float32]],
    member: list[int],
    seeds: list[int],
    cap: int | None,
    observe: Sequence[bool] = (),
) -> Episodes:
    """Play episode e with the parameters load(member[e]); members are numbered from 0."""
    problem = distribution.problem
    workspace = _workspaces.of(problem)
    if workspace.native is not None:
        loaded = [load(m) for m in range(max(member, default=-1) + 1)]
        parameters = np.array(loaded, np.float32).reshape(-1, problem.mlp.num_parameters)
        return workspace.native.play(parameters, member, distribution.normalizer, seeds, cap=cap, observe=observe)
    try:
        members = Members(workspace.population, lambda e: load(member[e]), distribution.normalizer)
        assert workspace.venv is not None
        options: dict[str, Any] = {"observe": observe, "metrics": problem.env.metrics}
        return play_episodes(workspace.venv, problem.env, members, seeds, cap=cap, **options)
    except BaseException:
        # The environments are in an unknown state; the next task builds new ones.
        _workspaces.drop(problem)
        raise


class _Workspace:
    """Environments, networks and noise of one problem; results do not depend on their previous use."""

    def __init__(self, problem: Problem) -> None:
        self.noise = problem.noise
        self.native = NativePlayer.of(problem.vec, problem.env, problem.mlp.network)
        self.venv: VectorEnv | None = None
        if self.native is None:
            self.venv = problem.vec.make(problem.env, autoreset=AutoresetMode.DISABLED, packed=True)
            self.population = Population(problem.mlp, problem.vec.num_envs * problem.env.seats)


class _Workspaces(threading.local):
    def __init__(self) -> None:
        self._kept: dict[Problem, _Workspace] = {}  # in order of use

    def of(self, problem: Problem) -> _Workspace:
        workspace = self._kept.pop(problem, None) or _Workspace(problem)
        self._kept[problem] = workspace
        while len(self._kept) > KEPT_PROBLEMS:
            self.drop(next(iter(self._kept)))
        return workspace

    def drop(self, problem: Problem) -> None:
        venv = self._kept.pop(problem).venv
        if venv is not None:
            venv.close()

    def clear(self) -> None:
        while self._kept:
            self.drop(next(iter(self._kept)))


_workspaces = _Workspaces()
register_cleanup(_workspaces.clear)  # otherwise environment processes would live as long as workers owned by a cluster
