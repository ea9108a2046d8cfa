"""Rollouts: a policy plays T steps in N environments, in this process or on a worker.

Episodes start on keyed seeds and actions are drawn from keyed noise, so a rollout depends on where it starts, on the
weights and on its number alone. Where it starts is known by each running episode's number and the actions since: any
process can enter there by playing them again.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from algos.actor import Architecture, Weights, make_actor
from algos.broadcast import Broadcast
from algos.noise import Stream, episode_seed, keyed_generator
from envs.spec import EnvSpec
from envs.vector import Vec, VectorEnv
from envs.vector.contract import keyed_seed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Standing:
    """Where N environments stand between two rollouts."""

    episode: NDArray[np.int64]  # [N], number of the running episode
    length: NDArray[np.int64]  # [N], steps played in it
    actions: NDArray[Any]  # [sum of lengths, K], of the first environment's episode, then of the second's, ...
    state: NDArray[np.float32]  # [N, S], the policy's memory

    @classmethod
    def first(cls, num_envs: int, architecture: Architecture) -> "Standing":
        """At the beginning of every environment's first episode."""
        dtype = np.float32 if architecture.head.kind == "gaussian" else np.int64
        zeros = np.zeros(num_envs, np.int64)
        state = np.zeros((num_envs, architecture.state_width), np.float32)
        return cls(zeros, zeros, np.zeros((0, architecture.head.components), dtype), state)

    def same_as(self, other: "Standing | None") -> bool:
        """Whether both are the same place."""
        return other is not None and all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        )

    def split(self, parts: int) -> "list[Standing]":
        """The places of equally many consecutive environments each."""
        ends = np.cumsum(self.length)
        size = len(self.episode) // parts
        split = []
        for start in range(0, len(self.episode), size):
            rows = slice(start, start + size)
            first = int(ends[start] - self.length[start])
            actions = self.actions[first : int(ends[start + size - 1])]
            split.append(Standing(self.episode[rows], self.length[rows], actions, self.state[rows]))
        return split


@dataclass(frozen=True)
class Rollout:
    """T steps in N environments."""

    version: int  # of the weights that acted
    obs: NDArray[Any]  # [T, N, *shape]
    action: NDArray[Any]  # [T, N, K]
    logprob: NDArray[np.float32]  # [T, N], of the actions when they were taken
    reward: NDArray[np.float32]  # [T, N]
    terminated: NDArray[np.bool_]  # [T, N]
    truncated: NDArray[np.bool_]  # [T, N], and not terminated
    last_obs: NDArray[Any]  # [N, *shape], after the last step
    final_at: NDArray[np.int64]  # [F, 2], the steps (t, n) that truncated an episode
    final_obs: NDArray[Any]  # [F, *shape], and the observations that they led to
    start: Standing
    end: Standing
    returns: NDArray[np.float64]  # [E], of the episodes that ended, undiscounted
    lengths: NDArray[np.int64]  # [E]
    env_s: float  # seconds spent waiting for environments, summed over actors
    policy_s: float  # seconds spent choosing actions, summed over actors
    restarts: int  # worker processes of the environments replaced so far

    @property
    def starts(self) -> NDArray[np.bool_]:
        """Whether an episode began at a step's observation, [T, N]."""
        begun = np.empty_like(self.terminated)
        begun[0] = self.start.length == 0
        begun[1:] = self.terminated[:-1] | self.truncated[:-1]
        return begun


@dataclass(frozen=True)
class Stage:
    """What stays the same for a whole run: where rollouts are played, and by which network."""

    env: EnvSpec
    vec: Vec
    architecture: Architecture
    seed: int
    steps: int  # T
    groups: int  # parts of the environments that are acted on in turn, while the others step


