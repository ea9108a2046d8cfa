"""Recurrent Q-learning from replayed sequences, R2D2 (Kapturowski et al. 2019, openreview.net/forum?id=r1lyTjAqYX)."""

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from paddock.algos.learning.offpolicy.from_replay import learn_in_torch
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.learners.q_learning import QLearning
from paddock.algos.learning.offpolicy.operators import concurrently, report, store
from paddock.algos.learning.replay.sequences import Sequences
from paddock.algos.networks.architecture import Architecture
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeInt, PositiveInt, Range

NOT_NEGATIVE_OR_NULL = Range("must not be negative, or null", low=0)


@dataclass(kw_only=True, eq=False)
class R2D2(QLearning):
    """The algorithm: its settings (conf/algo/r2d2.yaml explains each), its parts, and its state."""

    group = "r2d2"
    drawn = "sequences"

    burn_in: NonNegativeInt
    sequence_length: PositiveInt
    rescale: Annotated[float | None, NOT_NEGATIVE_OR_NULL]
    lstm: bool

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Act, store, learn of what was stored: a row every `row_every` steps; the state is complete at every yield."""
        with self.playing() as rollouts:
            acting = store(rollouts, self.replays, self.pace)
            learning = [self.updates_of(*each) for each in zip(self.learning, self.replays, strict=True)]
            turns = concurrently(acting, learning, self.pace, self.publish)
            for row, played in report(turns, self.pace, self.row_every, self.told, self.env.metrics):
                yield self.finish(row, played)
                self.pace.clock.lap("loop")

    def _learner(self, architecture: Architecture, seed: int) -> OffPolicyLearner:
        require(self.backend != "dense", "algo=r2d2 learns in torch; use backend=auto")
        # Torch takes a second to import, and no other algorithm needs it for this.
        from paddock.algos.learning.offpolicy.learners.torch_recurrent_q import TorchRecurrentQ

        make = partial(
            TorchRecurrentQ,
            architecture,
            self.objective,
            seed,
            burn_in=self.burn_in,
            dueling=self.dueling,
            rescale=self.rescale,
            precision=self.precision,
            adam_epsilon=self.adam_epsilon,
            threads=self.threads,
        )
        return learn_in_torch(self, make)

    def _sequences(self, state_width: int) -> Sequences:
        period, length = self.num_steps, self.sequence_length
        where = f"algo.sequence_length={length} is not a multiple of algo.num_steps={period}, at which sequences begin"
        fits = length // period * period or period
        require(length % period == 0, f"{where}: some steps would count more than others; try {fits}")
        return Sequences(period=period, burn_in=self.burn_in, length=length, state_width=state_width)

    @property
    def _remembers(self) -> bool:
        return self.lstm

    @property
    def _shared(self) -> bool:
        return True  # values and advantages have one memory

    @property
    def _at_once(self) -> int:
        return 1
