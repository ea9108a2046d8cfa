"""A policy that learns off policy: its learner, its counters, and its replay."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paddock.algos.common.timing import Clock
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.update_schedule import UpdateSchedule
from paddock.algos.learning.replay.row_store import RowStore
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.initial import InitialPolicy
from paddock.envs.errors import require

ACTING = ("parameters", "targets", "actor_parameters", "target_actor")  # vectors of learners that begin with what acts


@dataclass(eq=False)
class LearnedPolicy:
    """One policy of a run."""

    name: str  # "" of the only one
    seed: int  # of its first parameters, and of what its updates draw
    rows: int  # environments that it acts in, of all actors
    team: Any  # its learner, or several as one; see `SingleLearner`
    schedule: UpdateSchedule
    learns_values: bool  # outputs of the network that acts are action values
    replay: RowStore | None = None
    clock: Clock = field(init=False, default_factory=Clock)  # one for all policies of a run

    @property
    def learner(self) -> OffPolicyLearner:
        """Return what learns it, or the first of several as one."""
        learner: OffPolicyLearner = self.team.first
        return learner

    @property
    def buffer(self) -> RowStore:
        """Return the replay of an algorithm that has one."""
        assert self.replay is not None
        return self.replay

    def weights(self) -> Weights:
        """Return the policy as it is now."""
        return self.learner.weights(self.schedule.rollouts)

    def acting(self, *, counted: bool) -> Weights:
        """Return the weights as actors play them: zeros in the warm-up, where noise alone acts.

        Args:
            counted: whether they say how many actions they were learned from, which rollouts alone do not tell.
        """
        weights = self.learner.weights(self.schedule.rollouts, explore=True)
        if self.schedule.step < self.schedule.learning_starts:
            weights = replace(weights, parameters=np.zeros_like(weights.parameters))
        return replace(weights, steps=self.schedule.step) if counted else weights

    def initial(self) -> InitialPolicy:
        """Return the policy as another run may begin with it."""
        return InitialPolicy.of(ActorPolicy(self.learner.architecture, self.weights()), values=self.learns_values)

    def start_from(self, initial: InitialPolicy) -> None:
        """Take over the network that acts, and its target; critics stay as they were drawn."""
        drawn, state = self.learner.weights(0).parameters, self.learner.state_dict()
        parameters = initial.apply_to(self.learner.architecture, drawn, values=self.learns_values)
        for name in ACTING:
            vector = state.get(name, drawn[:0])  # some have none, or an empty one
            if vector.size:
                several = "this run learns several numbers for each action, which no policy has"
                several += "; set algo.quantiles=null and algo.atoms=null"
                require(np.array_equal(vector[: drawn.size], drawn), several)
                state[name] = np.concatenate([parameters, vector[drawn.size :]])
        self.learner.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Return learner, counters and replay."""
        state = {"learner": self.learner.state_dict(), "schedule": self.schedule.state_dict()}
        if self.replay is not None:
            replay = state["replay"] = self.replay.state_dict()
            if self.name:
                replay["attachments"] = [f"{self.name}/{name}" for name in replay["attachments"]]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.schedule.load_state_dict(state["schedule"])
        self.learner.load_state_dict(state["learner"])
        if self.replay is not None:
            self.replay.load_state_dict(state["replay"])
