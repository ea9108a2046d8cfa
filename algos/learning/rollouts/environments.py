"""A vector of environments that any process can bring to where a rollout begins.

It loads what environments saved of themselves or, where they cannot, plays the actions of the running episodes again.
"""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.learning.rollouts.resume_point import ResumePoint, State
from paddock.algos.multiagent.parts import Parts
from paddock.envs.vector import VectorEnv, VectorMisuse
from paddock.envs.vector.contract import keyed_seed

log = logging.getLogger(__name__)


class Environments:
    """A vector of environments, and what each part saw there last.

    Attributes:
        obs: of each part, [n, ...].
        acts: [N], rows that await an action; None where all always do.
    """

    def __init__(self, venv: VectorEnv, parts: Parts, seed: int, index: int, *, replayed: bool) -> None:
        """Take over a vector of environments.

        Args:
            seed, index: of the run and of the actor, by which episodes are keyed.
            replayed: whether the same actions lead to the same place.
        """
        self.venv, self._parts, self._index, self._replayed = venv, parts, index, replayed
        self._key = episode_seed(seed, Stream.ROLLOUT, 0, index)
        self._worlds = venv.num_envs // parts.seats
        inputs = [part.architecture.inputs for part in parts.each]
        rows = [self._worlds * len(part.seats) for part in parts.each]
        self.obs = [np.zeros((n, *one.shape), one.dtype) for n, one in zip(rows, inputs, strict=True)]
        self.acts: NDArray[np.bool_] | None = None

    def who(self, episode: NDArray[np.int64]) -> NDArray[np.intp] | None:
        """Return which part plays each row of these worlds in their episodes [W]; see `Parts.who`."""
        return self._parts.who(self._index * self._worlds + np.arange(self._worlds), episode)

    def recast(self, who: NDArray[np.intp], episode: NDArray[np.int64], begun: NDArray[np.intp]) -> None:
        """Change who plays in the worlds that have begun an episode, of which `episode` [W] tells the number."""
        seats, new = self._parts.seats, self._parts.who(self._index * self._worlds + begun, episode[begun])
        who.reshape(-1, seats)[begun] = np.reshape(new, (-1, seats))  # type: ignore[arg-type]

    def save(self) -> State | None:
        """Return what others go on from; None where the environments cannot save themselves."""
        saved = self.venv.state_dict()
        acts = {} if self.acts is None else {"acts": self.acts}
        return None if saved is None else {"obs": self._parts.by_name(self.obs), **acts, "envs": saved}

    def enter(self, point: ResumePoint, iteration: int) -> ResumePoint:
        """Go to a point: by what was saved there, or else by the actions that led there."""
        saved = point.saved[0] if point.saved else None
        if saved is not None and self._load(saved):
            return point
        if self._replayed and point.can_be_replayed:
            return self._replay(point)
        if iteration > 0:
            log.warning("%s cannot enter an episode again: all begin anew", type(self.venv).__name__)
            episode = point.episode + 1
            if self.venv.keyed:
                self._take(*self.venv.begin(self._key, episode), episode)
            else:
                self._take(*self.venv.begin(keyed_seed(self._key, self._index, iteration)), episode)
            return ResumePoint(episode, np.zeros_like(point.length), np.zeros_like(point.state))
        self._take(*self.venv.begin(self._key, point.episode), point.episode)
        return point

    def _load(self, saved: State) -> bool:
        """Go to where others saved themselves; False where these environments are of another kind."""
        try:
            self.venv.load_state_dict(saved["envs"])
        except VectorMisuse as error:
            log.info("what the environments saved is of no use here (%s)", error)
            return False
        self.obs = [np.array(obs) for obs in self._parts.in_order(saved["obs"])]
        self.acts = np.array(saved["acts"]) if "acts" in saved else None
        return True

    def _take(self, obs: NDArray[Any], infos: Mapping[str, Any], episode: NDArray[np.int64]) -> None:
        """Note where the environments stand, in these episodes."""
        parts, who = self._parts, self.who(episode)
        self.acts = infos.get("acts")
        self.obs = [parts.own(k, obs) for k in range(len(parts.each))]
        if self.acts is not None:
            self.obs = [own.copy() for own in self.obs]
            for k, own in enumerate(self.obs):
                acts, mine = self.acts[parts.rows(k, self._worlds)], parts.mine(k, who)
                parts.hide(k, own, acts if mine is None else acts & mine)

    def _replay(self, point: ResumePoint) -> ResumePoint:
        """Begin the running episodes again, and play the actions that led to where they were."""
        parts, length, seats = self._parts, point.length, self._parts.seats
        obs, infos = self.venv.begin(self._key, point.episode)
        latest, acts, who = obs.copy(), infos.get("acts"), self.who(point.episode)
        over = np.zeros(len(length), np.bool_)
        steps = np.concatenate(point.played) if point.played else np.zeros(0)

        for t in range(int(length.max(initial=0))):
            ids = np.flatnonzero((length > t) & ~over)
            if not len(ids):
                break
            rows = ids if seats == 1 else (ids[:, None] * seats + np.arange(seats)).ravel()
            actions = steps[len(steps) - np.repeat(length[ids], seats) + t, rows]
            self.venv.send(parts.unpack(actions, None if who is None else who[rows]), rows)
            latest[rows], _, terminated, truncated, infos = self.venv.recv(rows)
            over[ids] = terminated | truncated if acts is None else infos["over"]
            if acts is not None:
                acts[rows] = infos["acts"]
        self._take(latest, {} if acts is None else {"acts": acts}, point.episode + over)
        if not over.any():
            return point
        log.warning(
            "the same actions ended the episodes of environments %s, which went on before; their next ones begin",
            np.flatnonzero(over).tolist(),
        )
        state = np.where(np.repeat(over, seats)[:, None], 0, point.state)
        return ResumePoint(point.episode + over, np.where(over, 0, length), state)
