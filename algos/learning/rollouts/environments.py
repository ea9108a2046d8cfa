"""Vector environment restored to any resume point, by its saved state or by replaying the running episodes' actions."""

import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.learning.rollouts.resume_point import ResumePoint, State
from paddock.algos.networks.architecture import Architecture
from paddock.envs.vector import VectorMisuse, in_groups
from paddock.envs.vector.contract import keyed_seed

log = logging.getLogger(__name__)

ToEnv = Callable[[NDArray[Any], NDArray[np.intp]], NDArray[Any]]  # (stored actions, rows) -> environment actions


class View(Protocol):
    """Latest observations of a vector environment, as its policies see them."""

    def take(self, obs: NDArray[Any], infos: Mapping[str, Any], episode: NDArray[np.int64]) -> None:
        """Store the environments' current observations, in these episodes."""

    def state_dict(self) -> dict[str, Any]:
        """Return the observations."""

    def load_state_dict(self, state: State) -> None:
        """Restore the observations."""

    def unpack(self, episode: NDArray[np.int64]) -> ToEnv:
        """Return a function that maps actions stored in these episodes to environment actions."""


class SingleView:
    """View of one policy that acts in all rows; `obs` [N, ...]."""

    obs: NDArray[Any]

    def __init__(self, architecture: Architecture) -> None:
        self._head = architecture.head

    def take(self, obs: NDArray[Any], infos: Mapping[str, Any], episode: NDArray[np.int64]) -> None:
        """See `View.take`."""
        self.obs = obs

    def state_dict(self) -> dict[str, Any]:
        """See `View.state_dict`."""
        return {"obs": self.obs}

    def load_state_dict(self, state: State) -> None:
        """See `View.load_state_dict`."""
        self.obs = np.array(state["obs"])

    def unpack(self, episode: NDArray[np.int64]) -> ToEnv:
        """See `View.unpack`."""
        return lambda actions, rows: self._head.to_env(actions.astype(self._head.inner_dtype))


class Environments:
    """Vector environment that can be restored to any point of a run."""

    def __init__(self, config: RolloutConfig, view: View, index: int) -> None:
        """Make the environments; `view` receives the current observations, the actor's `index` keys episodes."""
        self.venv = in_groups(config.vec, config.groups).make(config.env.in_training(), copy=False, packed=True)
        self._view, self._index, self._replayed = view, index, config.vec.seeded_slots
        self._key = episode_seed(config.seed, Stream.ROLLOUT, 0, index)
        self._at: ResumePoint | None = None  # current point; None: unknown
        size = self.venv.num_envs // config.groups
        self.groups = [slice(start, start + size) for start in range(0, self.venv.num_envs, size)]  # rows of each

    def is_at(self, point: ResumePoint) -> bool:
        """Return whether this is the environments' current point."""
        return point.same_as(self._at)

    def leave(
        self, start: ResumePoint, over: NDArray[np.bool_], state: NDArray[np.float32], played: NDArray[Any]
    ) -> ResumePoint:
        """Return the point after a rollout; see `ResumePoint.end_of_rollout`."""
        saved = self.venv.state_dict()
        whole = None if saved is None else {**self._view.state_dict(), "envs": saved}
        # A saved state may not load in another kind of vector environment; replaying actions works in all.
        end = start.end_of_rollout(over, state, whole, played if self._replayed else None)
        end = replace(end, seen=(_checksum(self._view.state_dict()),))
        self._at = end.light
        return end

    def enter(self, point: ResumePoint, iteration: int) -> ResumePoint:
        """Restore a point from its saved state, or by replaying its actions; the point is valid until `leave`."""
        there, self._at = self.is_at(point), None
        if there:
            return point
        saved = point.saved[0] if point.saved else None
        if saved is not None and self._load(saved):
            return point
        if self._replayed and point.can_be_replayed:
            return self._replay(point)
        if iteration > 0:
            log.warning("%s cannot restore running episodes; all are restarted", type(self.venv).__name__)
            episode = point.episode + 1
            if self.venv.keyed:
                self._view.take(*self.venv.begin(self._key, episode), episode)
            else:
                self._view.take(*self.venv.begin(keyed_seed(self._key, self._index, iteration)), episode)
            return ResumePoint(episode, np.zeros_like(point.length), np.zeros_like(point.state))
        self._view.take(*self.venv.begin(self._key, point.episode), point.episode)
        return point

    def _load(self, saved: State) -> bool:
        """Load a saved state; return False if it is of another kind of environments."""
        try:
            self.venv.load_state_dict(saved["envs"])
        except VectorMisuse as error:
            log.info("the environments' saved state cannot be loaded here (%s)", error)
            return False
        self._view.load_state_dict(saved)
        return True

    def _replay(self, point: ResumePoint) -> ResumePoint:
        length, per_env, unpack = point.length, point.rows_per_env, self._view.unpack(point.episode)
        obs, infos = self.venv.begin(self._key, point.episode)
        latest, shown = obs.copy(), {name: infos[name] for name in ("acts",) if name in infos}
        over = np.zeros(len(length), np.bool_)
        steps = np.concatenate(point.played) if point.played else np.zeros(0)

        for t in range(int(length.max(initial=0))):
            ids = np.flatnonzero((length > t) & ~over)
            if not len(ids):
                break
            rows = (ids[:, None] * per_env + np.arange(per_env)).ravel()
            actions = steps[len(steps) - np.repeat(length[ids], per_env) + t, rows]
            self.venv.send(unpack(actions, rows), rows)
            latest[rows], _, terminated, truncated, infos = self.venv.recv(rows)
            over[ids] = infos["over"] if "acts" in shown else terminated | truncated
            for name, of_rows in shown.items():
                of_rows[rows] = infos[name]
        self._view.take(latest, shown, point.episode + over)
        if not over.any():
            if point.seen and point.seen[0] != _checksum(self._view.state_dict()):
                log.warning(
                    "replayed actions led to other observations; state kept across episodes, such as a wrapper's "
                    "statistics, is lost on resume"
                )
            return point
        log.warning(
            "replayed actions ended episodes of environments %s that had not ended before; starting the next ones",
            np.flatnonzero(over).tolist(),
        )
        state = np.where(np.repeat(over, per_env)[:, None], 0, point.state)
        return ResumePoint(point.episode + over, np.where(over, 0, length), state)


def _checksum(arrays: Mapping[str, Any], start: int = 0) -> int:
    for _, value in sorted(arrays.items()):
        start = _checksum(value, start) if isinstance(value, Mapping) else zlib.crc32(value.tobytes(), start)
    return start
