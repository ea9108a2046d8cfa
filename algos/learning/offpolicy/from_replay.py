"""What algorithms that learn from replay have beside `parts`: transitions in files, and how many updates they owe."""

import abc
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from paddock.algos.learning.learner import is_dense
from paddock.algos.learning.offpolicy.learners.actor_critic_learner import DenseActorCritic
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.operators import Update, replayed, reprioritize, train
from paddock.algos.learning.offpolicy.pace import Pace
from paddock.algos.learning.offpolicy.paced_learner import PacedLearner
from paddock.algos.learning.offpolicy.parts import POSITIVE_OR_NULL, OffPolicy
from paddock.algos.learning.replay.priorities import Priorities
from paddock.algos.learning.replay.replay import Replay
from paddock.algos.learning.replay.sequences import Sequences
from paddock.algos.learning.rollouts.actors import check_shares
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense.actor_critic import ActorCriticObjective
from paddock.algos.networks.flat import check_memory
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeInt, PositiveInt, Range

AT_ONCE = 64  # updates that one call is for, where nothing that they find changes what is drawn next,
AT_ONCE_BYTES = 1 << 26  # and observations that they are drawn with


@dataclass(kw_only=True, eq=False)
class FromReplay(OffPolicy, abc.ABC):
    """Settings that mean the same in all of them (conf/algo/dqn.yaml explains each), parts, and state."""

    folder: Path | None
    capacity: PositiveInt
    batch_size: PositiveInt
    warmup: NonNegativeInt
    updates_per_step: Annotated[float, Range("must be at least 1e-6", low=1e-6)]
    n_step: Annotated[int, Range("must be between 1 and 64", low=1, high=64)]
    sync_every: Annotated[int | None, POSITIVE_OR_NULL]
    learners: Annotated[int, Range("must be between 1 and 64", low=1, high=64)]
    microbatches: Annotated[int | None, POSITIVE_OR_NULL]

    drawn: ClassVar[str] = "transitions"  # what updates are of
    keeps_files: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.replays = [self._replay(k) for k in range(len(self.learning))]

    @property
    def replay(self) -> Replay:
        """What the only policy learns from, or the first of several."""
        return self.replays[0]

    @contextmanager
    def playing(self) -> Iterator[Generator[Sequence[Rollout], None, None]]:
        """See `OffPolicy.playing`."""
        with ExitStack() as stack:
            for replay in self.replays:
                stack.enter_context(closing(replay))
            yield stack.enter_context(super().playing())

    def check_room(self, checkpoints: int, checkpoint_bytes: int) -> None:
        """See `ChecksRoom`."""
        self.check_members_room(1, checkpoints, checkpoint_bytes)

    def check_members_room(self, members: int, checkpoints: int, checkpoint_bytes: int) -> None:
        """See `ChecksMembersRoom`."""
        states = checkpoints * checkpoint_bytes
        lacking = sum(replay.lacking(checkpoints) for replay in self.replays)
        for replay in self.replays:
            others = lacking - replay.lacking(checkpoints)
            replay.check_room(checkpoints, states + members * others, members)

    def updates_of(self, one: PacedLearner, replay: Replay) -> Generator[Update, None, None]:
        """Draw for a policy and learn for ever, as far as its pace asks for it."""
        batches = replayed(replay, self.batch_size, one.pace)
        learning = train(batches, one.learner, one.pace, lambda: self.rate)
        return learning if self._priorities() is None else reprioritize(learning, replay)

    def state_dict(self) -> dict[str, Any]:
        """See `OffPolicy.state_dict`; with the names of the replays' files."""
        states = [replay.state_dict() for replay in self.replays]
        for part, state in zip(self.parts.each, states, strict=True):
            if part.name:
                state["attachments"] = [f"{part.name}/{name}" for name in state["attachments"]]
        return {**super().state_dict(), "replay": self.parts.by_name(states)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `OffPolicy.load_state_dict`."""
        super().load_state_dict(state)
        for replay, own in zip(self.replays, self.parts.in_order(state["replay"]), strict=True):
            replay.load_state_dict(own)

    @property
    def pieces(self) -> int:
        """Microbatches that each batch is cut into."""
        return self.microbatches or self.learners

    def describe(self) -> dict[str, str]:
        """What a run would assemble, for `dry_run=true`."""
        cut = f", in {self.pieces} microbatches on {self.learners} learners" if self.pieces > 1 else ""
        kept = zip(self.parts.each, self.replays, strict=True)
        return {
            **super().describe(),
            "learner": f"{self.updates_per_step:g} updates of {self.batch_size} {self.drawn} for each step, after "
            f"{self.warmup:,} steps, on {self.device}{cut}",
            **{f"replay {part.name}".strip(): replay.describe() for part, replay in kept},
        }

    @property
    def _sync_every(self) -> int:
        every, T = self.sync_every or self.num_steps, self.num_steps
        uneven = f"algo.sync_every={every} is not a multiple of algo.num_steps={T}, the steps of a rollout"
        require(every % T == 0, f"{uneven}; try {-(-every // T) * T}")
        return every // T

    @property
    def _at_once(self) -> int:
        return AT_ONCE

    def _pace(self, architecture: Architecture) -> Pace:
        at_once = max(1, min(self._at_once, AT_ONCE_BYTES // (2 * self.batch_size * _obs_of(architecture).itemsize)))
        return Pace(self.warmup, Fraction(self.updates_per_step).limit_denominator(10**6), at_once)

    def _sequences(self, state_width: int) -> Sequences | None:
        """Which sequences are learned from, of a policy whose memory is so wide; None: single transitions."""
        return None

    def _priorities(self) -> Priorities | None:
        """How transitions are drawn; None: all alike."""
        return None

    def _replay(self, k: int) -> Replay:
        part = self.parts.each[k]
        architecture, lanes = part.architecture, self.rows_of(part)
        head, sequences = architecture.head, self._sequences(architecture.state_width)
        span = self.n_step if sequences is None else sequences.span(self.n_step)
        turns = self._waits
        # Agents may wait for their next turn, each after the last of the n that a transition has.
        drawn = self.warmup - (span - 1 + turns) * lanes
        whom = f" of {part.name}" if part.name else ""
        remedy = f"raise it by {1 - drawn} or more"
        require(drawn >= 1, f"algo.warmup={self.warmup} leaves nothing{whom} to draw; {remedy}")
        require(
            self.batch_size <= self.capacity,
            f"algo.capacity={self.capacity} is less than algo.batch_size={self.batch_size}; raise it",
        )
        most = (self.num_steps + (self.n_step if turns else 0)) * lanes
        whose = "algo.num_steps and algo.n_step of all agents" if turns else "algo.num_steps of all environments"
        require(self.capacity >= most, f"algo.capacity={self.capacity} is less than {most}, {whose}; raise it")
        return Replay(
            None if self.folder is None else self.folder / part.name,
            obs=_obs_of(architecture),
            action=np.dtype((head.compact_dtype, (head.components,))),
            num_envs=lanes,
            capacity=self.capacity,
            n_step=self.n_step,
            gamma=self.gamma,
            seed=self.learning[k].seed,
            priorities=self._priorities(),
            sequences=sequences,
            stack=self.env.in_training().stack if architecture.inputs.plain and not turns else None,
            apart=self.pieces > 1,
            turns=turns,
        )


def _obs_of(architecture: Architecture) -> np.dtype[Any]:
    """Return what one observation is kept as."""
    return np.dtype((architecture.inputs.dtype, architecture.inputs.shape))


def needs_of_parts(settings: FromReplay) -> list[str]:
    """Return which settings ask for several learners, or parts of batches, as `is_dense` takes them."""
    keys = {"learners": settings.learners, "microbatches": settings.microbatches or 1}
    return [f"algo.{name}={count}" for name, count in keys.items() if count > 1]


def check_pairs(settings: FromReplay, key: str, count: int, targets: int) -> None:
    """Check that there is memory to learn a distribution of returns: each number that it is given by meets each target.

    Args:
        key: says how many numbers there are.
        targets: of each return.

    Raises:
        ConfigError: this machine has less.
    """
    rows = max(1, settings.batch_size // settings.pieces)  # of which pairs are there at once
    check_memory(f"algo.{key}={count}", rows * count * targets, "pairs to compare in a batch", 50)


def learn_in_torch(settings: FromReplay, make: Callable[..., Any]) -> OffPolicyLearner:
    """Return what learns in torch: one learner of whole batches, or as many of parts as there are to be.

    Args:
        make: makes one, given its device; can be pickled.
    """
    check_shares(settings.threads, settings.rollouts, settings.staleness, settings.pool)
    learners, parts, batch = settings.learners, settings.pieces, settings.batch_size
    if parts == 1:
        alone: OffPolicyLearner = make(device=settings.device)
        return alone
    several = f"algo.microbatches={parts} is not a multiple of algo.learners={learners}"
    require(parts % learners == 0, f"{several}; try {-(-parts // learners) * learners}")
    uneven = f"algo.batch_size={batch} is not a multiple of {parts}, the parts that learners share (algo.microbatches)"
    require(batch % parts == 0, f"{uneven}; try {-(-batch // parts) * parts}")
    # Torch takes a second to import, and dense networks never need it.
    from paddock.algos.learning.offpolicy.learners.together import LearnersTogether

    return LearnersTogether(make, parts, learners, settings.device)


def make_actor_critic(
    settings: FromReplay,
    architecture: Architecture,
    seed: int,
    objective: ActorCriticObjective,
    needs: Sequence[str] = (),
    **in_torch: Any,
) -> OffPolicyLearner:
    """Return what learns an actor and its critics, whose hidden layers are as wide: without torch where it can.

    Args:
        needs: see `is_dense`.
        in_torch: further arguments of `TorchActorCritic`.
    """
    given: dict[str, Any] = {"critic_hidden": architecture.hidden, "objective": objective}
    given |= {"adam_epsilon": settings.adam_epsilon, "threads": settings.threads}
    place = settings.backend, settings.device, settings.precision
    if is_dense(architecture, *place, compiled=False, needs=[*needs, *needs_of_parts(settings)]):
        return DenseActorCritic(architecture, seed, **given)
    from paddock.algos.learning.offpolicy.learners.torch_actor_critic import TorchActorCritic

    given |= {"precision": settings.precision, **in_torch}
    return learn_in_torch(settings, partial(TorchActorCritic, architecture, seed, **given))
