"""Random transitions for tests of replay, and a replay of small rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay.batch import Batch
from paddock.algos.learning.replay.priorities import Priorities
from paddock.algos.learning.replay.replay import Replay
from paddock.algos.learning.replay.streams import Streams
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout

GAMMA = 0.9
OBS = np.dtype((np.float32, (3,)))
ACTION = np.dtype((np.float32, (2,)))
SETTINGS = Priorities(alpha=0.6, beta=0.4, beta_end=1.0, beta_updates=100)


@dataclass
class World:
    """Makes rollouts of random episodes, whose observations are numbers that tell the lane, the step and the rest."""

    num_envs: int
    seed: int
    steps: int = 0
    gives_up: bool = False  # all episodes, at the beginning of the next rollout

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)
        self.obs = self._observe()
        self.length = np.zeros(self.num_envs, np.int64)

    def play(self, T: int) -> Rollout:
        N, generator = self.num_envs, self.generator
        if self.gives_up:
            self.obs, self.length, self.gives_up = self._observe(), np.zeros(N, np.int64), False
        start = self.length.copy()
        obs, finals, final_at = np.empty((T + 1, N, 3), np.float32), [], []
        terminated, truncated = generator.random((T, N)) < 0.15, generator.random((T, N)) < 0.15
        truncated &= ~terminated
        obs[0] = self.obs
        for t in range(T):
            obs[t + 1] = self._observe()
            for n in np.flatnonzero(truncated[t]):
                final_at.append((t, n))
                finals.append(self._observe()[n])
            self.length = np.where(terminated[t] | truncated[t], 0, self.length + 1)
        self.obs = obs[T]
        self.steps += T
        nothing = np.zeros(0)
        return Rollout(
            version=0,
            obs=obs[:T],
            action=generator.standard_normal((T, N, 2), np.float32),
            logprob=np.zeros((T, N), np.float32),
            reward=generator.standard_normal((T, N), np.float32),
            terminated=terminated,
            truncated=truncated,
            last_obs=obs[T],
            final_at=np.array(final_at, np.int64).reshape(-1, 2),
            final_obs=np.array(finals, np.float32).reshape(-1, 3),
            start=ResumePoint(np.zeros(N, np.int64), start, np.zeros((N, 0), np.float32)),
            returns=nothing,
            lengths=nothing.astype(np.int64),
            env_metrics=np.zeros((0, 0)),
            env_s=0.0,
            policy_s=0.0,
            restarts=0,
        )

    def _observe(self) -> NDArray[np.float32]:
        return self.generator.standard_normal((self.num_envs, 3), np.float32)


def make(
    folder: Path | None,
    num_envs: int = 3,
    capacity: int = 500,
    n_step: int = 1,
    priorities: Priorities | None = None,
    **others: Any,
) -> Replay:
    stored: dict[str, Any] = {"obs": OBS, "action": ACTION, "gamma": GAMMA, **others}
    streams = Streams(folder=folder, num_envs=num_envs, capacity=capacity, n_step=n_step, **stored)
    return Replay(streams, seed=1, priorities=priorities)


def assert_same(one: Batch, other: Batch) -> None:
    for name, value in vars(one).items():
        assert value.tobytes() == getattr(other, name).tobytes(), name
