"""A policy's learner, with the normalization of what the policy sees and is paid."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.algos.learning.episode_metrics import tell_of
from paddock.algos.learning.episodes import Moments
from paddock.algos.learning.learner import Learner
from paddock.algos.learning.onpolicy.normalize import Normalization
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.initial import InitialPolicy


@dataclass(eq=False)
class NormalizedLearner:
    """Learns one policy of those that share an environment; nothing of that moves another's parameters.

    Attributes:
        number: of the policy.
        name: of the policy; "" of one that acts for all.
        team: the learner, or several as one; see `learner.SingleLearner`.
        clip: deviations that normalized observations are clipped to.
    """

    number: int
    name: str
    team: Any
    normalization: Normalization
    clip: float

    @property
    def learner(self) -> Learner:
        """What learns it, or the first of several as one."""
        learner: Learner = self.team.first
        return learner

    def weights(self, version: int) -> Weights:
        """Return the policy for actors."""
        normal = self.normalization
        return Weights(version, self.learner.parameters(), normal.mean, normal.std, self.clip)

    def tell(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return metrics under the policy's name, where it has one: `group/NAME/metric`."""
        return tell_of(self.name, metrics)

    def initial(self, version: int) -> InitialPolicy:
        """Return the policy as another run may begin with it."""
        policy = ActorPolicy(self.learner.architecture, self.weights(version))
        return InitialPolicy.of(policy, self.normalization.seen.count)

    def start_from(self, initial: InitialPolicy) -> None:
        """Take over all of a policy but its values."""
        clip = self.clip if self.normalization.mean.size else None
        parameters = initial.into(self.learner.architecture, self.learner.parameters(), clip)
        self.learner.load_state_dict({**self.learner.state_dict(), "parameters": parameters})
        if initial.seen is not None:
            self.normalization.seen = Moments(*initial.seen)

    def begin_anew(self, fresh: "NormalizedLearner") -> None:
        """Be one that has learned nothing yet: its parameters, its optimizer and its normalization."""
        self.learner.load_state_dict(fresh.learner.state_dict())
        self.normalization.load_state_dict(fresh.normalization.state_dict())
