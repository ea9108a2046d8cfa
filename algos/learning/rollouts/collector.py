"""Play rollouts: T steps of a policy in N environments, in this process or on a worker.

Episodes start on keyed seeds and actions are drawn from keyed noise, so a rollout depends on where it starts, on the
weights and on its number alone. Any process can enter there; see `Environments`.
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
from paddock.algos.networks.inputs import offer
from paddock.algos.networks.native_policy import make_player
from paddock.envs.native.steps import Steps
from paddock.envs.vector import in_groups


class Collector:
    """Plays rollouts in one vector of environments, going on where the last one ended."""

    def __init__(self, config: RolloutConfig, actor: int = 0) -> None:
        self._config, self._index = config, actor
        venv = in_groups(config.vec, config.groups).make(config.env.in_training(), copy=False, packed=True)
        self._view = SingleView(config.architecture)
        self._envs = Environments(venv, self._view, config.seed, actor, replayed=config.vec.seeded_slots)
        self._venv, self._num_rows = venv, config.vec.num_envs
        self._actor = make_actor(config.architecture, config.device)
        fused = config.fused == "auto" and config.device == "cpu"
        self._player = make_player(config.architecture, venv) if fused else None
        self._at: ResumePoint | None = None  # where the environments stand; None: nobody knows
        size = self._num_rows // config.groups
        self._groups = [slice(start, start + size) for start in range(0, self._num_rows, size)]

    def is_at(self, point: ResumePoint) -> bool:
        """Return whether the environments stand there."""
        return point.same_as(self._at)

    def collect(self, weights: Policies, start: ResumePoint, iteration: int) -> tuple[list[Rollout], ResumePoint]:
        """Play T steps from `start`, wherever these environments are now.

        Args:
            weights: of the policy, the only item.
            start: where the environments stood.
            iteration: number of the rollout, by which its noise is keyed.

        Returns:
            The rollout, as the only item, and its end, whose `played` are its actions alone.
        """
        config, T = self._config, self._config.num_steps
        if not self.is_at(start):
            start = self._envs.enter(start, iteration)
        self._at = None  # until the rollout is whole
        noise, state = self._draw(iteration, weights[0]), start.state.copy()
        steps = self._step(weights[0], noise, state) if self._player is None else self._play(weights[0], noise)
        self._view.obs = steps.obs[T]
        over = steps.terminated | steps.truncated
        episode = start.episode + over.sum(axis=0)
        length = np.where(over.any(axis=0), over[::-1].argmax(axis=0), start.length + T)
        # Not every environment that saves itself can be loaded elsewhere; wherever it steps, its actions lead there.
        kept = (steps.action.astype(config.architecture.head.compact_dtype),) if config.vec.seeded_slots else ()
        end = ResumePoint(episode, length, state, (self._envs.save(),), kept)
        self._at = end.light
        values = {field.name: getattr(steps, field.name) for field in fields(steps)} | {"obs": steps.obs[:T]}
        told = {"last_obs": steps.obs[T], "start": start.light, "restarts": self._venv.restarts}
        return [Rollout(weights[0].version, **told, **values)], end

    def close(self) -> None:
        """Close the environments."""
        self._venv.close()

    def _draw(self, iteration: int, weights: Weights) -> NDArray[np.float32]:
        """Return the noise of a rollout's actions."""
        config, rows = self._config, self._num_rows
        generator = keyed_generator(config.seed, Stream.ACTION, iteration, self._index)
        head, lead = config.architecture.head, (config.num_steps, rows)
        if not config.exploration:
            return head.draw(generator, lead)
        step = weights.version * config.num_steps * rows * config.num_actors if weights.steps is None else weights.steps
        return config.exploration[0].draw(head, generator, lead, step, self._index * rows)

    def _play(self, weights: Weights, noise: NDArray[np.float32]) -> Steps:
        """Choose and step in one call of native code."""
        assert self._player is not None
        self._player.load(weights)
        steps = self._player.play(noise)
        if self._config.exploration:
            steps.logprob[:] = 0
            offer(self._config.architecture.inputs.layout, steps.final_obs)  # as recorders do
        return steps

    def _step(self, weights: Weights, noise: NDArray[np.float32], state: NDArray[np.float32]) -> Steps:
        """Choose and step, group by group; the policy's memory [N, S] is changed."""
        config, T, env_s = self._config, self._config.num_steps, 0.0
        self._actor.load(weights)
        recorder = Recorder(config, self._actor, noise, self._view.obs, state)
        for t in range(T + 1):
            for rows in self._groups:
                if t > 0:
                    before = time.perf_counter()
                    recorder.record(t, rows, self._venv.recv(rows))
                    env_s += time.perf_counter() - before
                if t < T:
                    self._venv.send(recorder.choose(t, rows), rows)
        return recorder.steps(env_s)
