"""What a policy's environments show, are given and pay while T steps are played, group by group."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.networks.actor import Actor
from paddock.algos.networks.inputs import offer
from paddock.envs.native.steps import Steps
from paddock.envs.vector.infos import read_numbers


class Recorder:
    """Chooses the actions of one rollout, and keeps what came of them.

    Attributes:
        obs: [T + 1, N, ...].
    """

    def __init__(
        self,
        config: RolloutConfig,
        actor: Actor,
        noise: NDArray[np.float32],
        obs: NDArray[Any],
        state: NDArray[np.float32],
    ) -> None:
        """Begin.

        Args:
            config: of the rollout; with exploration, actions are not the head's own and have no log-probabilities.
            actor: the policy.
            noise: [T, N, ...], of its actions.
            obs: [N, ...], before the first step.
            state: [N, S], the policy's memory, which is changed.
        """
        (T, N), head = noise.shape[:2], config.architecture.head
        self._config, self._head, self._actor, self._noise, self._state = config, head, actor, noise, state
        self.obs = np.empty((T + 1, *obs.shape), obs.dtype)
        self.obs[0] = obs
        self._action = np.empty((T, N, head.components), head.inner_dtype)
        self._out = np.empty((T, N, head.width), np.float32)
        self._reward = np.empty((T, N), np.float32)
        self._terminated = np.empty((T, N), np.bool_)
        self._truncated = np.empty((T, N), np.bool_)
        self._finals: list[tuple[int, NDArray[np.intp], NDArray[Any]]] = []
        self._returns: list[NDArray[np.float64]] = [np.zeros(0)]
        self._lengths: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._told: list[list[float]] = []
        self._policy_s = 0.0

    def choose(self, t: int, rows: slice) -> NDArray[Any]:
        """Return the actions of a group, as environments take them."""
        before = time.perf_counter()
        self._out[t, rows], self._state[rows] = self._actor.act(self.obs[t, rows], self._state[rows])
        action = self._head.sample(self._out[t, rows], self._actor.log_std, self._noise[t, rows])
        self._action[t, rows] = action
        self._policy_s += time.perf_counter() - before
        return self._head.to_env(self._action[t, rows])

    def record(self, t: int, rows: slice, given: Any) -> None:
        """Note what a group gave on the step that led to observation t, as `recv` returned it."""
        seen, reward, terminated, truncated, infos = given
        self.obs[t, rows] = seen
        self._reward[t - 1, rows] = reward
        self._terminated[t - 1, rows] = terminated
        self._truncated[t - 1, rows] = truncated
        if "final_obs" not in infos:
            return
        ended = np.flatnonzero(terminated | truncated)
        self._state[rows.start + ended] = 0
        statistics, metrics = infos["final_info"]["episode"], self._config.env.metrics
        self._returns.append(statistics["r"][ended])
        self._lengths.append(statistics["l"][ended])
        if metrics:
            self._told += [read_numbers(infos["final_info"], metrics, row) for row in ended.tolist()]
        cut = ended[~terminated[ended]]
        # Copied by indexing: the array may be the vector's own.
        self._finals.append((t - 1, rows.start + cut, infos["final_obs"][cut]))

    def steps(self, env_s: float) -> Steps:
        """Return all of it.

        Args:
            env_s: seconds spent waiting for environments.
        """
        T, N = self._reward.shape
        logprob, final_obs = np.zeros((T, N), np.float32), np.zeros((0, *self.obs.shape[2:]), self.obs.dtype)
        if not self._config.exploration:
            out, action = self._out.reshape(T * N, -1), self._action.reshape(T * N, -1)
            logprob = self._head.logprob(out, self._actor.log_std, action).reshape(T, N)
        finals = [final for *_, some in self._finals for final in some]
        if finals:
            final_obs = np.array(finals, self.obs.dtype)
            # The best action there is asked for, though none may be legal after an episode.
            if self._config.exploration:
                offer(self._config.architecture.inputs.layout, final_obs)
        return Steps(
            obs=self.obs,
            action=self._action,
            logprob=logprob,
            reward=self._reward,
            terminated=self._terminated,
            truncated=self._truncated & ~self._terminated,
            final_at=np.array([(t, row) for t, some, _ in self._finals for row in some], np.int64).reshape(-1, 2),
            final_obs=final_obs.reshape(-1, *self.obs.shape[2:]),
            returns=np.concatenate(self._returns),
            lengths=np.concatenate(self._lengths),
            told=np.array(self._told, np.float64).reshape(sum(map(len, self._returns)), len(self._config.env.metrics)),
            env_s=env_s,
            policy_s=self._policy_s,
        )
