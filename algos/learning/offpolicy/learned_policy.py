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

ACTING = ("parameters", "targets", "actor_parameters", "target_actor")  # learner vectors starting with the acting ones


@dataclass(eq=False)
class LearnedPolicy:
    """One policy of a run."""

    name: str  # "" if it is the only one
    seed: int  # of its initial parameters and its updates
    rows: int  # rows of all actors that it acts in
    learner: OffPolicyLearner
    schedule: UpdateSchedule
    learns_values: bool  # the acting network outputs action values
    replay: RowStore | None = None
    clock: Clock = field(init=False, default_factory=Clock)  # shared by all policies of a run

    @property
    def buffer(self) -> RowStore:
        """Return the replay; the algorithm must have one."""
        assert self.replay is not None
        return self.replay

    def weights(self) -> Weights:
        """Return the current weights."""
        return self.learner.weights(self.schedule.rollouts)

    def acting(self, *, counted: bool) -> Weights:
        """Return the acting weights, zeros before `learning_starts`, with `steps` if they are `counted`."""
        weights = self.learner.weights(self.schedule.rollouts, explore=True)
        if self.schedule.step < self.schedule.learning_starts:
            weights = replace(weights, parameters=np.zeros_like(weights.parameters))
        return replace(weights, steps=self.schedule.step) if counted else weights

    def initial(self) -> InitialPolicy:
        """Return the policy for warm-starting another run."""
        return InitialPolicy.of(ActorPolicy(self.learner.architecture, self.weights()), values=self.learns_values)

    def start_from(self, initial: InitialPolicy) -> None:
        """Initialize the acting network and its target from a policy; critics keep their initialization."""
        drawn, state = self.learner.weights(0).parameters, self.learner.state_dict()
        parameters = initial.apply_to(self.learner.architecture, drawn, values=self.learns_values)
        for name in ACTING:
            vector = state.get(name, drawn[:0])  # some have none, or an empty one
            if vector.size:
                several = "this run learns a return distribution, which policies do not contain"
                several += "; set algo.quantiles=null and algo.atoms=null"
                require(np.array_equal(vector[: drawn.size], drawn), several)
                state[name] = np.concatenate([parameters, vector[drawn.size :]])
        self.learner.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of learner, counters and replay."""
        state = {"learner": self.learner.state_dict(), "schedule": self.schedule.state_dict()}
        if self.replay is not None:
            replay = state["replay"] = self.replay.state_dict()
            if self.name:
                replay["attachments"] = [f"{self.name}/{name}" for name in replay["attachments"]]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""
        self.schedule.load_state_dict(state["schedule"])
        self.learner.load_state_dict(state["learner"])
        if self.replay is not None:
            self.replay.load_state_dict(state["replay"])
