"""What a part's rows see, do and are given while T steps are played, group by group."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.multiagent.parts import Parts
from paddock.algos.multiagent.versions import VersionsActor
from paddock.algos.networks.actor import Actor, DenseActor
from paddock.algos.networks.inputs import offer
from paddock.envs.native.steps import Steps
from paddock.envs.vector.infos import read_numbers


class Trace:
    """A part at work in one rollout: chooses actions for its rows, n of them, and keeps what came of it.

    What somebody does is the same bits, whoever lives, and whoever else plays: a dense network has them for a row in
    any company, and through others who awaits no action goes too, with a blank observation.

    Attributes:
        acts: [T + 1, n], rows that await an action of this part; None: all, as there is one agent.
        mine: [T + 1, n], rows that this part plays; None: all.
        state: [n, S], the policy's memory, as it is now.
    """

    def __init__(
        self,
        parts: Parts,
        k: int,
        groups: int,
        actor: Actor | VersionsActor,
        noise: NDArray[np.float32],
        obs: NDArray[Any],
        acts: NDArray[np.bool_] | None,
        who: NDArray[np.intp] | None,
        state: NDArray[np.float32],
        *,
        explored: bool,
    ) -> None:
        """Begin.

        Args:
            noise: [T, n, W], of its actions.
            obs: [n, ...], what its rows see.
            acts: [N], of all rows.
            who: see `Parts.who`.
            state: is changed.
            explored: actions are not the head's own, and have no log-probabilities; what is learned of agents is then
                sequences of their turns, which begin with the memory that they had.
        """
        T, n = noise.shape[:2]
        head = parts.each[k].architecture.head
        self._parts, self._k, self._head, self._actor, self._noise = parts, k, head, actor, noise
        worlds = n // len(parts.each[k].seats)
        size = n // groups
        self._rows = [slice(start, start + size) for start in range(0, n, size)]
        self._among = parts.rows(k, worlds // groups)  # a group's batch
        self._where = np.arange(worlds // groups * parts.seats)[self._among]
        self.obs = np.empty((T + 1, *obs.shape), obs.dtype)
        self.obs[0] = obs
        self.state, self._explored = state, explored
        keeps = explored and acts is not None and state.shape[1] > 0
        self._memory = np.empty((T, *state.shape), np.float32) if keeps else None
        self.action = np.empty((T, n, head.components), head.inner_dtype)
        self._out = np.empty((T, n, head.width), np.float32)
        self._reward = np.empty((T, n), np.float32)
        self._terminated = np.empty((T, n), np.bool_)
        self._truncated = np.empty((T, n), np.bool_)
        self.acts: NDArray[np.bool_] | None = None
        self.mine: NDArray[np.bool_] | None = None
        if acts is not None:
            self.acts = np.empty((T + 1, n), np.bool_)
            self.acts[0] = acts[parts.rows(k, worlds)]
        played = parts.mine(k, who)
        if played is not None and self.acts is not None:
            self.mine = np.empty((T + 1, n), np.bool_)
            self.mine[0] = played
            self.acts[0] &= played
        self._number = None if who is None else parts.number(k, who)  # [n], which version plays
        self._finals: list[tuple[int, NDArray[np.intp], NDArray[Any]]] = []
        self._returns: list[NDArray[np.float64]] = []
        self._lengths: list[NDArray[np.int64]] = []
        self._told: list[list[float]] = []
        self._policy_s = 0.0

    def choose(self, t: int, group: int) -> NDArray[Any]:
        """Return the actions of its rows in a group, as its head gives them to environments."""
        before, rows, acts, actor = time.perf_counter(), self._rows[group], self.acts, self._actor
        if self._memory is not None:
            self._memory[t, rows] = self.state[rows]
        if isinstance(actor, VersionsActor):
            assert acts is not None and self._number is not None
            version = np.where(acts[t, rows], self._number[rows], -1)
            given = self.obs[t, rows], self.state[rows], self._noise[t, rows]
            self.action[t, rows], self.state[rows] = actor.choose(*given, version)
            self._policy_s += time.perf_counter() - before
            return self._head.to_env(self.action[t, rows])
        if acts is not None and isinstance(actor, DenseActor):
            self._choose_alone(actor, np.flatnonzero(acts[t, rows]), self.obs[t, rows], t, rows)
        else:
            self._out[t, rows], after = actor.act(self.obs[t, rows], self.state[rows])
            self.state[rows] = after if acts is None else np.where(acts[t, rows, None], after, self.state[rows])
            action = self._head.sample(self._out[t, rows], actor.log_std, self._noise[t, rows])
            self.action[t, rows] = action
        self._policy_s += time.perf_counter() - before
        return self._head.to_env(self.action[t, rows])

    def _choose_alone(self, actor: DenseActor, at: NDArray[np.intp], obs: NDArray[Any], t: int, rows: slice) -> None:
        """Let a policy without memory choose where it is its turn; the others' outputs and actions are 0."""
        out, action = self._out[t, rows], self.action[t, rows]
        out[:], action[:] = 0, 0
        if len(at):
            out[at] = chosen = actor.act(obs[at], self.state[rows][at])[0]
            action[at] = self._head.sample(chosen, actor.log_std, self._noise[t, rows][at])

    def enter(self, t: int, group: int, given: Any, who: NDArray[np.intp] | None, metrics: Sequence[str]) -> None:
        """Note what a group gave on the step that led to observation t.

        Args:
            given: what `recv` gave for all of its rows.
            who: plays its rows from here on.
            metrics: names of what environments tell of themselves at an episode's end.
        """
        rows, among = self._rows[group], self._among
        seen, reward, ended, cut, infos = given
        if not self._parts.single:
            seen, reward, ended, cut = self._parts.narrow(self._k, seen[among]), reward[among], ended[among], cut[among]
        if self.mine is not None:
            was = self.mine[t - 1, rows]
            reward, ended, cut = reward * was, ended & was, cut & was
            self.mine[t, rows] = self._parts.mine(self._k, who)
            if self._number is not None and who is not None:
                self._number[rows] = self._parts.number(self._k, who)
            self.state[rows][self.mine[t, rows] & ~was] = 0  # somebody else's memory
        self.obs[t, rows] = seen
        self._reward[t - 1, rows] = reward
        self._terminated[t - 1, rows] = ended
        self._truncated[t - 1, rows] = cut
        if self.acts is not None:
            self.acts[t, rows] = infos["acts"][among]
            if self.mine is not None:
                self.acts[t, rows] &= self.mine[t, rows]
            self._parts.hide(self._k, self.obs[t, rows], self.acts[t, rows])
        if "final_obs" in infos:
            own = np.flatnonzero(ended | cut)
            self.state[rows.start + own] = 0
            statistics, at = infos["final_info"]["episode"], self._where[own]
            self._returns.append(statistics["r"][at])
            self._lengths.append(statistics["l"][at])
            if metrics:
                self._told += [read_numbers(infos["final_info"], metrics, row) for row in at.tolist()]
            own = own[~ended[own]]
            # Copied by that: the array may be the vector's own.
            self._finals.append((t - 1, rows.start + own, infos["final_obs"][self._where[own]]))

    @property
    def played(self) -> NDArray[np.bool_] | None:
        """[T, n], whose actions were this part's; None: all."""
        return None if self.mine is None else self.mine[:-1]

    @property
    def lives(self) -> dict[str, Any]:
        """Of several agents `Rollout.acts` and `Rollout.memory`."""
        return {} if self.acts is None else {"acts": self.acts, "memory": self._memory}

    def steps(self, env_s: float, metrics: int) -> Steps:
        """Return all of it.

        Args:
            env_s: seconds spent waiting for environments.
            metrics: M, numbers that environments tell of themselves.
        """
        T, n = self._reward.shape
        logprob, final_obs = np.zeros((T, n), np.float32), np.zeros((0, *self.obs.shape[2:]), self.obs.dtype)
        if not self._explored:
            assert not isinstance(self._actor, VersionsActor)  # of which nobody learns
            out, action = self._out.reshape(T * n, -1), self.action.reshape(T * n, -1)
            logprob = self._head.logprob(out, self._actor.log_std, action).reshape(T, n)
        finals = [final for *_, some in self._finals for final in some]
        if finals:
            kind = self.obs.dtype if self._parts.wide is None else self._parts.wide[0]
            final_obs = self._parts.narrow(self._k, np.array(finals, kind))
            # The best action there is asked for, though none may be legal where nobody acts any more.
            if self._explored:
                offer(self._parts.each[self._k].architecture.inputs.layout, final_obs)
        return Steps(
            obs=self.obs,
            action=self.action,
            logprob=logprob,
            reward=self._reward,
            terminated=self._terminated,
            truncated=self._truncated & ~self._terminated,
            final_at=np.array([(t, row) for t, some, _ in self._finals for row in some], np.int64).reshape(-1, 2),
            final_obs=final_obs.reshape(-1, *self.obs.shape[2:]),
            returns=np.concatenate([np.zeros(0), *self._returns]),
            lengths=np.concatenate([np.zeros(0, np.int64), *self._lengths]),
            told=np.array(self._told, np.float64).reshape(sum(map(len, self._returns)), metrics),
            env_s=env_s,
            policy_s=self._policy_s,
        )
