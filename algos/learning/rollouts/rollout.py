"""Rollouts: T steps that a policy played in N environments, and what is reported of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.episode_metrics import mean_env_metrics
from paddock.algos.learning.rollouts.resume_point import ResumePoint, concatenate_points
from paddock.algos.multiagent.aec import completed_transitions


@dataclass(frozen=True)
class Rollout:
    """T steps of N rows: of N environments, or of fewer that have as many rows each, one after another."""

    version: int  # of the weights that acted
    obs: NDArray[Any]  # [T, N, *shape] of a Box, [T, N] rows of any other space
    action: NDArray[Any]  # [T, N, K]
    logprob: NDArray[np.float32]  # [T, N], of the actions when they were taken; 0 of off-policy actors
    reward: NDArray[np.float32]  # [T, N]
    terminated: NDArray[np.bool_]  # [T, N]
    truncated: NDArray[np.bool_]  # [T, N], and not terminated
    last_obs: NDArray[Any]  # [N, ...], after the last step
    final_at: NDArray[np.int64]  # [F, 2], the steps (t, n) that truncated an episode
    final_obs: NDArray[Any]  # [F, ...], and the observations that they led to
    start: ResumePoint  # light
    returns: NDArray[np.float64]  # [E], of the episodes that ended, undiscounted
    lengths: NDArray[np.int64]  # [E]
    env_metrics: NDArray[np.float64]  # [E, M], reported by environments in their infos
    env_s: float  # seconds spent waiting for environments, summed over actors
    policy_s: float  # seconds spent choosing actions, summed over actors
    restarts: int  # worker processes of the environments replaced so far
    acts: NDArray[np.bool_] | None = None  # [T + 1, N], rows that await an action; None: all, always
    memory: NDArray[np.float32] | None = None  # [T, N, S], before each step; None: none, or known at the start alone
    stray_reward: float = 0.0  # given to rows that did not live, which nothing is learned from

    @property
    def steps(self) -> int:
        """How many actions were taken."""
        return self.reward.size if self.acts is None else int(self.acts[:-1].sum())

    @property
    def world_steps(self) -> int:
        """How many steps the environments took."""
        return len(self.reward) * len(self.start.length)

    def learned_mask(self) -> NDArray[np.bool_] | None:
        """Return which rows acted and saw what came of it, [T, N]; None: all."""
        return None if self.acts is None else completed_transitions(self.terminated, self.truncated, self.acts)

    @property
    def is_idle(self) -> bool:
        """Whether no transition was completed."""
        learned = self.learned_mask()
        return learned is not None and not learned.any()

    @property
    def all_obs(self) -> NDArray[Any]:
        """All observations, one after another: those acted on, those after the last step, and final ones [R, ...]."""
        return np.concatenate([self.obs.reshape(-1, *self.obs.shape[2:]), self.last_obs, self.final_obs])

    def split_values(self, seen: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Map what is known of `seen` [R] to that of each step's observation, and of the one it led to, [T, N] each."""
        T, N = self.reward.shape
        following = seen[N : T * N + N].reshape(T, N).copy()
        following[tuple(self.final_at.T)] = seen[T * N + N :]
        return seen[: T * N].reshape(T, N), following

    @property
    def starts(self) -> NDArray[np.bool_]:
        """Whether an episode began at a step's observation, or a life did or may, [T, N]."""
        begun = np.empty_like(self.terminated)
        begun[0] = np.repeat(self.start.length == 0, self.start.rows_per_env)
        begun[1:] = self.terminated[:-1] | self.truncated[:-1]
        return begun


@dataclass(frozen=True)
class RolloutStats:
    """Episode statistics of several rollouts."""

    returns: NDArray[np.float64]  # as a rollout has them
    lengths: NDArray[np.int64]
    env_metrics: NDArray[np.float64]
    env_s: float
    policy_s: float
    restarts: int

    @classmethod
    def join(cls, rollouts: "Sequence[Rollout | RolloutStats]") -> "RolloutStats":
        """Join the statistics of rollouts, in order."""
        arrays = {
            name: np.concatenate([getattr(r, name) for r in rollouts]) for name in ("returns", "lengths", "env_metrics")
        }
        env_s, policy_s = (sum(getattr(r, name) for r in rollouts) for name in ("env_s", "policy_s"))
        return cls(**arrays, env_s=env_s, policy_s=policy_s, restarts=rollouts[-1].restarts)


def join(parts: Sequence[Rollout]) -> Rollout:
    """Return one rollout of the actors' shares, side by side in their order."""
    if len(parts) == 1:
        return parts[0]
    offsets = np.cumsum([0] + [part.reward.shape[1] for part in parts])
    values: dict[str, Any] = {"version": parts[0].version}
    for name in ("obs", "action", "logprob", "reward", "terminated", "truncated"):
        values[name] = np.concatenate([getattr(part, name) for part in parts], axis=1)
    for name in ("acts", "memory"):
        known = [getattr(part, name) for part in parts if getattr(part, name) is not None]
        values[name] = np.concatenate(known, axis=1) if known else None
    for name in ("last_obs", "final_obs", "returns", "lengths", "env_metrics"):
        values[name] = np.concatenate([getattr(part, name) for part in parts])
    for name in ("env_s", "policy_s", "restarts", "stray_reward"):
        values[name] = sum(getattr(part, name) for part in parts)
    at = [part.final_at + np.array([0, offset]) for part, offset in zip(parts, offsets, strict=False)]
    start = concatenate_points([part.start for part in parts])
    return Rollout(final_at=np.concatenate(at), start=start, **values)


def episode_metrics(rollout: Rollout | RolloutStats, names: Sequence[str]) -> dict[str, float]:
    """Of the episodes that ended in a rollout, or several, if any did.

    Args:
        names: of `env_metrics`, in order.
    """
    if not len(rollout.returns):
        return {}
    return {
        "train/return_mean": float(rollout.returns.mean()),
        "train/return_max": float(rollout.returns.max()),
        "train/return_min": float(rollout.returns.min()),
        "train/length_mean": float(rollout.lengths.mean()),
        **mean_env_metrics("train", names, rollout.env_metrics),
    }


def world_metrics(rollout: Rollout, count: int, stray_reward: float) -> dict[str, float]:
    """Return metrics of environments whose rows may wait, after so many rollouts such as this one."""
    if rollout.acts is None:
        return {}
    stray = {"train/stray_reward": stray_reward} if stray_reward else {}
    return {"train/world_steps": count * rollout.world_steps, **stray}
