"""A policy's learner off policy, with its pace: how much the policy played and learned."""

from dataclasses import dataclass, replace

import numpy as np

from paddock.algos.learning.offpolicy.learners.learner import ExploresByParameters, OffPolicyLearner
from paddock.algos.learning.offpolicy.pace import Pace
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.initial import InitialPolicy
from paddock.envs.errors import require

ACTING = ("parameters", "targets", "actor_parameters", "target_actor")  # vectors of learners that begin with what acts


@dataclass(eq=False)
class PacedLearner:
    """Learns one policy of those that share an environment; nothing of that moves another's parameters.

    Attributes:
        name: of the policy; "" of one that acts for all.
        seed: of its first parameters, and of what its updates draw.
        pace: counts the actions of its own agents alone.
        values: outputs of what acts are action values.
    """

    name: str
    seed: int
    learner: OffPolicyLearner
    pace: Pace
    values: bool

    def weights(self) -> Weights:
        """Return the policy as it is now."""
        return self.learner.weights(self.pace.rollouts)

    def acting(self, *, counted: bool) -> Weights:
        """Return the weights as actors play them: zeros in the warm-up, where noise alone acts.

        Args:
            counted: they say how many actions they had been learned from: agents wait and die, so that rollouts differ
                in them.
        """
        learner, pace = self.learner, self.pace
        if isinstance(learner, ExploresByParameters):
            weights = learner.exploring(pace.rollouts)
        else:
            weights = learner.weights(pace.rollouts)
        if pace.step < pace.warmup:
            weights = replace(weights, parameters=np.zeros_like(weights.parameters))
        return replace(weights, steps=pace.step) if counted else weights

    def initial(self) -> InitialPolicy:
        """Return the policy as another run may begin with it."""
        return InitialPolicy.of(ActorPolicy(self.learner.architecture, self.weights()), values=self.values)

    def start_from(self, initial: InitialPolicy) -> None:
        """Take over what acts, and its target; critics stay as they were drawn."""
        drawn, state = self.learner.weights(0).parameters, self.learner.state_dict()
        parameters = initial.into(self.learner.architecture, drawn, values=self.values)
        for name in ACTING:
            vector = state.get(name, drawn[:0])  # some have none, or an empty one
            if vector.size:
                several = "this run learns several numbers for each action, which no policy has"
                several += "; set algo.quantiles=null and algo.atoms=null"
                require(np.array_equal(vector[: drawn.size], drawn), several)
                state[name] = np.concatenate([parameters, vector[drawn.size :]])
        self.learner.load_state_dict(state)
