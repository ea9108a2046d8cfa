"""Evaluation beside training: the pool plays a policy's episodes while its learner learns on."""

import functools
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from paddock.algos.common.interrupts import Interrupted, Interrupts, Unfinished
from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.learning.episode_metrics import format_evaluation, summarize
from paddock.algos.learning.episodes import Episodes
from paddock.algos.learning.policy import Policy
from paddock.algos.learning.policy_episodes import (
    BATCH_ENVS,
    FULL_BATCH,
    EvaluationSpec,
    NativePlayer,
    evaluate_policy,
    threads_of,
)
from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.multiagent.evaluation import metrics_per_policy
from paddock.algos.multiagent.joint_policy import make_joint_policy
from paddock.algos.multiagent.selfplay.matches import MatchPlayers, play_against
from paddock.algos.multiagent.selfplay.opponent_pool import OpponentPool
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.native_policy import network_of
from paddock.algos.pool.broadcast import Broadcast
from paddock.algos.pool.protocol import Pool
from paddock.envs.errors import require
from paddock.envs.vector import Native
from paddock.envs.vector.remote import is_shared

log = logging.getLogger(__name__)


GIVE_UP_S = 1.0  # what was given up is not waited for any longer: a task may take minutes


@dataclass(eq=False)
class Playing:
    """What an evaluation has come to; one that was given up has this to itself."""

    ends: dict[tuple[int, int], Any] = field(default_factory=dict)  # by policy and first episode
    error: BaseException | None = None
    given_up: bool = False
    ended: threading.Event = field(default_factory=threading.Event)


