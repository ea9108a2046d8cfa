"""Asynchronous evaluation of policies on the worker pool, concurrent with training."""

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


CANCEL_TIMEOUT_S = 1.0  # for joining the thread of a cancelled evaluation; running tasks may take minutes


@dataclass(eq=False)
class EvaluationRun:
    """State of one evaluation."""

    results: dict[tuple[int, int], Any] = field(default_factory=dict)  # by group of games and first episode
    error: BaseException | None = None
    cancelled: bool = False
    finished: threading.Event = field(default_factory=threading.Event)


class AsyncEvaluation:
    """Evaluation of policy snapshots during training.

    Each result is reported when the next evaluation starts, so metrics do not depend on timing. Training waits only if
    an evaluation takes longer than the evaluation interval. This wait can be interrupted through `interrupts`; a
    resumed run restarts the evaluation. Environments shared with other clients are not evaluated.
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
        """Initialize with the first weights of each policy, which plays `against` a pool's first version, if any."""
        self._config = config
        self._pool = pool
        self._episodes = episodes
        self._max_steps = max_steps  # per episode
        self._enabled = not is_shared(config.vec)
        self._policies = config.policy_group
        self._against = against
        self.interrupts = Interrupts()
        self.newest: Sequence[Weights] = weights  # weights under evaluation, or evaluated last
        self._thread: threading.Thread | None = None
        self._running = False
        self._evaluation = EvaluationRun()
        self.best_return = float("-inf")
        self.best: Sequence[Weights] = weights

    def start(self, *weights: Weights) -> None:
        """Start evaluating these weights; an in-process pool evaluates them when the result is requested."""
        if not self._enabled:
            return
        self.newest, self._running = weights, True
        self._launch()

    def report(self, row: Mapping[str, float], *weights: Weights) -> dict[str, float]:
        """Add the pending result to a row and start evaluating these weights; return `Unfinished` if interrupted."""
        try:
            row = {**row, **self.finish()}
        except Interrupted:
            return Unfinished(row)
        self.start(*weights)
        return row

    def finish(self) -> dict[str, float]:
        """Wait for the pending evaluation, again if Interrupted, and return its metrics; empty if none or all lost."""
        metrics = self._wait()
        self._thread, self._running = None, False
        mean = metrics.get("eval/return_mean", float("-inf"))
        # On ties in self-play (all games won), prefer the newest policy.
        if mean > self.best_return or (metrics and self._opponents and mean == self.best_return):
            self.best_return, self.best = mean, self.newest
        return metrics

    def finish_last(self, *weights: Weights) -> list[dict[str, float]]:
        """Finish the pending evaluation and evaluate these weights if they differ; the state is unchanged."""
        results = [self._wait()]
        if self._enabled and (not self._running or weights[0].version != self.newest[0].version):
            settings: tuple[Any, ...] = self._config, self._pool, self._episodes, self._max_steps
            last = AsyncEvaluation(*settings, *weights, against=self._against)
            last.interrupts = self.interrupts
            last.best_return = max([self.best_return, *(metrics["eval/return_mean"] for metrics in results if metrics)])
            last.start(*weights)
            results.append(last.finish())
        return [metrics for metrics in results if metrics]

    def _wait(self) -> dict[str, float]:
        if not self._running:
            return {}
        if self._thread is None:  # in-process pool, or a resumed run
            self._launch()
        episodes = len(self._groups) * self._episodes
        description = format_evaluation(self._config.env, self.newest[0].version, episodes, self._max_steps)
        with self.interrupts.waiting(description):
            if self._thread is None:
                self._run_tasks(self.newest, self._evaluation)
            self._evaluation.finished.wait()
        if self._evaluation.error is not None:
            raise self._evaluation.error
        results, env = self._evaluation.results, self._config.env
        played = [
            Episodes.join([results[key] for key in sorted(results) if key[0] == k], len(env.metrics))
            for k in self._groups
        ]
        metrics = summarize(played[0], env, self.best_return, self.newest[0].version, self._max_steps)
        return metrics | metrics_per_policy(self._policies, played) if metrics else {}

    def close(self) -> None:
        """Cancel the pending evaluation; a resumed run restarts it. Closing twice has no effect."""
        self._evaluation.cancelled = True
        if self._thread is not None:
            self._thread.join(CANCEL_TIMEOUT_S)
            self._thread = None

    def state_dict(self) -> dict[str, Any]:
        """Return the weights under evaluation, and the best weights so far with their mean return."""
        latest, best = (self._policies.by_name([one.state_dict() for one in each]) for each in (self.newest, self.best))
        return {"running": self._running, "judged": latest, "best": {"return": self.best_return, "weights": best}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`; the next call to `finish` restarts the evaluation."""
        self._running, self._thread = bool(state["running"]), None
        latest, best = (self._policies.in_order(one) for one in (state["judged"], state["best"]["weights"]))
        self.newest = [Weights(**one) for one in latest]
        self.best_return, self.best = float(state["best"]["return"]), [Weights(**one) for one in best]

    def policy(self, which: Literal["last", "best"], *last: Weights) -> Policy:
        """Return the last policy, of weights `last`, or the best evaluated one; a joint policy if there are several."""
        available = which == "last" or self.best_return > float("-inf")
        require(available, "which=best is not known before the first evaluation; use which=last")
        return make_joint_policy(self._policies, self._config.env, last if which == "last" else self.best)

    def evaluated_policy(self) -> tuple[Policy, int]:
        """Return the policy under evaluation, or the one evaluated last, and its iteration."""
        return make_joint_policy(self._policies, self._config.env, self.newest), self.newest[0].version

    @property
    def _opponents(self) -> list[Weights]:
        """First opponent of each policy; empty without an opponent pool."""
        return [] if self._against is None else self._against.first

    @property
    def _groups(self) -> range:
        """Indices of groups of games: one group per policy in self-play, otherwise a single group."""
        return range(max(len(self._opponents), 1))

    def _launch(self) -> None:
        self._evaluation = EvaluationRun()
        # In the learner's process, a concurrent evaluation would change the learner's thread count.
        if not self._pool.in_process:
            arguments = self.newest, self._evaluation
            self._thread = threading.Thread(target=self._run_tasks, args=arguments, name="evaluation", daemon=True)
            self._thread.start()

    def _run_tasks(self, weights: Sequence[Weights], evaluation: EvaluationRun) -> None:
        try:
            config = self._config
            network = network_of(config.architecture) if self._policies.single else None
            anyway, opponents = isinstance(config.vec, Native), self._opponents
            native = not opponents and NativePlayer.exact(config.env, network, native_anyway=anyway) is not None
            size = min(FULL_BATCH if native else BATCH_ENVS, self._episodes)  # small, so that rollouts wait less
            shared, starts = self._pool.broadcast((weights, opponents)), range(0, self._episodes, size)
            tasks = [(shared, k, start, min(start + size, self._episodes)) for k in self._groups for start in starts]
            play_task = functools.partial(evaluate_on_worker, self._config, self._max_steps)
            for done in self._pool.imap_unordered(play_task, tasks):
                if evaluation.cancelled:
                    return
                if done.error is None:
                    evaluation.results[tasks[done.index][1:3]] = done.value
                else:
                    log.warning("an evaluation task failed: %s: %s", type(done.error).__name__, done.error)
        except BaseException as error:
            evaluation.error = error
        finally:
            evaluation.finished.set()


def evaluate_on_worker(
    config: RolloutConfig, max_steps: int, task: tuple[Broadcast[Sequence[Sequence[Weights]]], int, int, int]
) -> Episodes:
    """Play episodes first .. last - 1 of a group, with deterministic actions; `opponents` may be empty."""
    shared, k, first, last = task
    (weights, opponents), native = shared.value, isinstance(config.vec, Native)
    seeds = [episode_seed(config.seed, Stream.EVALUATION, weights[0].version, n) for n in range(first, last)]
    if opponents:
        players = tuple(ActorPolicy(config.policy_group.specs[k].architecture, own[k]) for own in (weights, opponents))
        # The opponent samples its actions, because two deterministic policies would repeat the same game.
        return play_against(MatchPlayers(config.env, players, (False, True), max_steps, native), seeds, first)
    policy = make_joint_policy(config.policy_group, config.env, weights)
    spec = EvaluationSpec(config.env, policy, max_steps, stochastic=False, batched=True, native=native)
    return evaluate_policy(spec, seeds, threads_of(config.vec))
