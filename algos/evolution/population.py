"""Tasks of evolution strategies on a worker: rebuild members, from the keys of their noise, and play episodes."""

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.algos.common.keys import PhiloxNoise, Stream, episode_seed, keyed_generator
from paddock.algos.common.threads import one_thread
from paddock.algos.evolution.networks import EvolvedNetwork, as_weights, count_parameters, native_network
from paddock.algos.evolution.strategies.protocol import Gaussian, Members, Noise
from paddock.algos.learning import players
from paddock.algos.learning.episodes import Episodes, Moments, Players
from paddock.algos.learning.policy_episodes import NativePlayer
from paddock.algos.multiagent.episodes import play_episodes
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.flat import MLP, Population
from paddock.algos.networks.recurrent import RecurrentPopulation
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
    network: EvolvedNetwork
    seed: int
    episodes_per_member: int
    episode_cap: EpisodeCap
    eval_max_steps: int  # step limit of evaluation episodes
    observation_sampling: float  # share of pairs whose observations update the normalization; 0: none
    same_episodes: bool = False  # all members of all iterations play the same episodes
    stream: Stream = Stream.EPISODE  # of the episodes' seeds

    @functools.cached_property
    def num_parameters(self) -> int:
        """Number of parameters P of a member."""
        return count_parameters(self.network)

    def noise(self, iteration: int, niche_index: int = 0) -> Noise:
        """Return the noise of an iteration, the same on every machine."""
        source = PhiloxNoise(self.seed, self.num_parameters)
        return lambda index: source(iteration, niche_index << 32 | index)


@dataclass(frozen=True)
class SearchDistribution:
    """Members of an iteration, or the one policy that it evaluates."""

    problem: Problem
    iteration: int
    members: Gaussian | Members
    normalizer: Normalizer | None = None
    niche_index: int = 0  # gives concurrent searches of one run independent samples
    evaluation: bool = False  # play evaluation episodes with the first member

    def key(self, index: int) -> int:
        """Return the key of a sample that is unique in this iteration, among all niches."""
        return self.niche_index << 32 | index

    @property
    def noise(self) -> Noise:
        """The noise of the members."""
        return self.problem.noise(self.iteration, self.niche_index)

    def load(self, index: int) -> NDArray[np.float32]:
        """Return the parameters [P] of a member."""
        return self.members.member(index, self.noise)


def play_members(task: tuple[Broadcast[SearchDistribution], int, int]) -> Any:
    """Run `play_pairs`, or `play_mean` for an evaluation, for start..stop-1 on a worker."""
    shared, start, stop = task
    return (play_mean if shared.value.evaluation else play_pairs)(shared.value, start, stop)


def play_pairs(
    distribution: SearchDistribution, start: int, stop: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], list[Moments], NDArray[np.float64]]:
    """Play the pairs start..stop-1, the members 2k and 2k + 1 in the same episodes, so that a worker loses whole pairs.

    Return mean returns [n, 2], summed lengths [n, 2], the moments of the sampled pairs in order, and environment
    metrics [n, 2, episodes, M].
    """
    problem, episodes = distribution.problem, distribution.problem.episodes_per_member
    jobs = [(m, m // 2, k) for m in range(2 * start, 2 * stop) for k in range(episodes)]

    def observed(pair: int) -> bool:
        if problem.observation_sampling in (0.0, 1.0):
            return problem.observation_sampling == 1.0
        coin = keyed_generator(problem.seed, Stream.OBSERVE, distribution.iteration, distribution.key(pair)).random()
        return coin < problem.observation_sampling

    def seed(pair: int, k: int) -> int:
        if problem.same_episodes:
            return episode_seed(problem.seed, problem.stream, 0, k)
        index = distribution.key(pair * episodes + k)
        return episode_seed(problem.seed, problem.stream, distribution.iteration, index)

    seeds = [seed(pair, k) for _, pair, k in jobs]
    observe = [observed(pair) for _, pair, _ in jobs]
    played = _play(distribution, 2 * start, [m for m, _, _ in jobs], seeds, problem.episode_cap, observe)
    shape = (stop - start, 2, episodes)
    moments = [sample for sample in played.moments if sample is not None]
    returns, lengths = played.returns.reshape(shape).mean(axis=2), played.lengths.reshape(shape).sum(axis=2)
    return returns, lengths, moments, played.env_metrics.reshape(*shape, len(problem.env.metrics))


def play_mean(distribution: SearchDistribution, first: int, last: int) -> Episodes:
    """Play episodes first..last-1 of an evaluation."""
    problem = distribution.problem
    keys = [distribution.key(k) for k in range(first, last)]
    seeds = [episode_seed(problem.seed, Stream.EVALUATION, distribution.iteration, key) for key in keys]
    return _play(distribution, 0, [0] * len(seeds), seeds, problem.eval_max_steps)


def _play(
    distribution: SearchDistribution,
    first: int,
    member: list[int],
    seeds: list[int],
    cap: int | None,
    observe: Sequence[bool] = (),
) -> Episodes:
    """Play episode e with the parameters of member[e]; the members are consecutive, from `first` on."""
    problem = distribution.problem
    workspace = _workspaces.of(problem)
    if workspace.native is not None:
        loaded = [distribution.load(m) for m in range(first, max(member, default=first - 1) + 1)]
        parameters = np.array(loaded, np.float32).reshape(-1, problem.num_parameters)
        rows = [m - first for m in member]
        return workspace.native.play(parameters, rows, distribution.normalizer, seeds, cap=cap, observe=observe)
    try:
        assert workspace.venv is not None
        options: dict[str, Any] = {"observe": observe, "metrics": problem.env.metrics}
        members = workspace.members(lambda e: distribution.load(member[e]), distribution.normalizer)
        with one_thread() if workspace.population is None else contextlib.nullcontext():
            return play_episodes(workspace.venv, problem.env, members, seeds, cap=cap, **options)
    except BaseException:
        # The environments are in an unknown state; the next task builds new ones.
        _workspaces.drop(problem)
        raise


class _Workspace:
    """Environments and networks of one problem; results do not depend on their previous use."""

    def __init__(self, problem: Problem) -> None:
        self.env, network = problem.env, problem.network
        self.native = NativePlayer.of(problem.vec, problem.env, native_network(network))
        self.venv: VectorEnv | None = None
        self.population: Population | RecurrentPopulation | None = None
        if self.native is None:
            self.venv = problem.vec.make(problem.env, autoreset=AutoresetMode.DISABLED, packed=True)
            rows = problem.vec.num_envs * problem.env.seats
            if isinstance(network, MLP):
                self.population = Population(network, rows)
            elif network.lstm and network.encoder == "mlp" and network.inputs.dtype != np.uint8:
                self.population = RecurrentPopulation(network, rows)
            else:
                blank = Weights(0, np.zeros(problem.num_parameters, np.float32))
                self.actors = [ActorPolicy(network, blank) for _ in range(rows)]

    def members(self, load: Callable[[int], NDArray[np.float32]], normalizer: Normalizer | None) -> Players:
        """Return the players of members with the parameters `load(e)` [P] in episode e."""
        if self.population is not None:
            return players.Members(self.population, load, normalizer)
        return players.ActorRows(self.env, self.actors, lambda e: as_weights(load(e), normalizer))


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
