"""What stays the same for all rollouts of a run."""

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
Versions = Callable[[int], Policies]  # those that play rollout k
Source = Generator[tuple[list[Rollout], ResumePoint], None, None]  # rollouts of each policy, and where they ended

MAX_EPISODE_STEPS = 100_000  # where nothing else limits an episode, so that its actions can be kept


@dataclass(frozen=True)
class RolloutConfig:
    """What stays the same for a whole run: where rollouts are played, and by which networks."""

    env: EnvSpec  # of whole episodes; `in_training` of rollouts
    vec: Vec
    architecture: Architecture  # of the policy that acts for all; of several the first one's
    seed: int
    num_steps: int  # T
    groups: int  # parts of the environments that are acted on in turn, while the others step
    fused: Fused  # whether native environments may choose and step in one call, which changes no number
    exploration: tuple[Exploration, ...] = ()  # of each policy, off-policy: no log-probabilities; (): the head's
    num_actors: int = 1  # that play so many environments each
    policies: PolicyGroup | None = None  # several, and whose rows each acts for; None: one acts for all
    device: str = "cpu"  # that policies act on in threads of the process that learns, which is the learner's

    @property
    def policy_group(self) -> PolicyGroup:
        """Who acts for whom."""
        return self.policies or PolicyGroup.shared(self.architecture, rows_per_env(self.env))


def check_memory(config: RolloutConfig, rows: int) -> None:
    """Raise ConfigError where the observations of a rollout of so many rows are more than this machine's memory."""
    inputs = config.architecture.inputs
    row = np.dtype((inputs.dtype, inputs.shape)).itemsize  # what else a step has is little beside it
    nbytes, there = config.num_steps * rows * row, memory_bytes()
    takes = f"num_steps={config.num_steps} of {rows} rows take {format_bytes(nbytes)}"
    remedy = f"this machine has {format_bytes(there)} of memory; take at most {there // (rows * row)}"
    require(nbytes <= there, f"{takes}, and {remedy}")


def limit_episodes(env: EnvSpec, vec: Vec) -> EnvSpec:
    """Return the recipe of environments that rollouts are played in: their episodes end.

    Where running episodes are entered again by their actions, an environment that nothing limits is limited to
    MAX_EPISODE_STEPS.

    Raises:
        ConfigError: what differs in training changes what is seen or done.
    """
    env = env.limited(MAX_EPISODE_STEPS) if vec.seeded_slots else env
    training = env.in_training()
    same = training is env or spaces_of_rows(training) == spaces_of_rows(env)
    changed = f"env.training changes the spaces to {spaces_of_rows(training)}"
    require(same, f"{changed}; leave out what does, or say it in env.kwargs")
    return env
