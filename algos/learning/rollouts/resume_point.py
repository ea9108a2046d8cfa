"""Where environments stand between two rollouts, and what leads others there.

What is kept for that is bounded by the length of an episode, and grows by a rollout's actions at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.multiagent.policies import PolicyGroup

State = Mapping[str, Any]


@dataclass(frozen=True)
class ResumePoint:
    """Where W environments of N rows in all stand between two rollouts, and what brings others there."""

    episode: NDArray[np.int64]  # [W], number of the running episode
    length: NDArray[np.int64]  # [W], steps played in it
    state: NDArray[np.float32]  # [N, S], the policy's memory
    saved: tuple[State | None, ...] = ()  # by each vector of environments, of itself; None where it cannot
    played: tuple[NDArray[Any], ...] = ()  # [T, N, K] each: the latest rollouts' actions, the newest last
    seen: tuple[int, ...] = ()  # by each vector of environments, the checksum of what its policies see there

    @classmethod
    def first(cls, num_envs: int, policies: PolicyGroup) -> "ResumePoint":
        """Return the beginning of every environment's first episode."""
        zeros = np.zeros(num_envs, np.int64)
        return cls(zeros, zeros, np.zeros((num_envs * policies.rows_per_env, policies.state_width), np.float32))

    @property
    def rows_per_env(self) -> int:
        """Rows of each environment."""
        return len(self.state) // len(self.length)

    @property
    def light(self) -> "ResumePoint":
        """The same point without what brings others there."""
        return replace(self, saved=(), played=())

    @property
    def can_be_replayed(self) -> bool:
        """Whether the actions reach back to the beginning of every running episode."""
        return sum(map(len, self.played)) >= self.length.max(initial=0)

    def same_as(self, other: "ResumePoint | None") -> bool:
        """Return whether both are the same point of a run."""
        names = ("episode", "length", "state")
        return other is not None and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    def split(self, parts: int) -> "list[ResumePoint]":
        """Return the points of equally many consecutive environments each."""
        size = len(self.episode) // parts
        split = []
        for k in range(parts):
            envs = slice(k * size, (k + 1) * size)
            rows = slice(envs.start * self.rows_per_env, envs.stop * self.rows_per_env)
            played = tuple(actions[:, rows] for actions in self.played)
            split.append(
                ResumePoint(
                    self.episode[envs],
                    self.length[envs],
                    self.state[rows],
                    self.saved[k : k + 1],
                    played,
                    self.seen[k : k + 1],
                )
            )
        return split

    def advance(self, ends: "Sequence[ResumePoint]") -> "ResumePoint":
        """Return where a rollout from here ended, with what still leads there.

        Args:
            ends: of each vector, in their order, with the actions of the rollout as the newest; without them, no
                actions are kept.
        """
        end = concatenate_points(ends)
        played: list[NDArray[Any]] = []
        if all(one.played for one in ends):
            played = [*self.played, np.concatenate([one.played[-1] for one in ends], axis=1)]
            steps, needed, first = sum(map(len, played)), end.length.max(), 0
            while first < len(played) - 1 and steps - len(played[first]) >= needed:
                steps, first = steps - len(played[first]), first + 1
            played = played[first:]
        saved, seen = (tuple(each for one in ends for each in getattr(one, name)) for name in ("saved", "seen"))
        return replace(end, saved=saved, played=tuple(played), seen=seen)

    def end_of_rollout(
        self, over: NDArray[np.bool_], state: NDArray[np.float32], saved: State | None, played: NDArray[Any] | None
    ) -> "ResumePoint":
        """Return where a rollout from here ended.

        Args:
            over: [T, W], whether an episode ended in a step.
            state: [N, S], the policy's memory then.
            saved: what the environments saved of themselves.
            played: [T, N, K], actions, by which others are led there; None: they lead nowhere.
        """
        episode = self.episode + over.sum(axis=0)
        length = np.where(over.any(axis=0), over[::-1].argmax(axis=0), self.length + len(over))
        return ResumePoint(episode, length, state, (saved,), () if played is None else (played,))

    def state_dict(self, policies: PolicyGroup) -> dict[str, Any]:
        """Return arrays and plain data; `actions` are those of the running episodes, row by row."""
        actions = np.zeros((0, policies.components), policies.compact_dtype)
        if self.played and self.can_be_replayed:
            steps = np.concatenate(self.played)
            lengths = np.repeat(self.length, self.rows_per_env)
            actions = np.concatenate([steps[len(steps) - length :, n] for n, length in enumerate(lengths)])
        saved = {str(k): one for k, one in enumerate(self.saved) if one is not None}
        arrays = {"episode": self.episode, "length": self.length, "state": self.state, "actions": actions}
        return {**arrays, "saved": saved or None, "seen": np.array(self.seen, np.int64)}

    @classmethod
    def restore(cls, state: State, policies: PolicyGroup, vectors: int) -> "ResumePoint":
        """Return the point that `state_dict` was of, for so many vectors of environments."""
        saved = state["saved"] or {}
        kept = tuple(saved.get(str(k)) for k in range(vectors))
        point = cls(state["episode"], state["length"], state["state"], kept, seen=tuple(state["seen"].tolist()))
        length = np.repeat(point.length, point.rows_per_env)
        if len(state["actions"]) != length.sum() or not len(state["actions"]):
            return point
        steps = np.zeros((int(length.max()), len(length), policies.components), policies.compact_dtype)
        for n, end in enumerate(np.cumsum(length)):
            steps[len(steps) - length[n] :, n] = state["actions"][end - length[n] : end]
        return replace(point, played=(steps,))


def concatenate_points(points: Sequence[ResumePoint]) -> ResumePoint:
    """Return where all these environments stand, without what brings others there."""
    episode, length, state = (
        np.concatenate([getattr(point, name) for point in points]) for name in ("episode", "length", "state")
    )
    return ResumePoint(episode, length, state)
