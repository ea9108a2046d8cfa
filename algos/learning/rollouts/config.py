"""Configuration shared by all rollouts of a run."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from paddock.algos.learning.offpolicy.exploration import Exploration
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.policies import PolicyGroup
from paddock.algos.multiagent.rows import rows_per_env, spaces_of_rows
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.envs.errors import require
from paddock.envs.machine import format_bytes, memory_bytes
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec

Fused = Literal["auto", "never"]
Policies = Sequence[Weights]  # of each policy
Versions = Callable[[int], Policies]  # weights of rollout k
Source = Generator[tuple[list[Rollout], ResumePoint], None, None]  # rollouts of each policy, and their end

MAX_EPISODE_STEPS = 100_000  # limit of otherwise unlimited episodes, whose actions are stored


@dataclass(frozen=True)
class RolloutConfig:
    """Environments and networks of all rollouts of a run."""

    env: EnvSpec  # for evaluation; rollouts use `in_training()`
    vec: Vec
    architecture: Architecture  # of the only policy, or of the first of several
    seed: int
    num_steps: int  # T
    groups: int  # of environments: while one group steps, the policy acts in another
    fused: Fused  # whether native code may select actions and step in one call; results are the same
    exploration: tuple[Exploration, ...] = ()  # off-policy, for each policy; (): the head's own noise
    num_actors: int = 1  # with `vec.num_envs` environments each
    policies: PolicyGroup | None = None  # several policies and their rows; None: one acts in all rows
    device: str = "cpu"  # of policies that act in threads of the learner's process

    @property
    def policy_group(self) -> PolicyGroup:
        """Policies and the rows that each acts in."""
        return self.policies or PolicyGroup.shared(self.architecture, rows_per_env(self.env))


def check_memory(config: RolloutConfig, rows: int) -> None:
    """Raise ConfigError if a rollout's observations exceed this machine's memory."""
    inputs = config.architecture.inputs
    row = np.dtype((inputs.dtype, inputs.shape)).itemsize  # the other fields are small
    nbytes, there = config.num_steps * rows * row, memory_bytes()
    takes = f"num_steps={config.num_steps} of {rows} rows need {format_bytes(nbytes)}"
    remedy = f"this machine has {format_bytes(there)} of memory; use at most {there // (rows * row)}"
    require(nbytes <= there, f"{takes}, and {remedy}")


def limit_episodes(env: EnvSpec, vec: Vec) -> EnvSpec:
    """Limit unlimited episodes to MAX_EPISODE_STEPS if episodes are resumed by replaying their actions.

    Raise ConfigError if `env.training` changes the observation or action space.
    """
    env = env.limited(MAX_EPISODE_STEPS) if vec.seeded_slots else env
    training = env.in_training()
    same = training is env or spaces_of_rows(training) == spaces_of_rows(env)
    changed = f"env.training changes the spaces to {spaces_of_rows(training)}"
    require(same, f"{changed}; change the spaces with env.kwargs instead")
    return env