class Collector:
    """Plays rollouts in one vector of environments, going on where the last one ended."""

    def __init__(self, stage: Stage, actor: int = 0) -> None:
        self._stage = stage
        self._index = actor
        self._venv: VectorEnv = stage.vec.make(stage.env, copy=False)
        self._actor = make_actor(stage.architecture)
        self._stands: Standing | None = None
        N = stage.vec.num_envs
        size = N // stage.groups
        self._groups = [slice(start, start + size) for start in range(0, N, size)]
        self._obs: NDArray[Any] = np.zeros((N, *stage.architecture.obs_shape), stage.architecture.obs_dtype)

    def collect(self, weights: Weights, start: Standing, iteration: int) -> Rollout:
        """Play T steps from where `start` says, wherever these environments are now."""
        stage, head = self._stage, self._stage.architecture.head
        T, N = stage.steps, stage.vec.num_envs
        if not start.same_as(self._stands):
            start = self._enter(start, iteration)
        self._stands = None  # until the rollout is whole
        self._actor.load(weights)
        log_std = self._actor.log_std
        generator = keyed_generator(stage.seed, Stream.ACTION, iteration, self._index)
        noise = head.draw(generator, (T, N))

        obs = np.empty((T + 1, *self._obs.shape), self._obs.dtype)
        obs[0] = self._obs
        out = np.empty((T, N, head.width), np.float32)
        action = np.empty((T, N, head.components), start.actions.dtype)
        reward = np.empty((T, N), np.float32)
        terminated = np.empty((T, N), np.bool_)
        truncated = np.empty((T, N), np.bool_)
        state = start.state.copy()
        finals: list[tuple[int, int, Any]] = []
        returns: list[float] = []
        lengths: list[int] = []
        clock = time.perf_counter
        env_s = policy_s = 0.0
        for t in range(T + 1):
            for rows in self._groups:
                before = clock()
                if t > 0:
                    seen, reward[t - 1, rows], ended, cut, infos = self._venv.recv(rows)
                    obs[t, rows] = seen
                    terminated[t - 1, rows] = ended
                    truncated[t - 1, rows] = cut
                    if "final_obs" in infos:
                        for row in np.flatnonzero(ended | cut):
                            n = rows.start + int(row)
                            state[n] = 0
                            statistics = infos["final_info"]["episode"]
                            returns.append(float(statistics["r"][row]))
                            lengths.append(int(statistics["l"][row]))
                            if not ended[row]:
                                finals.append((t - 1, n, infos["final_obs"][row]))
                between = clock()
                env_s += between - before
                if t < T:
                    out[t, rows], state[rows] = self._actor.act(obs[t, rows], state[rows])
                    action[t, rows] = head.sample(out[t, rows], log_std, noise[t, rows])
                    policy_s += clock() - between
                    self._venv.send(head.to_env(action[t, rows]), rows)
        truncated &= ~terminated
        self._obs = obs[T]
        end = _advance(start, action, terminated | truncated, state)
        self._stands = end
        flat = (T * N, -1)
        return Rollout(
            version=weights.version,
            obs=obs[:T],
            action=action,
            logprob=head.logprob(out.reshape(flat), log_std, action.reshape(flat)).reshape(T, N),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            last_obs=obs[T],
            final_at=np.array([(t, n) for t, n, _ in finals], np.int64).reshape(-1, 2),
            final_obs=np.array([final for *_, final in finals], obs.dtype).reshape(-1, *obs.shape[2:]),
            start=start,
            end=end,
            returns=np.array(returns, np.float64),
            lengths=np.array(lengths, np.int64),
            env_s=env_s,
            policy_s=policy_s,
            restarts=self._venv.restarts,
        )

    def close(self) -> None:
        """Close the environments."""
        self._venv.close()

    def _enter(self, place: Standing, iteration: int) -> Standing:
        """Begin the running episodes again, and play the actions that led to where they were."""
        key = episode_seed(self._stage.seed, Stream.ROLLOUT, 0, self._index)
        if not self._venv.keyed and iteration > 0:
            log.warning("%s cannot enter an episode again: all begin anew", type(self._venv).__name__)
            self._obs, _ = self._venv.begin(keyed_seed(key, self._index, iteration))
            return Standing.first(len(place.length), self._stage.architecture)
        obs, _ = self._venv.begin(key, place.episode)
        latest = obs.copy()
        first = np.cumsum(place.length) - place.length
        for t in range(int(place.length.max(initial=0))):
            ids = np.flatnonzero(place.length > t)
            self._venv.send(self._stage.architecture.head.to_env(place.actions[first[ids] + t]), ids)
            latest[ids] = self._venv.recv(ids)[0]
        self._obs = latest
        return place


def _advance(start: Standing, action: NDArray[Any], ended: NDArray[np.bool_], state: NDArray[np.float32]) -> Standing:
    """Where the environments stand after a rollout."""
    T, N = ended.shape
    ends = np.cumsum(start.length)
    episode = start.episode + ended.sum(axis=0)
    length = np.where(ended.any(axis=0), ended[::-1].argmax(axis=0), start.length + T)
    parts = []
    for n in range(N):
        if not ended[:, n].any():
            parts.append(start.actions[ends[n] - start.length[n] : ends[n]])
        parts.append(action[T - min(T, int(length[n])) :, n])
    return Standing(episode, length, np.concatenate(parts), state)


class Performer:
    """One actor on its worker: its environments stay there from call to call; no result depends on them."""

    def __init__(self, stage: Stage, index: int) -> None:
        self._stage = stage
        self._index = index
        self._collector: Collector | None = None
        self._threads = ThreadpoolController()

    def play(self, weights: Broadcast[Weights], start: Standing, iteration: int) -> Rollout:
        """This actor's share of a rollout."""
        if self._collector is None:
            self._collector = Collector(self._stage, self._index)
        try:
            # One thread: a product's last bit may depend on how many threads share it.
            with self._threads.limit(limits=1):
                return self._collector.collect(weights.value, start, iteration)
        except BaseException:
            # The environments are in an unknown state; the next call builds new ones.
            self.close()
            raise

    def close(self) -> None:
        """Let the environments go."""
        if self._collector is not None:
            self._collector.close()
            self._collector = None


def join(parts: Sequence[Rollout]) -> Rollout:
    """One rollout of the actors' shares, side by side in their order."""
    if len(parts) == 1:
        return parts[0]
    offsets = np.cumsum([0] + [part.reward.shape[1] for part in parts])
    values: dict[str, Any] = {"version": parts[0].version}
    for name in ("obs", "action", "logprob", "reward", "terminated", "truncated"):
        values[name] = np.concatenate([getattr(part, name) for part in parts], axis=1)
    for name in ("last_obs", "final_obs", "returns", "lengths"):
        values[name] = np.concatenate([getattr(part, name) for part in parts])
    for name in ("env_s", "policy_s", "restarts"):
        values[name] = sum(getattr(part, name) for part in parts)
    for name in ("start", "end"):
        places = [getattr(part, name) for part in parts]
        values[name] = Standing(*(np.concatenate([getattr(p, f.name) for p in places]) for f in fields(Standing)))
    at = [part.final_at + np.array([0, offset]) for part, offset in zip(parts, offsets, strict=False)]
    return Rollout(final_at=np.concatenate(at), **values)


def episode_metrics(rollout: Rollout) -> dict[str, float]:
    """Of the episodes that ended in a rollout, if any did."""
    if not len(rollout.returns):
        return {}
    return {
        "train/return_mean": float(rollout.returns.mean()),
        "train/return_max": float(rollout.returns.max()),
        "train/return_min": float(rollout.returns.min()),
        "train/length_mean": float(rollout.lengths.mean()),
    }
