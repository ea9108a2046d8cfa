"""Recorder of one policy's observations, actions and rewards over T steps, group by group."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.rollouts.recorder import Recorder
from paddock.algos.multiagent.policies import PolicyGroup
from paddock.algos.multiagent.versions import VersionsActor
from paddock.algos.networks.actor import Actor, DenseActor
from paddock.envs.native.steps import Steps


class PolicyRecorder:
    """Actor and recorder of one policy in one rollout: chooses actions for its n rows and records the results.

    An agent's actions are bit-identical whichever other agents are alive: dense networks compute each row independently
    of the batch, and other networks also compute the rows that await no action, with blank observations.

    Attributes:
        recorder: recorder of all rows.
        acts: [T + 1, n], rows that await an action of this policy; None: all, as there is one agent.
        owned: [T + 1, n], rows that this policy plays; None: all.
    """

    def __init__(
        self,
        policies: PolicyGroup,
        k: int,
        groups: int,
        actor: Actor | VersionsActor,
        noise: NDArray[np.float32],
        obs: NDArray[Any],
        acts: NDArray[np.bool_] | None,
        policy_ids: NDArray[np.intp] | None,
        state: NDArray[np.float32],
        metrics: Sequence[str],
        *,
        explored: bool,
    ) -> None:
        """Start recording policy k, which acts on n of N rows; `state` [n, S] is updated in place.

        `acts` [N] marks all policies' rows that await an action. With `explored`, exploration changes actions.
        """
        T, n = noise.shape[:2]
        self._policies, self._k, self._actor, self._noise = policies, k, actor, noise
        self.recorder = Recorder(policies.specs[k].architecture, noise, obs, state, metrics, explored=explored)
        num_envs, size = n // len(policies.specs[k].seats), n // groups
        self._rows = [slice(start, start + size) for start in range(0, n, size)]
        self._among = policies.rows(k, num_envs // groups)  # a group's batch
        self._where = np.arange(num_envs // groups * policies.seats)[self._among]
        self.acts: NDArray[np.bool_] | None = None
        self.owned: NDArray[np.bool_] | None = None
        if acts is not None:
            self.acts = np.empty((T + 1, n), np.bool_)
            self.acts[0] = acts[policies.rows(k, num_envs)]
        played = policies.owned(k, policy_ids)
        if played is not None and self.acts is not None:
            self.owned = np.empty((T + 1, n), np.bool_)
            self.owned[0] = played
            self.acts[0] &= played
        self._number = None if policy_ids is None else policies.version_index(k, policy_ids)  # [n], which version plays

    def choose(self, t: int, group: int) -> NDArray[Any]:
        """Return the actions of the policy's rows in a group, as its head gives them to environments."""
        rows, acts, actor, of = self._rows[group], self.acts, self._actor, self.recorder
        if acts is None:
            assert not isinstance(actor, VersionsActor)
            return of.choose(actor, t, rows)
        before, acting = time.perf_counter(), acts[t, rows]
        obs, state, noise = of.obs[t, rows], of.state[rows], self._noise[t, rows]
        if isinstance(actor, VersionsActor):
            assert self._number is not None
            version = np.where(acting, self._number[rows], -1)
            of.action[t, rows], of.state[rows] = actor.choose(obs, state, noise, version)
        elif isinstance(actor, DenseActor):  # has no memory; inactive rows have outputs and actions 0
            at, out, action = np.flatnonzero(acting), of.out[t, rows], of.action[t, rows]
            out[:], action[:] = 0, 0
            if len(at):
                out[at] = chosen = actor.act(obs[at], state[at])[0]
                action[at] = of.head.sample(chosen, actor.log_std, noise[at])
        else:
            of.out[t, rows], after = actor.act(obs, state)
            of.state[rows] = np.where(acting[:, None], after, state)
            of.action[t, rows] = of.head.sample(of.out[t, rows], actor.log_std, noise)
        of.policy_s += time.perf_counter() - before
        return of.head.to_env(of.action[t, rows])

    def record(self, t: int, group: int, received: Any, policy_ids: NDArray[np.intp] | None) -> None:
        """Record the result `received` of a group's step to observation t; `policy_ids` play its rows from now on."""
        rows, among = self._rows[group], self._among
        seen, reward, ended, cut, infos = received
        if not self._policies.single:
            seen, reward, ended, cut = (
                self._policies.narrow(self._k, seen[among]),
                reward[among],
                ended[among],
                cut[among],
            )
        if self.owned is not None:
            was = self.owned[t - 1, rows]
            reward, ended, cut = reward * was, ended & was, cut & was
            self.owned[t, rows] = self._policies.owned(self._k, policy_ids)
            if self._number is not None and policy_ids is not None:
                self._number[rows] = self._policies.version_index(self._k, policy_ids)
            self.recorder.state[rows][self.owned[t, rows] & ~was] = 0  # another policy's memory
        self.recorder.record(t, rows, (seen, reward, ended, cut, infos), self._where)
        if self.acts is not None:
            self.acts[t, rows] = infos["acts"][among]
            if self.owned is not None:
                self.acts[t, rows] &= self.owned[t, rows]
            self._policies.blank_inactive(self._k, self.recorder.obs[t, rows], self.acts[t, rows])

    @property
    def played(self) -> NDArray[np.bool_] | None:
        """Mask [T, n] of the actions that this policy chose; None: all."""
        return None if self.owned is None else self.owned[:-1]

    def steps(self, env_s: float) -> Steps:
        """See `Recorder.steps`."""
        assert not isinstance(self._actor, VersionsActor)  # frozen versions do not learn
        return self.recorder.steps(env_s, self._actor.log_std, self._join)

    def _join(self, finals: list[Any]) -> NDArray[Any]:
        kind = self.recorder.obs.dtype if self._policies.row_dtypes is None else self._policies.row_dtypes[0]
        return self._policies.narrow(self._k, np.array(finals, kind))
