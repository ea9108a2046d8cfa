"""Deep Q-learning (Mnih et al. 2015): double, dueling, of n steps, prioritized, and Ape-X by its keys.

Double: van Hasselt et al. 2016 (arXiv:1509.06461); dueling: Wang et al. 2016 (arXiv:1511.06581); prioritized replay:
Schaul et al. 2016 (arXiv:1511.05952); Ape-X: Horgan et al. 2018 (arXiv:1803.00933); quantiles of returns, QR-DQN:
Dabney et al. 2018 (arXiv:1710.10044); their distribution over atoms, C51: Bellemare et al. 2017 (arXiv:1707.06887);
noisy networks: Fortunato et al. 2018 (arXiv:1706.10295); all but quantiles at once, Rainbow: Hessel et al. 2018
(arXiv:1710.02298).
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from paddock.algos.learning.learner import is_dense
from paddock.algos.learning.offpolicy.from_replay import check_pairs, learn_in_torch, needs_of_parts
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.learners.q_learner import DenseQLearner
from paddock.algos.learning.offpolicy.learners.q_learning import QLearning
from paddock.algos.learning.offpolicy.operators import concurrently, report, store
from paddock.algos.learning.offpolicy.parts import POSITIVE_OR_NULL
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.support import Support
from paddock.envs.errors import require
from paddock.envs.ranges import Range


@dataclass(kw_only=True, eq=False)
class DQN(QLearning):
    """The algorithm: its settings (conf/algo/dqn.yaml explains each), its parts, and its state."""

    group = "dqn"

    quantiles: Annotated[int | None, POSITIVE_OR_NULL]
    atoms: Annotated[int | None, Range("must be at least 2, or null; 51 suits most", low=2)]
    v_min: float
    v_max: float
    noisy_sigma: Annotated[float | None, POSITIVE_OR_NULL]

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
        settings: dict[str, Any] = {"adam_epsilon": self.adam_epsilon, "threads": self.threads}
        given = {name: getattr(self, name) for name in ("quantiles", "atoms", "noisy_sigma")}
        needs = [f"algo.{name}={value}" for name, value in given.items() if value] + needs_of_parts(self)
        if is_dense(architecture, self.backend, self.device, self.precision, compiled=False, needs=needs):
            return DenseQLearner(architecture, self.objective, seed, **settings)
        for name in ("quantiles", "atoms"):
            if count := given[name]:
                check_pairs(self, name, count, count)
        # Torch takes a second to import, and dense networks never need it.
        from paddock.algos.learning.offpolicy.learners.torch_q_learner import TorchQLearner

        settings |= {"quantiles": self.quantiles, "noisy_sigma": self.noisy_sigma, "precision": self.precision}
        return learn_in_torch(self, partial(TorchQLearner, architecture, self.objective, seed, **settings))

    @property
    def _shared(self) -> bool:
        return self.dueling

    @property
    def _support(self) -> Support | None:
        if not self.atoms:
            return None
        both = f"algo.atoms={self.atoms} and algo.quantiles={self.quantiles} are two ways to learn of returns"
        require(not self.quantiles, f"{both}; set one to null")
        low, high = float(self.v_min), float(self.v_max)
        require(low < high, f"algo.v_min={low:g} must be below algo.v_max={high:g}, the most that can be returned")
        return Support(self.atoms, low, high)
