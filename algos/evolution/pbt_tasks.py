"""Members of a population that learn by an algorithm of their own: how they are made, and a round of one on a worker.

What a round gives depends on the member as it was and on the round's number alone. Every round builds the algorithm
anew and brings it to its state, as a resumed run does: its laws say that this changes no number.
"""

import functools
import itertools
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algos.common.alone import make_alone
from algos.common.keys import Stream, episode_seed
from algos.common.threads import one_thread
from algos.evolution.hyperparameters import Value
from algos.learning.policy_episodes import Performance, perform, threads_of
from envs.spec import EnvSpec
from envs.vector import Vec

LOST = float("-inf")  # the score of a member that was never evaluated: worse than any

# Where PPO's and A2C's states say how the running episodes stand. These belong to a member's seed, so that whoever
# takes over what another has learned goes on in its own episodes.
STANDING = (("actors", "start"), ("normalization", "running"))

State = Mapping[str, Any]


@dataclass(frozen=True)
class Member:
    """A member of the population, between two rounds."""

    seed: int  # of all that it draws; it keeps it for good
    settings: dict[str, Value]  # the hyperparameters that it learns by
    score: float  # mean return of the newest evaluation of what it has learned
    step: int  # environment steps that led to what it has learned
    state: State  # of its algorithm

    def take_over(self, source: "Member", settings: dict[str, Value]) -> "Member":
        """This member with what another has learned, and with these hyperparameters."""
        state = dict(source.state)
        for part, name in STANDING:
            if part in state:
                state[part] = {**state[part], name: self.state[part][name]}
        return Member(self.seed, settings, source.score, source.step, state)


@dataclass(frozen=True)
class RoundSettings:
    """What stays the same for all members and rounds."""

    member: functools.partial[Any]  # makes an algorithm
    env: EnvSpec
    vec: Vec
    seed: int  # of the run
    interval: int
    eval_episodes: int
    eval_max_steps: int  # of an episode

    def make(self, settings: Mapping[str, Value], seed: int) -> Any:
        """A member's algorithm, at its beginning, on a pool that is this process."""
        return make_alone(self.member, self.env, self.vec, seed, **settings)


@dataclass(frozen=True)
class RoundResult:
    """What a member came to in a round."""

    state: State
    metrics: dict[str, float]  # the last value of each
    returns: NDArray[np.float64]  # [eval_episodes], of its policy at the end
    lengths: NDArray[np.int64]  # [eval_episodes]
    told: NDArray[np.float64]  # [eval_episodes, M], what the environment told of itself


def play_round(rounds: RoundSettings, task: tuple[Member, int]) -> RoundResult:
    """Let a member learn for a round, and evaluate it, on a worker."""
    member, number = task
    with one_thread():
        algorithm = rounds.make(member.settings, member.seed)
        algorithm.load_state_dict(member.state)
        metrics: dict[str, float] = {}
        with closing(algorithm.plan()) as plan:
            for row in itertools.islice(plan, rounds.interval):
                metrics |= row
            state = algorithm.state_dict()
        # All members meet the same episodes, so that none is lucky.
        seeds = [episode_seed(rounds.seed, Stream.EVALUATION, number, k) for k in range(rounds.eval_episodes)]
        what = Performance(rounds.env, algorithm.policy(), rounds.eval_max_steps, stochastic=False, in_company=True)
        played = perform(what, seeds, threads_of(rounds.vec))
        return RoundResult(state, metrics, played.returns, played.lengths, played.told)
