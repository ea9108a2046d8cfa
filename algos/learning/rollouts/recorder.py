"""Recorder of a policy's rollout: observations, actions and rewards of T steps, group by group."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.actor import Actor
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.inputs import unmask_empty_rows
from paddock.envs.native.steps import Steps
from paddock.envs.vector.infos import read_numbers


class Recorder:
    """Recorder of one rollout, which also selects the actions.

    Attributes:
        obs: [T + 1, N, ...].
        action: [T, N, K].
        out: [T, N, W], outputs of the network.
        state: [N, S], current recurrent state of the policy.
        policy_s: seconds spent selecting actions.
    """

    def __init__(
        self,
        architecture: Architecture,
        noise: NDArray[np.float32],
        obs: NDArray[Any],
        state: NDArray[np.float32],
        metrics: Sequence[str],
        *,
        explored: bool,
    ) -> None:
        """Allocate the arrays.

        `noise` [T, N, ...] is that of the actions, `obs` [N, ...] are the observations before the first step, and the
        recurrent state [N, S] is updated in place. `metrics` names environment metrics reported at an episode's end. If
        actions are `explored`, log-probabilities are not computed.
        """
        (T, N), self.head = noise.shape[:2], architecture.head
        self._layout, self._noise, self.state = architecture.inputs.layout, noise, state
        self._metrics, self._explored = metrics, explored
        self.obs = np.empty((T + 1, *obs.shape), obs.dtype)
        self.obs[0] = obs
        self.action = np.empty((T, N, self.head.components), self.head.inner_dtype)
        self.out = np.empty((T, N, self.head.width), np.float32)
        self._reward = np.empty((T, N), np.float32)
        self._terminated = np.empty((T, N), np.bool_)
        self._truncated = np.empty((T, N), np.bool_)
        self._finals: list[tuple[int, NDArray[np.intp], NDArray[Any]]] = []
        self._returns: list[NDArray[np.float64]] = [np.zeros(0)]
        self._lengths: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._env_metrics: list[list[float]] = []
        self.policy_s = 0.0

    def choose(self, actor: Actor, t: int, rows: slice) -> NDArray[Any]:
        """Select the actions of a group and return them as environment actions."""
        before = time.perf_counter()
        self.out[t, rows], self.state[rows] = actor.act(self.obs[t, rows], self.state[rows])
        self.action[t, rows] = self.head.sample(self.out[t, rows], actor.log_std, self._noise[t, rows])
        self.policy_s += time.perf_counter() - before
        return self.head.to_env(self.action[t, rows])

    def record(self, t: int, rows: slice, given: Any, among: NDArray[np.intp] | None = None) -> None:
        """Record a group's results of the step that led to observation t, as returned by `recv`.

        `among` is the index of each row in the infos; None: all rows are there.
        """
        seen, reward, terminated, truncated, infos = given
        self.obs[t, rows] = seen
        self._reward[t - 1, rows] = reward
        self._terminated[t - 1, rows] = terminated
        self._truncated[t - 1, rows] = truncated
        if "final_obs" not in infos:
            return
        ended = np.flatnonzero(terminated | truncated)
        at = ended if among is None else among[ended]
        self.state[rows.start + ended] = 0
        statistics = infos["final_info"]["episode"]
        self._returns.append(statistics["r"][at])
        self._lengths.append(statistics["l"][at])
        if self._metrics:
            self._env_metrics += [read_numbers(infos["final_info"], self._metrics, row) for row in at.tolist()]
        cut = ~terminated[ended]
        # Indexing copies, since the vector environment may reuse the array.
        self._finals.append((t - 1, rows.start + ended[cut], infos["final_obs"][at[cut]]))

    def steps(
        self,
        env_s: float,
        log_std: NDArray[np.float32],
        join: Callable[[list[Any]], NDArray[Any]] | None = None,
    ) -> Steps:
        """Return the recorded steps, given the seconds spent waiting for environments.

        `join` converts a list of the environments' final observations to an array; None: they are rows.
        """
        T, N = self._reward.shape
        logprob, final_obs = np.zeros((T, N), np.float32), np.zeros((0, *self.obs.shape[2:]), self.obs.dtype)
        if not self._explored:
            out, action = self.out.reshape(T * N, -1), self.action.reshape(T * N, -1)
            logprob = self.head.logprob(out, log_std, action).reshape(T, N)
        finals = [final for *_, some in self._finals for final in some]
        if finals:
            final_obs = np.array(finals, self.obs.dtype) if join is None else join(finals)
            # Off-policy targets need a greedy action, although none may be legal after an episode.
            if self._explored:
                unmask_empty_rows(self._layout, final_obs)
        return Steps(
            obs=self.obs,
            action=self.action,
            logprob=logprob,
            reward=self._reward,
            terminated=self._terminated,
            truncated=self._truncated & ~self._terminated,
            final_at=np.array([(t, row) for t, some, _ in self._finals for row in some], np.int64).reshape(-1, 2),
            final_obs=final_obs.reshape(-1, *self.obs.shape[2:]),
            returns=np.concatenate(self._returns),
            lengths=np.concatenate(self._lengths),
            env_metrics=np.array(self._env_metrics, np.float64).reshape(
                sum(map(len, self._returns)), len(self._metrics)
            ),
            env_s=env_s,
            policy_s=self.policy_s,
        )
