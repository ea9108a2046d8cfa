"""Play rollouts of several agents, by one policy or several; of one agent see `learning/rollouts/collector.py`."""

import time
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.learning.rollouts.collector import Collector
from paddock.algos.learning.rollouts.config import Policies, RolloutConfig
from paddock.algos.learning.rollouts.environments import Environments
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.trace import Trace
from paddock.algos.multiagent.versions import VersionsActor
from paddock.algos.multiagent.view import JointView
from paddock.algos.networks.actor import make_actor
from paddock.envs.vector import in_groups
from paddock.envs.vector.remote import is_shared


def make_collector(config: RolloutConfig, actor: int = 0) -> "Collector | JointCollector":
    """Return what plays an actor's share of rollouts, of one agent or of several."""
    alone = config.policies is None and config.env.seats == 1 and not is_shared(config.vec)
    return Collector(config, actor) if alone else JointCollector(config, actor)


class JointCollector:
    """Plays rollouts of several agents in one vector of environments; otherwise as `Collector`."""

    def __init__(self, config: RolloutConfig, actor: int = 0) -> None:
        self._config = config
        self._index = actor
        self._parts = config.parts
        recipe = in_groups(config.vec, config.groups)
        venv = recipe.make(config.env.in_training(), copy=False, packed=True)
        self._view = JointView(self._parts, config.vec.num_envs, actor)
        self._envs = Environments(venv, self._view, config.seed, actor, replayed=config.vec.seeded_slots)
        self._venv = venv
        self._actors = [
            VersionsActor(part.architecture, part.versions)
            if part.versions
            else make_actor(part.architecture, config.device)
            for part in self._parts.each
        ]
        self._at: ResumePoint | None = None  # where the environments stand; None: nobody knows
        self._num_rows = N = config.vec.num_envs * config.env.seats
        size = N // config.groups
        self._groups = [slice(start, start + size) for start in range(0, N, size)]

    def is_at(self, point: ResumePoint) -> bool:
        """Return whether the environments stand there."""
        return point.same_as(self._at)

    def collect(self, weights: Policies, start: ResumePoint, iteration: int) -> tuple[list[Rollout], ResumePoint]:
        """Play T steps from `start`, wherever these environments are now.

        Args:
            weights: of each part.

        Returns:
            The rollout of each part that learns, and their end, whose `played` are the actions of these rollouts alone.
        """
        config, parts = self._config, self._parts
        T = config.num_steps
        learn = [k for k, part in enumerate(parts.each) if not part.versions]
        if not self.is_at(start):
            start = self._envs.enter(start, iteration)
        self._at = None  # until the rollout is whole
        noise, state = self._draw(iteration, weights), start.state.copy()
        traces, over, env_s, stray = self._step(weights, noise, start, state)
        # They waited together, which counts once, as do rewards to the dead, whoever would have played there.
        played = [traces[k].steps(0.0 if k else env_s, len(config.env.metrics)) for k in learn]
        lives = [{**traces[k].lives, "stray_reward": 0.0 if k else stray} for k in learn]
        self._view.obs = [trace.obs[T] for trace in traces]
        action = parts.pack([trace.action for trace in traces], [trace.played for trace in traces])
        episode = start.episode + over.sum(axis=0)
        length = np.where(over.any(axis=0), over[::-1].argmax(axis=0), start.length + T)
        # Not every environment that saves itself can be loaded elsewhere; wherever it steps, its actions lead there.
        kept = (action,) if config.vec.seeded_slots else ()
        end = ResumePoint(episode, length, state, (self._envs.save(),), kept)
        self._at = end.light
        rollouts = []
        for k, steps, life in zip(learn, played, lives, strict=True):
            values = {field.name: getattr(steps, field.name) for field in fields(steps)} | {"obs": steps.obs[:T]}
            told = {"last_obs": steps.obs[T], "start": self._own(start.light, k), "restarts": self._venv.restarts}
            rollouts.append(Rollout(weights[k].version, **told, **life, **values))
        return rollouts, end

    def close(self) -> None:
        """Close the environments."""
        self._venv.close()

    def _own(self, point: ResumePoint, k: int) -> ResumePoint:
        """Return where a part's rows stand."""
        if self._parts.single:
            return point
        width = self._parts.each[k].architecture.state_width
        state, who = point.state[self._parts.rows(k, len(point.length)), :width], self._view.who(point.episode)
        mine = self._parts.mine(k, who)  # the others' memory is nothing to it
        return replace(point, state=state if mine is None else np.where(mine[:, None], state, 0))

    def _draw(self, iteration: int, weights: Policies) -> list[NDArray[np.float32]]:
        """Return the noise of a rollout's actions, of each part by keys of its own."""
        config, worlds, drawn = self._config, self._config.vec.num_envs, []
        for k, part in enumerate(self._parts.each):
            generator = keyed_generator(config.seed, Stream.ACTION, iteration, self._index + (k << 32))
            rows, head = worlds * len(part.seats), part.architecture.head
            lead = config.num_steps, rows
            if not config.exploration:
                drawn.append(head.draw(generator, lead))
                continue
            step = weights[k].steps
            if step is None:  # every rollout has as many
                step = weights[k].version * config.num_steps * rows * config.num_actors
            drawn.append(config.exploration[k].draw(head, generator, lead, step, self._index * rows))
        return drawn

    def _step(
        self,
        weights: Policies,
        noise: Sequence[NDArray[np.float32]],
        start: ResumePoint,
        state: NDArray[np.float32],
    ) -> tuple[list[Trace], NDArray[np.bool_], float, float]:
        """Choose and step, group by group; the policies' memory [N, S] is changed.

        Returns:
            What each part met, which environments ended an episode in each step [T, W], the seconds spent waiting for
            them, and what they paid to agents who did not live.
        """
        config, parts, view = self._config, self._parts, self._view
        T, W, seats = config.num_steps, config.vec.num_envs, config.env.seats
        episode, acts = start.episode.copy(), None if view.acts is None else view.acts.copy()
        who, traces = view.who(episode), []
        for k, part in enumerate(parts.each):
            self._actors[k].load(weights[k])
            memory = state if parts.single else state[parts.rows(k, W), : part.architecture.state_width]
            began, explored = (view.obs[k], acts, who, memory), bool(config.exploration)
            traces.append(Trace(parts, k, config.groups, self._actors[k], noise[k], *began, explored=explored))
        over = np.empty((T, W), np.bool_)
        env_s, stray = 0.0, 0.0
        for t in range(T + 1):
            for group, rows in enumerate(self._groups):
                worlds = slice(rows.start // seats, rows.stop // seats)
                if t > 0:
                    before = time.perf_counter()
                    given = self._venv.recv(rows)
                    if acts is None:
                        ended = given[2] | given[3]
                    else:
                        acts[rows], ended = given[4]["acts"], given[4]["over"]
                        stray += float(np.sum(given[4].get("stray_reward", 0.0)))
                    over[t - 1, worlds] = ended
                    if who is not None and ended.any():
                        episode[worlds] += ended
                        view.recast(who, episode, worlds.start + np.flatnonzero(ended))
                    for trace in traces:
                        trace.enter(t, group, given, None if who is None else who[rows], config.env.metrics)
                    env_s += time.perf_counter() - before
                if t < T:
                    chosen = [trace.choose(t, group) for trace in traces]
                    self._venv.send(parts.join(chosen, None if who is None else who[rows]), rows)
        view.acts = acts
        for k, trace in enumerate([] if parts.single else traces):
            mine = slice(None) if trace.mine is None else trace.mine[T]
            state[np.arange(len(state))[parts.rows(k, W)][mine], : trace.state.shape[1]] = trace.state[mine]
        return traces, over, env_s, stray
