"""Collector of rollouts: T steps of a policy in N environments, in this process or on a worker.

Episode seeds and action noise are keyed, so a rollout depends only on its resume point, the weights and its number. Any
process can collect it.
"""

import time
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.learning.rollouts.config import Policies, RolloutConfig
from paddock.algos.learning.rollouts.environments import Environments, SingleView
from paddock.algos.learning.rollouts.recorder import Recorder
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.actor import make_actor
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.heads import Head
from paddock.algos.networks.inputs import unmask_empty_rows
from paddock.algos.networks.native_policy import make_player
from paddock.envs.native.steps import Steps


class Collector:
    """Collector in one vector environment, which continues where the last rollout ended."""

    def __init__(self, config: RolloutConfig, actor: int = 0) -> None:
        self._config, self._index = config, actor
        self._view = SingleView(config.architecture)
        self.envs = Environments(config, self._view, actor)
        self._actor = make_actor(config.architecture, config.device)
        fused = config.fused == "auto" and config.device == "cpu"
        self._player = make_player(config.architecture, self.envs.venv) if fused else None

    def collect(self, weights: Policies, start: ResumePoint, iteration: int) -> tuple[list[Rollout], ResumePoint]:
        """Play T steps from `start`, whatever the environments' current state; `iteration` keys the noise.

        Weights of the policy are the only item, like its rollout. The end point's `played` holds only its own actions.
        """
        config, T = self._config, self._config.num_steps
        start = self.envs.enter(start, iteration)
        noise = draw_noise(config, config.architecture.head, weights[0], config.vec.num_envs, iteration, self._index)
        state = start.state.copy()
        steps = self._step(weights[0], noise, state) if self._player is None else self._play(weights[0], noise)
        self._view.obs = steps.obs[T]
        action = steps.action.astype(config.architecture.head.compact_dtype)
        end = self.envs.leave(start, steps.terminated | steps.truncated, state, action)
        values = {field.name: getattr(steps, field.name) for field in fields(steps)} | {"obs": steps.obs[:T]}
        shared = {"last_obs": steps.obs[T], "start": start.light, "restarts": self.envs.venv.restarts}
        return [Rollout(weights[0].version, **shared, **values)], end

    def close(self) -> None:
        """Close the environments."""
        self.envs.venv.close()

    def _play(self, weights: Weights, noise: NDArray[np.float32]) -> Steps:
        assert self._player is not None
        log_std, layers = np.split(weights.parameters, [self._config.architecture.head.num_log_std])
        self._player.load(layers, log_std, weights.normalizer)
        steps = self._player.play(noise)
        if self._config.exploration:
            steps.logprob[:] = 0
            unmask_empty_rows(self._config.architecture.inputs.layout, steps.final_obs)  # as recorders do
        return steps

    def _step(self, weights: Weights, noise: NDArray[np.float32], state: NDArray[np.float32]) -> Steps:
        """Select actions and step, group by group; the recurrent state [N, S] is updated in place."""
        config, T, env_s = self._config, self._config.num_steps, 0.0
        self._actor.load(weights)
        explored = bool(config.exploration)
        recorder = Recorder(config.architecture, noise, self._view.obs, state, config.env.metrics, explored=explored)
        for t in range(T + 1):
            for rows in self.envs.groups:
                if t > 0:
                    before = time.perf_counter()
                    recorder.record(t, rows, self.envs.venv.recv(rows))
                    env_s += time.perf_counter() - before
                if t < T:
                    self.envs.venv.send(recorder.choose(self._actor, t, rows), rows)
        return recorder.steps(env_s, self._actor.log_std)


def draw_noise(
    config: RolloutConfig, head: Head, weights: Weights, rows: int, iteration: int, actor: int, policy: int = 0
) -> NDArray[np.float32]:
    """Return the action noise of a policy in a rollout, keyed by the numbers of the rollout, actor and policy."""
    generator = keyed_generator(config.seed, Stream.ACTION, iteration, actor + (policy << 32))
    lead = config.num_steps, rows
    if not config.exploration:
        return head.sample_noise(generator, lead)
    # Without counted steps, every rollout has the same number of steps.
    step = weights.version * config.num_steps * rows * config.num_actors if weights.steps is None else weights.steps
    return config.exploration[policy].sample_noise(head, generator, lead, step, actor * rows)
