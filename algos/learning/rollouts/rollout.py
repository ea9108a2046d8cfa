"""Rollouts of T steps in N environments, and their episode metrics."""

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
    """T steps of N rows, where the rows of an environment are consecutive."""

    version: int  # of the acting weights
    obs: NDArray[Any]  # [T, N, *shape] for a Box, [T, N] packed rows for any other space
    action: NDArray[Any]  # [T, N, K]
    logprob: NDArray[np.float32]  # [T, N], under the acting policy; 0 for off-policy actors
    reward: NDArray[np.float32]  # [T, N]
    terminated: NDArray[np.bool_]  # [T, N]
    truncated: NDArray[np.bool_]  # [T, N]; False where terminated
    last_obs: NDArray[Any]  # [N, ...], after the last step
    final_at: NDArray[np.int64]  # [F, 2], steps (t, n) that truncated an episode
    final_obs: NDArray[Any]  # [F, ...], final observations of these steps
    start: ResumePoint  # light
    returns: NDArray[np.float64]  # [E], undiscounted, of episodes that ended
    lengths: NDArray[np.int64]  # [E]
    env_metrics: NDArray[np.float64]  # [E, M], reported by environments in their infos
    env_s: float  # seconds waiting for environments, summed over actors
    policy_s: float  # seconds selecting actions, summed over actors
    restarts: int  # environment worker processes replaced so far
    acts: NDArray[np.bool_] | None = None  # [T + 1, N], rows that select an action; None: all
    stray_reward: float = 0.0  # received by inactive rows; not used for learning

    @property
    def steps(self) -> int:
        """Number of actions taken."""
        return self.reward.size if self.acts is None else int(self.acts[:-1].sum())

    @property
    def world_steps(self) -> int:
        """Number of environment steps."""
        return len(self.reward) * len(self.start.length)

    def learned_mask(self) -> NDArray[np.bool_] | None:
        """Return the mask [T, N] of completed transitions; None means all."""
        return None if self.acts is None else completed_transitions(self.terminated, self.truncated, self.acts)

    @property
    def is_idle(self) -> bool:
        """True if no transition was completed."""
        learned = self.learned_mask()
        return learned is not None and not learned.any()

    @property
    def all_obs(self) -> NDArray[Any]:
        """All observations [R, ...]: `obs`, then `last_obs`, then `final_obs`."""
        return np.concatenate([self.obs.reshape(-1, *self.obs.shape[2:]), self.last_obs, self.final_obs])

    def split_values(self, values: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Split values of `all_obs` [R] into those of each step's observation and of its successor, [T, N] each."""
        T, N = self.reward.shape
        following = values[N : T * N + N].reshape(T, N).copy()
        following[tuple(self.final_at.T)] = values[T * N + N :]
        return values[: T * N].reshape(T, N), following

    @property
    def starts(self) -> NDArray[np.bool_]:
        """Mask [T, N] of steps at whose observation an episode, or a row's life in it, may start."""
        begun = np.empty_like(self.terminated)
        begun[0] = np.repeat(self.start.length == 0, self.start.rows_per_env)
        begun[1:] = self.terminated[:-1] | self.truncated[:-1]
        return begun


@dataclass(frozen=True)
class RolloutStats:
    """Episode statistics of several rollouts."""

    returns: NDArray[np.float64]  # fields as in `Rollout`
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


def join(rollouts: Sequence[Rollout]) -> Rollout:
    """Concatenate the rollouts of several actors along the row axis."""
    if len(rollouts) == 1:
        return rollouts[0]
    offsets = np.cumsum([0] + [each.reward.shape[1] for each in rollouts])
    values: dict[str, Any] = {"version": rollouts[0].version}
    for name in ("obs", "action", "logprob", "reward", "terminated", "truncated"):
        values[name] = np.concatenate([getattr(each, name) for each in rollouts], axis=1)
    acts = [each.acts for each in rollouts if each.acts is not None]
    values["acts"] = np.concatenate(acts, axis=1) if acts else None
    for name in ("last_obs", "final_obs", "returns", "lengths", "env_metrics"):
        values[name] = np.concatenate([getattr(each, name) for each in rollouts])
    for name in ("env_s", "policy_s", "restarts", "stray_reward"):
        values[name] = sum(getattr(each, name) for each in rollouts)
    at = [each.final_at + np.array([0, offset]) for each, offset in zip(rollouts, offsets, strict=False)]
    start = concatenate_points([each.start for each in rollouts])
    return Rollout(final_at=np.concatenate(at), start=start, **values)


def episode_metrics(rollout: Rollout | RolloutStats, names: Sequence[str]) -> dict[str, float]:
    """Return metrics of the episodes that ended, if any; `names` are those of the columns of `env_metrics`."""
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
    """Return metrics of turn-based environments after `count` rollouts like this one."""
    if rollout.acts is None:
        return {}
    stray = {"train/stray_reward": stray_reward} if stray_reward else {}
    return {"train/world_steps": count * rollout.world_steps, **stray}
