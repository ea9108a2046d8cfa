"""Learner of SAC, TD3 and DDPG on dense networks, in C."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream
from paddock.algos.common.sample_blocks import NormalBlocks
from paddock.algos.learning.offpolicy.learners.learner import Metrics, OffPolicyLearner, check_metrics, prepare_rows
from paddock.algos.learning.replay.batch import Batch, Floats
from paddock.algos.networks.actor import as_features
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense.actor_critic import (
    REPORTED,
    ActorCriticObjective,
    ActorCriticShape,
    CompiledActorCritic,
    SoftPolicy,
    Transitions,
)
from paddock.algos.networks.dense.init import init_uniform


class DenseActorCritic(OffPolicyLearner):
    """Dense actor and critics. Results do not depend on the processor, the number of threads, or U."""

    def __init__(
        self,
        architecture: Architecture,
        seed: int,
        *,
        critic_hidden: tuple[int, ...],
        objective: ActorCriticObjective,
        adam_epsilon: float,
        threads: int,
    ) -> None:
        """Initialize the parameters; `seed` also keys the noise of updates.

        The actor has A outputs, 2A for a soft policy, or one per discrete action. Critics have the same activation.
        """
        *hidden, outputs = architecture.policy_layout.sizes
        chooses = bool(architecture.head.columns)
        actions = 0 if chooses else outputs // 2 if objective.soft else outputs
        self._shape = ActorCriticShape(
            (*hidden, outputs),
            (hidden[0] + actions, *critic_hidden, outputs if chooses else 1),
            architecture.activation,
            masked=architecture.inputs.legal_width > 0,
        )
        self.architecture, self._objective, self._seed = architecture, objective, seed
        self._backend = CompiledActorCritic(
            self._shape, objective, self._first_state(), adam_epsilon=adam_epsilon, threads=threads
        )
        self._noise = NormalBlocks(seed, Stream.UPDATE)
        self.updates = 0

    def _first_state(self) -> dict[str, Any]:
        shape, generator = self._shape, np.random.default_rng(self._seed % 2**63)
        actor = init_uniform(shape.actor, generator)
        critics = np.concatenate([init_uniform(shape.critic, generator) for _ in range(self._objective.num_critics)])
        policy = self._objective.policy
        log_alpha = math.log(policy.alpha) if isinstance(policy, SoftPolicy) and policy.learned else 0.0
        state: dict[str, Any] = {}
        for name, drawn in (("actor", actor), ("critics", critics), ("log_alpha", np.array([log_alpha], np.float32))):
            state |= {f"{name}_parameters": drawn, f"{name}_steps": 0}
            state |= {f"{name}_{part}": np.zeros_like(drawn) for part in ("momentum", "variance")}
        target = np.zeros(0, np.float32) if self._objective.soft else actor.copy()
        return {**state, "target_actor": target, "target_critics": critics.copy(), "told": np.zeros(2), "updates": 0}

    def update(self, batch: Batch, rate: float) -> tuple[Metrics, Floats]:
        """See `OffPolicyLearner.update`."""
        shape, (U, B) = self._shape, batch.reward.shape
        first, self.updates = self.updates, self.updates + U
        given = Transitions(
            self._features(batch.obs),
            batch.action.astype(np.float32, copy=False).reshape(U, B, shape.actions or 1),
            batch.reward,
            self._features(batch.next_obs),
            batch.discount,
            batch.weight,
            self._noise.take((self._objective.draws, B, shape.actions), first, U),
        )
        report, apart = self._backend.update(given, rate)
        names = REPORTED if self._objective.soft else REPORTED[:3]
        metrics = dict(zip(names, report.T, strict=False))
        check_metrics(metrics, first, U)
        return metrics, apart

    def _features(self, obs: NDArray[Any]) -> Floats:
        """Map observations of U updates [U, B, ...] to network inputs [U, B, width]."""
        rows, greatest = prepare_rows(self.architecture, obs), self.architecture.inputs.greatest
        return as_features(rows, greatest).reshape(*obs.shape[:2], -1)

    def weights(self, version: int, *, explore: bool = False) -> Weights:
        """See `OffPolicyLearner.weights`."""
        return Weights(version, self._backend.actor())

    def state_dict(self) -> dict[str, Any]:
        """See `OffPolicyLearner.state_dict`."""
        return self._backend.read()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `OffPolicyLearner.load_state_dict`."""
        self.updates = int(state["updates"])
        self._backend.write({name: state[name] for name in self._backend.read()})
