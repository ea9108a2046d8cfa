"""Settings, replays and learners of algorithms that learn from replay."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import gymnasium
import numpy as np

from paddock.algos.learning.learner import is_dense
from paddock.algos.learning.offpolicy.exploration import Exploration
from paddock.algos.learning.offpolicy.learned_policy import LearnedPolicy
from paddock.algos.learning.offpolicy.learners.dense_actor_critic import DenseActorCritic
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.off_policy import POSITIVE_OR_NULL, OffPolicy, learn_in_torch
from paddock.algos.learning.offpolicy.update_schedule import UpdateSchedule
from paddock.algos.learning.replay.priorities import Priorities
from paddock.algos.learning.replay.replay import Replay
from paddock.algos.learning.replay.row_store import RowStore
from paddock.algos.learning.replay.sequences import Sequences
from paddock.algos.learning.replay.streams import Streams
from paddock.algos.multiagent.replay.agent_replay import AgentReplay, AgentStreams
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense.actor_critic import ActorCriticObjective
from paddock.algos.networks.heads import Head
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeInt, PositiveInt, Range, check_fields

MAX_UPDATES_PER_CALL = 64  # of uniform sampling, which does not depend on the updates
MAX_BYTES_PER_CALL = 1 << 26  # of sampled observations


@dataclass(kw_only=True, eq=False)
class FromReplay(OffPolicy):
    """Base of algorithms that learn from replay; conf/algo/dqn.yaml documents the settings."""

    folder: Path | None
    buffer_size: PositiveInt
    batch_size: PositiveInt
    learning_starts: NonNegativeInt
    updates_per_step: Annotated[float, Range("must be at least 1e-6", low=1e-6)]
    n_step: Annotated[int, Range("must be between 1 and 64", low=1, high=64)]
    sync_every: Annotated[int | None, POSITIVE_OR_NULL]

    keeps_files: ClassVar[bool] = True

    def assemble_with_replay(
        self,
        head: Callable[[gymnasium.Space[Any]], Head],
        exploration: Callable[[int], Exploration],
        make_learner: Callable[[Architecture, int], OffPolicyLearner],
        *,
        priorities: Priorities | None = None,
        sequences: Callable[[Architecture], Sequences] | None = None,
        **network: Any,
    ) -> None:
        """Build policies, actors, evaluation and replays, uniform without `priorities`; see `OffPolicy.assemble`."""

        def make_schedule(architecture: Architecture) -> UpdateSchedule:
            most = MAX_UPDATES_PER_CALL if priorities is None and sequences is None else 1
            at_once = max(1, min(most, MAX_BYTES_PER_CALL // (2 * self.batch_size * _obs_of(architecture).itemsize)))
            ratio = Fraction(self.updates_per_step).limit_denominator(10**6)
            return UpdateSchedule(self.learning_starts, ratio, at_once)

        check_fields(self)
        every, T = self.sync_every or self.num_steps, self.num_steps
        uneven = f"algo.sync_every={every} is not a multiple of algo.num_steps={T}, the steps of a rollout"
        require(every % T == 0, f"{uneven}; try {-(-every // T) * T}")
        self.assemble(head, exploration, make_learner, schedule=make_schedule, sync_every=every // T, **network)
        for one in self.learning:
            drawn = None if sequences is None else sequences(one.learner.architecture)
            one.replay = self._replay(one, priorities, drawn)

    @property
    def replay(self) -> RowStore:
        """Replay of the only policy, or of the first of several."""
        return self.learning[0].buffer

    def check_disk_space(self, checkpoints: int, checkpoint_bytes: int, members: int = 1) -> None:
        """See `ChecksDiskSpace`."""
        states, replays = checkpoints * checkpoint_bytes, [one.buffer for one in self.learning]
        lacking = sum(replay.lacking(checkpoints) for replay in replays)
        for replay in replays:
            others = lacking - replay.lacking(checkpoints)
            replay.check_disk_space(checkpoints, states + members * others, members)

    def describe(self) -> dict[str, str]:
        """Return what a run would assemble, for `dry_run=true`."""
        drawn = "transitions" if self.replay.sequences is None else "sequences"
        return {
            **super().describe(),
            "learner": f"{self.updates_per_step:g} updates of {self.batch_size} {drawn} for each step, after "
            f"{self.learning_starts:,} steps, on {self.device}",
            **{f"replay {one.name}".strip(): one.buffer.describe() for one in self.learning},
        }

    def _replay(self, one: LearnedPolicy, priorities: Priorities | None, sequences: Sequences | None) -> RowStore:
        architecture, waits, rows = one.learner.architecture, self.waits, one.rows
        span = self.n_step if sequences is None else sequences.span(self.n_step)
        # With turns, a transition of n steps is stored only at its row's next turn.
        drawn = self.learning_starts - (span - 1 + waits) * rows
        whom = f" of {one.name}" if one.name else ""
        remedy = f"increase it by {1 - drawn} or more"
        require(drawn >= 1, f"algo.learning_starts={self.learning_starts} leaves nothing{whom} to sample; {remedy}")
        require(
            self.batch_size <= self.buffer_size,
            f"algo.buffer_size={self.buffer_size} is less than algo.batch_size={self.batch_size}; increase it",
        )
        most = (self.num_steps + (self.n_step if waits else 0)) * rows
        require(
            self.buffer_size >= most,
            f"algo.buffer_size={self.buffer_size} is less than the {most} transitions of a rollout; increase it",
        )
        inputs, head = architecture.inputs, architecture.head
        stored: dict[str, Any] = {
            "folder": None if self.folder is None else self.folder / one.name,
            "obs": _obs_of(architecture),
            "action": np.dtype((head.compact_dtype, (head.components,))),
            "num_envs": rows,
            "capacity": self.buffer_size,
            "n_step": self.n_step,
            "gamma": self.gamma,
        }
        drawing: dict[str, Any] = {"seed": one.seed, "priorities": priorities}
        if waits:
            return AgentReplay(AgentStreams(**stored), **drawing)
        stack = self.env.in_training().made.stack if inputs.plain else None
        return Replay(Streams(stack=stack, sequences=sequences, **stored), **drawing)


def _obs_of(architecture: Architecture) -> np.dtype[Any]:
    return np.dtype((architecture.inputs.dtype, architecture.inputs.shape))


def make_actor_critic(
    settings: FromReplay,
    architecture: Architecture,
    seed: int,
    objective: ActorCriticObjective,
    loss: Callable[..., Any],
    needs: Sequence[str] = (),
    quantiles: int | None = None,
) -> OffPolicyLearner:
    """Return the learner of an actor and its critics with the same hidden sizes: in C if possible, else in torch.

    `needs` are settings that only torch supports, as for `is_dense`; `loss` is used in torch.
    """
    place = settings.backend, settings.device, settings.precision
    if is_dense(architecture, *place, needs):
        given: dict[str, Any] = {"adam_epsilon": settings.adam_epsilon, "threads": settings.threads}
        return DenseActorCritic(
            architecture, seed, critic_hidden=architecture.hidden_sizes, objective=objective, **given
        )
    from paddock.algos.learning.offpolicy.learners.torch_networks import ActorCriticNetworks

    networks = partial(ActorCriticNetworks, architecture, seed, objective=objective, quantiles=quantiles)
    return learn_in_torch(settings, networks, loss, objective)
