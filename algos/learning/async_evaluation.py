"""Asynchronous evaluation: the pool plays a policy's episodes while training continues."""

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


CANCEL_S = 1.0  # to wait for the thread of a cancelled evaluation, whose tasks may take minutes


@dataclass(eq=False)
class EvaluationRun:
    """Progress of one evaluation."""

    ends: dict[tuple[int, int], Any] = field(default_factory=dict)  # by policy and first episode
    error: BaseException | None = None
    cancelled: bool = False
    ended: threading.Event = field(default_factory=threading.Event)


class AsyncEvaluation:
    """Evaluation of policy snapshots during training.

    A result is reported when the next evaluation starts, so rows of metrics do not depend on timing, and training waits
    only if an evaluation takes longer than the interval between two. `interrupts` end such a wait without losing the
    evaluation, whose weights are part of the state. Environments shared with other clients are not evaluated.
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
        """Initialize with the weights of each policy before the first update.

        With opponents (`against`), their first versions play the other side and each policy plays all `episodes`.
        """
        self._config = config
        self._pool = pool
        self._episodes = episodes
        self._max_steps = max_steps  # of an episode
        self._plays = not is_shared(config.vec)
        self._policies = config.policy_group
        self._against = against
        self.interrupts = Interrupts()
        self.newest: Sequence[Weights] = weights  # being evaluated, or evaluated last
        self._thread: threading.Thread | None = None
        self._running = False
        self._playing = EvaluationRun()
        self.best_return = float("-inf")
        self.best: Sequence[Weights] = weights

    def start(self, *weights: Weights) -> None:
        """Start evaluating these weights; an in-process pool evaluates them when the result is requested."""
        if not self._plays:
            return
        self.newest, self._running = weights, True
        self._begin()

    def report(self, row: Mapping[str, float], *weights: Weights) -> dict[str, float]:
        """Add the pending result to a row and start evaluating these weights; `Unfinished` if interrupted."""
        try:
            row = {**row, **self.finish()}
        except Interrupted:
            return Unfinished(row)
        self.start(*weights)
        return row

    def finish(self) -> dict[str, float]:
        """Wait for the pending evaluation and return its metrics; empty if there is none or all tasks were lost.

        Raises:
            Interrupted: the wait was interrupted; it can be repeated.
        """
        metrics = self._wait()
        self._thread, self._running = None, False
        mean = metrics.get("eval/return_mean", float("-inf"))
        # On ties in self-play (all games won), prefer the newest policy.
        if mean > self.best_return or (metrics and self._first and mean == self.best_return):
            self.best_return, self.best = mean, self.newest
        return metrics

    def finish_last(self, *weights: Weights) -> list[dict[str, float]]:
        """Return the pending result and that of these weights, if they differ; the state is unchanged.

        Raises:
            Interrupted: a wait was interrupted.
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
        """Wait for the pending evaluation and return its metrics."""
        if not self._running:
            return {}
        if self._thread is None:  # in-process pool, or a resumed run
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
        """Cancel the pending evaluation, which a resumed run restarts; idempotent."""
        self._playing.cancelled = True
        if self._thread is not None:
            self._thread.join(CANCEL_S)
            self._thread = None

    def state_dict(self) -> dict[str, Any]:
        """Return the weights under evaluation, which a resumed run restarts, and the best so far."""
        judged, best = (self._policies.by_name([one.state_dict() for one in each]) for each in (self.newest, self.best))
        return {"running": self._running, "judged": judged, "best": {"return": self.best_return, "weights": best}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""
        self._running, self._thread = bool(state["running"]), None
        judged, best = (self._policies.in_order(one) for one in (state["judged"], state["best"]["weights"]))
        self.newest = [Weights(**one) for one in judged]
        self.best_return, self.best = float(state["best"]["return"]), [Weights(**one) for one in best]

    def policy(self, which: Literal["last", "best"], *last: Weights) -> Policy:
        """Return the policy of these last weights or the best evaluated one; several are combined into one.

        Raises:
            ConfigError: the best is requested before the first evaluation has finished.
        """
        met = which == "last" or self.best_return > float("-inf")
        require(met, "which=best is not known before the first evaluation; use which=last")
        return make_joint_policy(self._policies, self._config.env, last if which == "last" else self.best)

    def evaluated_policy(self) -> tuple[Policy, int]:
        """Return the policy under evaluation, or evaluated last, and its iteration."""
        return make_joint_policy(self._policies, self._config.env, self.newest), self.newest[0].version

    @property
    def _first(self) -> list[Weights]:
        """Opponents of each policy; empty if the policies play all sides."""
        return [] if self._against is None else self._against.first

    @property
    def _games(self) -> range:
        """Groups of games: one for each policy with opponents, else one."""
        return range(max(len(self._first), 1))

    def _begin(self) -> None:
        self._playing = EvaluationRun()
        # In the learner's process, a concurrent evaluation would change the learner's number of threads.
        if not self._pool.in_process:
            arguments = self.newest, self._playing
            self._thread = threading.Thread(target=self._play, args=arguments, name="evaluation", daemon=True)
            self._thread.start()

    def _play(self, weights: Sequence[Weights], playing: EvaluationRun) -> None:
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
                if playing.cancelled:
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
    """Play episodes first..last-1 of an evaluation with deterministic actions.

    A task is ((weights of each policy, weights of its opponents or none), group of games, first, last).
    """
    shared, k, first, last = task
    (weights, against), native = shared.value, isinstance(config.vec, Native)
    seeds = [episode_seed(config.seed, Stream.EVALUATION, weights[0].version, n) for n in range(first, last)]
    if against:
        two = tuple(ActorPolicy(config.policy_group.specs[k].architecture, of[k]) for of in (weights, against))
        # Two deterministic policies would repeat the same game.
        return play_against(MatchPlayers(config.env, two, (False, True), max_steps, native), seeds, first)
    policy = make_joint_policy(config.policy_group, config.env, weights)
    what = EvaluationSpec(config.env, policy, max_steps, stochastic=False, batched=True, native=native)
    return evaluate_policy(what, seeds, threads_of(config.vec))