class AsyncEvaluation:
    """Plays episodes of the policy of one moment, and has the result at the next moment it is asked.

    `interrupts` end waits for a result; nothing of the evaluation is lost, as its weights are part of the state.

    A result is reported where the next evaluation starts, never earlier or later, so that rows are the same on every
    machine. An evaluation therefore only holds training up where it takes longer than the time between two evaluations.
    There is none where other clients act in the same environments.
    """

    def __init__(
        self,
        config: RolloutConfig,
        pool: Pool,
        episodes: int,
        max_steps: int,
        *weights: Weights,
        against: OpponentPool | None = None,
    ) -> None:
        """Have settings, and the weights of each policy before the first update.

        Args:
            episodes: of one evaluation; with opponents of each policy.
            against: whose first versions are the other side; without them the policies play all sides.
        """
        self._config = config
        self._pool = pool
        self._episodes = episodes
        self._max_steps = max_steps  # of an episode
        self._plays = not is_shared(config.vec)
        self._policies = config.policy_group
        self._against = against
        self.interrupts = Interrupts()
        self.newest: Sequence[Weights] = weights  # of each policy, those being played, or played last
        self._thread: threading.Thread | None = None
        self._running = False
        self._playing = Playing()
        self.best_return = float("-inf")
        self.best: Sequence[Weights] = weights

    def start(self, *weights: Weights) -> None:
        """Begin to play these weights; a pool that is this process plays them when they are asked for."""
        if not self._plays:
            return
        self.newest, self._running = weights, True
        self._begin()

    def report(self, row: Mapping[str, float], *weights: Weights) -> dict[str, float]:
        """Return a row with what was started, and begin to play these weights; `Unfinished` where that was ended."""
        try:
            row = {**row, **self.finish()}
        except Interrupted:
            return Unfinished(row)
        self.start(*weights)
        return row

    def finish(self) -> dict[str, float]:
        """Wait for what was started and report it; nothing where nothing was, or all of it was lost.

        Raises:
            Interrupted: the wait was ended, as if it had not begun.
        """
        metrics = self._wait()
        self._thread, self._running = None, False
        mean = metrics.get("eval/return_mean", float("-inf"))
        # Of those that won all games against the first version, the newest has learned from the most others.
        if mean > self.best_return or (metrics and self._first and mean == self.best_return):
            self.best_return, self.best = mean, self.newest
        return metrics

    def finish_last(self, *weights: Weights) -> list[dict[str, float]]:
        """Report what is being played, and an evaluation of these weights if they are others; nothing changes.

        Raises:
            Interrupted: a wait was ended.
        """
        reports = [self._wait()]
        if self._plays and (not self._running or weights[0].version != self.newest[0].version):
            settings: tuple[Any, ...] = self._config, self._pool, self._episodes, self._max_steps
            last = AsyncEvaluation(*settings, *weights, against=self._against)
            last.interrupts = self.interrupts
            last.best_return = max([self.best_return, *(metrics["eval/return_mean"] for metrics in reports if metrics)])
            last.start(*weights)
            reports.append(last.finish())
        return [metrics for metrics in reports if metrics]

    def _wait(self) -> dict[str, float]:
        """Wait for what was started; nothing is kept of it."""
        if not self._running:
            return {}
        if self._thread is None:  # in this process, or the run was resumed in the middle of it
            self._begin()
        games = len(self._games) * self._episodes
        description = format_evaluation(self._config.env, self.newest[0].version, games, self._max_steps)
        with self.interrupts.waiting(description):
            if self._thread is None:
                self._play(self.newest, self._playing)
            self._playing.ended.wait()
        if self._playing.error is not None:
            raise self._playing.error
        ends, env = self._playing.ends, self._config.env
        each = [
            Episodes.join([ends[share] for share in sorted(ends) if share[0] == k], len(env.metrics))
            for k in self._games
        ]
        metrics = summarize(each[0], env, self.best_return, self.newest[0].version, self._max_steps)
        return metrics | metrics_per_policy(self._policies, each) if metrics else {}

    def close(self) -> None:
        """Give up what is being played, which a resumed run plays again; may be called twice."""
        self._playing.given_up = True
        if self._thread is not None:
            self._thread.join(GIVE_UP_S)
            self._thread = None

    def state_dict(self) -> dict[str, Any]:
        """The weights under evaluation, which a resumed run plays again, and the best so far."""
        judged, best = (self._policies.by_name([one.state_dict() for one in each]) for each in (self.newest, self.best))
        return {"running": self._running, "judged": judged, "best": {"return": self.best_return, "weights": best}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._running, self._thread = bool(state["running"]), None
        judged, best = (self._policies.in_order(one) for one in (state["judged"], state["best"]["weights"]))
        self.newest = [Weights(**one) for one in judged]
        self.best_return, self.best = float(state["best"]["return"]), [Weights(**one) for one in best]

    def policy(self, which: Literal["last", "best"], *last: Weights) -> Policy:
        """Return the policy of these last weights, or the best that was evaluated; several act as one.

        Raises:
            ConfigError: the best is asked for before the first evaluation has ended.
        """
        met = which == "last" or self.best_return > float("-inf")
        require(met, "which=best is not known before the first evaluation; use which=last")
        return make_joint_policy(self._policies, self._config.env, last if which == "last" else self.best)

    def evaluated_policy(self) -> tuple[Policy, int]:
        """Return the policy that is being played, or was played last, and its iteration."""
        return make_joint_policy(self._policies, self._config.env, self.newest), self.newest[0].version

    @property
    def _first(self) -> list[Weights]:
        """The other side of each policy's games; none: the policies play all sides."""
        return [] if self._against is None else self._against.first

    @property
    def _games(self) -> range:
        """Groups of games: one for each policy where each meets another side, else one of all together."""
        return range(max(len(self._first), 1))

    def _begin(self) -> None:
        self._playing = Playing()
        # Beside the learner in its own process, evaluation would change the threads of the learner's arithmetic.
        if not self._pool.in_process:
            arguments = self.newest, self._playing
            self._thread = threading.Thread(target=self._play, args=arguments, name="evaluation", daemon=True)
            self._thread.start()

    def _play(self, weights: Sequence[Weights], playing: Playing) -> None:
        try:
            config = self._config
            network = network_of(config.architecture) if self._policies.single else None
            anyway = isinstance(config.vec, Native)
            natively = not self._first and NativePlayer.exact(config.env, network, native_anyway=anyway) is not None
            size = min(FULL_BATCH if natively else BATCH_ENVS, self._episodes)  # short tasks hold up few others
            shared, first = self._pool.broadcast((weights, self._first)), range(0, self._episodes, size)
            tasks = [(shared, k, start, min(start + size, self._episodes)) for k in self._games for start in first]
            play_task = functools.partial(evaluate_on_worker, self._config, self._max_steps)
            for done in self._pool.imap_unordered(play_task, tasks):
                if playing.given_up:
                    return
                if done.error is None:
                    playing.ends[tasks[done.index][1:3]] = done.value
                else:
                    log.warning("an evaluation task was lost: %s: %s", type(done.error).__name__, done.error)
        except BaseException as error:
            playing.error = error
        finally:
            playing.ended.set()


def evaluate_on_worker(
    config: RolloutConfig, max_steps: int, task: tuple[Broadcast[Sequence[Sequence[Weights]]], int, int, int]
) -> Episodes:
    """Play episodes first..last-1 of an evaluation, by the most likely actions.

    Args:
        task: the weights of each policy, and those that are the other side or none; whose games these are; first, last.
    """
    shared, k, first, last = task
    (weights, against), native = shared.value, isinstance(config.vec, Native)
    seeds = [episode_seed(config.seed, Stream.EVALUATION, weights[0].version, n) for n in range(first, last)]
    if against:
        two = tuple(ActorPolicy(config.policy_group.specs[k].architecture, of[k]) for of in (weights, against))
        # Who does the same every time would play all games alike against another such.
        return play_against(MatchPlayers(config.env, two, (False, True), max_steps, native), seeds, first)
    policy = make_joint_policy(config.policy_group, config.env, weights)
    what = EvaluationSpec(config.env, policy, max_steps, stochastic=False, batched=True, native=native)
    return evaluate_policy(what, seeds, threads_of(config.vec))
