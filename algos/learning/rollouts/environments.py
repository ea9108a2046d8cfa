"""A vector of environments that any process can bring to where a rollout begins.

It loads what environments saved of themselves or, where they cannot, plays the actions of the running episodes again.
"""

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

ToEnv = Callable[[NDArray[Any], NDArray[np.intp]], NDArray[Any]]  # kept actions of rows as the environments take them


class View(Protocol):
    """What policies saw last of a vector of environments, and how kept actions go back to it."""

    def take(self, obs: NDArray[Any], infos: Mapping[str, Any], episode: NDArray[np.int64]) -> None:
        """Note what the environments show where they stand, in these episodes."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all of it."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` gave."""
        ...

    def unpack(self, episode: NDArray[np.int64]) -> ToEnv:
        """Return what maps actions kept in these episodes to those that environments take."""
        ...


class SingleView:
    """The view of one policy, which acts in all rows.

    Attributes:
        obs: [N, ...].
    """

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
    """A vector of environments that can enter any point of a run."""

    def __init__(self, config: RolloutConfig, view: View, index: int) -> None:
        """Make the environments.

        Args:
            config: of the rollouts.
            view: is told where they stand.
            index: of the actor, by which episodes are keyed.
        """
        self.venv = in_groups(config.vec, config.groups).make(config.env.in_training(), copy=False, packed=True)
        self._view, self._index, self._replayed = view, index, config.vec.seeded_slots
        self._key = episode_seed(config.seed, Stream.ROLLOUT, 0, index)
        self._at: ResumePoint | None = None  # where they stand; None: nobody knows
        size = self.venv.num_envs // config.groups
        self.groups = [slice(start, start + size) for start in range(0, self.venv.num_envs, size)]  # rows of each

    def is_at(self, point: ResumePoint) -> bool:
        """Return whether they stand there."""
        return point.same_as(self._at)

    def leave(
        self, start: ResumePoint, over: NDArray[np.bool_], state: NDArray[np.float32], played: NDArray[Any]
    ) -> ResumePoint:
        """Return where they stand after a rollout, with what brings others there; see `ResumePoint.after`."""
        saved = self.venv.state_dict()
        whole = None if saved is None else {**self._view.state_dict(), "envs": saved}
        # Not every environment that saves itself can be loaded elsewhere; wherever it steps, its actions lead there.
        end = start.end_of_rollout(over, state, whole, played if self._replayed else None)
        end = replace(end, seen=(_checksum(self._view.state_dict()),))
        self._at = end.light
        return end

    def enter(self, point: ResumePoint, iteration: int) -> ResumePoint:
        """Go to a point: by what was saved there, or else by the actions that led there; to stay until `leave`."""
        there, self._at = self.is_at(point), None
        if there:
            return point
        saved = point.saved[0] if point.saved else None
        if saved is not None and self._load(saved):
            return point
        if self._replayed and point.can_be_replayed:
            return self._replay(point)
        if iteration > 0:
            log.warning("%s cannot enter an episode again: all begin anew", type(self.venv).__name__)
            episode = point.episode + 1
            if self.venv.keyed:
                self._view.take(*self.venv.begin(self._key, episode), episode)
            else:
                self._view.take(*self.venv.begin(keyed_seed(self._key, self._index, iteration)), episode)
            return ResumePoint(episode, np.zeros_like(point.length), np.zeros_like(point.state))
        self._view.take(*self.venv.begin(self._key, point.episode), point.episode)
        return point

    def _load(self, saved: State) -> bool:
        """Go to where others saved themselves; False where these environments are of another kind."""
        try:
            self.venv.load_state_dict(saved["envs"])
        except VectorMisuse as error:
            log.info("what the environments saved is of no use here (%s)", error)
            return False
        self._view.load_state_dict(saved)
        return True

    def _replay(self, point: ResumePoint) -> ResumePoint:
        """Begin the running episodes again, and play the actions that led to where they were."""
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
                    "replayed actions gave other observations: state that outlives an episode, such as a wrapper's "
                    "statistics, is lost on resume"
                )
            return point
        log.warning(
            "the same actions ended the episodes of environments %s, which went on before; their next ones begin",
            np.flatnonzero(over).tolist(),
        )
        state = np.where(np.repeat(over, per_env)[:, None], 0, point.state)
        return ResumePoint(point.episode + over, np.where(over, 0, length), state)


def _checksum(arrays: Mapping[str, Any], start: int = 0) -> int:
    for _, value in sorted(arrays.items()):
        start = _checksum(value, start) if isinstance(value, Mapping) else zlib.crc32(value.tobytes(), start)
    return start
