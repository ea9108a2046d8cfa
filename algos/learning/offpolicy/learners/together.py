"""Several learners of one replay, in a process each: they map its files, and send each other gradients alone."""

import functools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.distributed import Learners, check_learners
from paddock.algos.learning.offpolicy.learners.learner import ExploresByParameters, OffPolicyLearner
from paddock.algos.learning.offpolicy.learners.microbatches import Microbatches
from paddock.algos.learning.replay.batch import Floats
from paddock.algos.learning.replay.streams import DrawnRows, Reader
from paddock.algos.learning.torch_learner import DistributedContext, check_device
from paddock.algos.networks.architecture import Weights

EVERY = 100  # updates after which learners' parameters are compared


class LearnsOfParts(OffPolicyLearner, Protocol):
    """A learner of batches that are cut into parts."""

    def learn(self, parts: Sequence[Any], rate: float) -> tuple[NDArray[np.float64], Floats]:
        """Make U updates by this learner's parts of U batches, as `OffPolicyLearner.update` does by whole ones.

        Args:
            parts: `Batch` or `SequenceBatch` of B / M rows each, those that `Microbatches` calls its own.
            rate: Adam's step size.

        Returns:
            What is reported of whole batches [U, R], and distances of all rows [U, B].
        """
        ...


MakeLearner = Callable[..., LearnsOfParts]  # given its device and its microbatches


class LearnerOfRows:
    """One of the learners, and what it reads the replay with."""

    def __init__(self, make: MakeLearner, count: int, *, device: str, context: DistributedContext) -> None:
        self.microbatches = Microbatches(count, context)
        self.learner = make(device=device, microbatches=self.microbatches)
        self._reader: Reader | None = None
        self._compared = 0

    def learn(self, rows: DrawnRows, rate: float) -> tuple[NDArray[np.float64], Floats]:
        """Learn of the rows that were drawn, of which only this learner's parts are read."""
        if self._reader is None:
            self._reader = Reader(rows.streams)
        cut = self.microbatches
        return self.learner.learn([self._reader.gather(rows.part(k, cut.count)) for k in cut.own], rate)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """See `LearnsBeside.at_work`."""
        try:
            with self.learner.at_work():
                yield
        finally:
            if self._reader is not None:
                self._reader.close()
            self._reader = None

    def checksum(self) -> int:
        """See `LearnsBeside.checksum`: of the parameters of what acts, but only now and then."""
        before, self._compared = self._compared, self.learner.updates // EVERY
        return self.learner.updates if self._compared == before else zlib.crc32(self.learner.weights(0).parameters.data)

    def state_dict(self) -> dict[str, Any]:
        """See `LearnsBeside.state_dict`."""
        return self.learner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `LearnsBeside.load_state_dict`."""
        self.learner.load_state_dict(state)
        self._compared = self.learner.updates // EVERY


class LearnersTogether:
    """`OffPolicyLearner` of `DrawnRows`: one learner that computes all parts of a batch, or several that share them.

    No number depends on how many: gradients of the parts are added up in the parts' order.
    """

    def __init__(self, make: MakeLearner, microbatches: int, learners: int, device: str) -> None:
        """Build the first learner; no process is started.

        Args:
            make: can be pickled.
            microbatches: a multiple of the learners.
            device: cpu for all, or cuda: one GPU each.

        Raises:
            ConfigError: torch cannot compute there.
        """
        check_device(device)
        check_learners(learners, device)
        self._learners = Learners(
            functools.partial(LearnerOfRows, make, microbatches), LearnerOfRows.learn, learners, device
        )
        self._first: LearnsOfParts = self._learners.first.learner
        self.architecture, self.reported = self._first.architecture, self._first.reported

    @property
    def updates(self) -> int:
        """See `OffPolicyLearner.updates`."""
        return self._first.updates

    def update(self, batch: DrawnRows, rate: float) -> tuple[NDArray[np.float64], Floats]:
        """See `OffPolicyLearner.update`.

        Raises:
            LearnerLost: a learner died, failed or hung.
        """
        found: tuple[NDArray[np.float64], Floats] = self._learners.learn(batch, rate)
        return found

    def at_work(self) -> AbstractContextManager[Any]:
        """See `OffPolicyLearner.at_work`: the others' processes run in it."""
        return self._learners.at_work()

    def weights(self, version: int) -> Weights:
        """See `OffPolicyLearner.weights`."""
        return self._first.weights(version)

    def exploring(self, version: int) -> Weights:
        """See `ExploresByParameters.exploring`; of a learner that does not, its weights."""
        first = self._first
        return first.exploring(version) if isinstance(first, ExploresByParameters) else first.weights(version)

    def state_dict(self) -> dict[str, Any]:
        """See `OffPolicyLearner.state_dict`: that of each learner."""
        return self._first.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, before the others' processes begin."""
        self._learners.first.load_state_dict(state)
