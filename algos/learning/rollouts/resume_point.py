"""State of environments between two rollouts, from which other environments can resume."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.multiagent.policies import PolicyGroup

State = Mapping[str, Any]


@dataclass(frozen=True)
class ResumePoint:
    """State of W environments with N rows in all between two rollouts."""

    episode: NDArray[np.int64]  # [W], number of the running episode
    length: NDArray[np.int64]  # [W], steps played in it
    state: NDArray[np.float32]  # [N, S], recurrent state of the policy
    saved: tuple[State | None, ...] = ()  # state_dict of each vector environment; None without one
    played: tuple[NDArray[Any], ...] = ()  # actions [T, N, K] of the latest rollouts, newest last
    seen: tuple[int, ...] = ()  # checksum of the current observations of each vector environment

    @classmethod
    def first(cls, num_envs: int, policies: PolicyGroup) -> "ResumePoint":
        """Return the start of every environment's first episode."""
        zeros = np.zeros(num_envs, np.int64)
        return cls(zeros, zeros, np.zeros((num_envs * policies.rows_per_env, policies.state_width), np.float32))

    @property
    def rows_per_env(self) -> int:
        """Rows per environment."""
        return len(self.state) // len(self.length)

    @property
    def light(self) -> "ResumePoint":
        """The same point without `saved` and `played`."""
        return replace(self, saved=(), played=())

    @property
    def can_be_replayed(self) -> bool:
        """True if the stored actions reach back to the start of every running episode."""
        return sum(map(len, self.played)) >= self.length.max(initial=0)

    def same_as(self, other: "ResumePoint | None") -> bool:
        """Return whether both are the same point in a run."""
        names = ("episode", "length", "state")
        return other is not None and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    def split(self, count: int) -> "list[ResumePoint]":
        """Split into points of consecutive environments, equally many each."""
        size = len(self.episode) // count
        split = []
        for k in range(count):
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
        """Return the point after a rollout from here, dropping actions that are no longer needed.

        `ends` are the points of each vector environment after the rollout, in order, with the rollout's actions.
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
        """Return the point after a rollout from here, in which episodes were `over` [T, W] after some steps.

        `played` [T, N, K] are the actions; None if replaying actions does not reproduce the state.
        """
        episode = self.episode + over.sum(axis=0)
        length = np.where(over.any(axis=0), over[::-1].argmax(axis=0), self.length + len(over))
        return ResumePoint(episode, length, state, (saved,), () if played is None else (played,))

    def state_dict(self, policies: PolicyGroup) -> dict[str, Any]:
        """Return arrays and plain data; `actions` holds those of the running episodes, row by row."""
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
        """Restore the point from `state_dict`, for `vectors` vector environments."""
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
    """Concatenate points of several vector environments, without `saved`, `played` and `seen`."""
    episode, length, state = (
        np.concatenate([getattr(point, name) for point in points]) for name in ("episode", "length", "state")
    )
    return ResumePoint(episode, length, state)
