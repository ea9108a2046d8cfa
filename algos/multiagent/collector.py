"""Collect rollouts of several agents with one policy or several; `learning/rollouts/collector.py` has one agent's."""

import time
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.rollouts.collector import Collector, draw_noise
from paddock.algos.learning.rollouts.config import Policies, RolloutConfig
from paddock.algos.learning.rollouts.environments import Environments
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.recorder import PolicyRecorder
from paddock.algos.multiagent.versions import VersionsActor
from paddock.algos.multiagent.view import JointView
from paddock.algos.networks.actor import make_actor
from paddock.envs.vector.remote import is_shared


def make_collector(config: RolloutConfig, actor: int = 0) -> "Collector | JointCollector":
    """Build the collector of an actor's share of rollouts, for one agent or several."""
    alone = config.policies is None and config.env.seats == 1 and not is_shared(config.vec)
    return Collector(config, actor) if alone else JointCollector(config, actor)


class JointCollector:
    """Collector of rollouts of several agents in one vector of environments."""

    def __init__(self, config: RolloutConfig, actor: int = 0) -> None:
        self._config, self._index, self._policies = config, actor, config.policy_group
        self._view = JointView(self._policies, config.vec.num_envs, actor)
        self.envs = Environments(config, self._view, actor)
        self._actors = [
            VersionsActor(spec.architecture, spec.versions)
            if spec.versions
            else make_actor(spec.architecture, config.device)
            for spec in self._policies.specs
        ]

    def collect(self, weights: Policies, start: ResumePoint, iteration: int) -> tuple[list[Rollout], ResumePoint]:
        """Play T steps from `start`; return each learning policy's rollout and the end; see `Collector.collect`."""
        config, policies, T, num_envs = self._config, self._policies, self._config.num_steps, self._config.vec.num_envs
        start = self.envs.enter(start, iteration)
        noise = [
            draw_noise(
                config, spec.architecture.head, weights[k], num_envs * spec.rows_per_env, iteration, self._index, k
            )
            for k, spec in enumerate(policies.specs)
        ]
        state = start.state.copy()
        played, over, env_s, stray = self._step(weights, noise, start, state)
        self._view.obs = [recorder.recorder.obs[T] for recorder in played]
        action = policies.pack(
            [recorder.recorder.action for recorder in played], [recorder.played for recorder in played]
        )
        end = self.envs.leave(start, over, state, action)
        rollouts = []
        for k, recorder in enumerate(played):
            if policies.specs[k].versions:  # frozen
                continue
            # Waiting time and rewards of dead agents are shared by all policies, so only the first reports them.
            steps = recorder.steps(0.0 if k else env_s)
            values = {field.name: getattr(steps, field.name) for field in fields(steps)} | {"obs": steps.obs[:T]}
            ends = {"last_obs": steps.obs[T], "start": self._own(start.light, k), "restarts": self.envs.venv.restarts}
            lost = 0.0 if k else stray
            rollouts.append(Rollout(weights[k].version, acts=recorder.acts, stray_reward=lost, **ends, **values))
        return rollouts, end

    def close(self) -> None:
        """Close the environments."""
        self.envs.venv.close()

    def _own(self, point: ResumePoint, k: int) -> ResumePoint:
        if self._policies.single:
            return point
        width = self._policies.specs[k].architecture.state_width
        state = point.state[self._policies.rows(k, len(point.length)), :width]
        owned = self._policies.owned(k, self._view.policy_ids(point.episode))  # hide the others' memory
        return replace(point, state=state if owned is None else np.where(owned[:, None], state, 0))

    def _step(
        self,
        weights: Policies,
        noise: Sequence[NDArray[np.float32]],
        start: ResumePoint,
        state: NDArray[np.float32],
    ) -> tuple[list[PolicyRecorder], NDArray[np.bool_], float, float]:
        """Choose actions and step, group by group; update the policies' memory `state` [N, S] in place.

        Return a recorder per policy, the environments that ended an episode in each step [T, W], the seconds spent
        waiting for environments, and the sum of rewards to dead agents.
        """
        config, policies, view = self._config, self._policies, self._view
        T, W, seats = config.num_steps, config.vec.num_envs, config.env.seats
        episode, acts = start.episode.copy(), None if view.acts is None else view.acts.copy()
        policy_ids, played = view.policy_ids(episode), []
        for k, policy in enumerate(policies.specs):
            self._actors[k].load(weights[k])
            memory = state if policies.single else state[policies.rows(k, W), : policy.architecture.state_width]
            began, explored = (view.obs[k], acts, policy_ids, memory, config.env.metrics), bool(config.exploration)
            played.append(
                PolicyRecorder(policies, k, config.groups, self._actors[k], noise[k], *began, explored=explored)
            )
        over = np.empty((T, W), np.bool_)
        env_s, stray = 0.0, 0.0
        for t in range(T + 1):
            for group, rows in enumerate(self.envs.groups):
                envs = slice(rows.start // seats, rows.stop // seats)
                if t > 0:
                    before = time.perf_counter()
                    received = self.envs.venv.recv(rows)
                    if acts is None:
                        ended = received[2] | received[3]
                    else:
                        acts[rows], ended = received[4]["acts"], received[4]["over"]
                        stray += float(np.sum(received[4].get("stray_reward", 0.0)))
                    over[t - 1, envs] = ended
                    if policy_ids is not None and ended.any():
                        episode[envs] += ended
                        view.update_policy_ids(policy_ids, episode, envs.start + np.flatnonzero(ended))
                    for recorder in played:
                        recorder.record(t, group, received, None if policy_ids is None else policy_ids[rows])
                    env_s += time.perf_counter() - before
                if t < T:
                    chosen = [recorder.choose(t, group) for recorder in played]
                    self.envs.venv.send(policies.join(chosen, None if policy_ids is None else policy_ids[rows]), rows)
        view.acts = acts
        for k, recorder in enumerate([] if policies.single else played):
            owned, own = slice(None) if recorder.owned is None else recorder.owned[T], recorder.recorder.state
            state[np.arange(len(state))[policies.rows(k, W)][owned], : own.shape[1]] = own[owned]
        return played, over, env_s, stray
