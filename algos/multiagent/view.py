"""Latest observations of each policy of a multi-agent environment."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.rollouts.environments import ToEnv
from paddock.algos.learning.rollouts.resume_point import State
from paddock.algos.multiagent.policies import PolicyGroup


class JointView:
    """View of all policies' observations, an implementation of `learning.rollouts.environments.View`."""

    obs: list[NDArray[Any]]  # observations [n, ...] of each policy
    acts: NDArray[np.bool_] | None  # [N], rows that await an action; None: always all

    def __init__(self, policies: PolicyGroup, num_envs: int, index: int) -> None:
        """Start without observations, for an actor with this index and number of environments."""
        self._policies, self._num_envs = policies, num_envs
        self._env_index = index * num_envs + np.arange(num_envs)  # among the environments of all actors

    def policy_ids(self, episode: NDArray[np.int64]) -> NDArray[np.intp] | None:
        """Return the policy that plays each row in these episodes [W]; see `PolicyGroup.policy_ids`."""
        return self._policies.policy_ids(self._env_index, episode)

    def update_policy_ids(self, policy_ids: NDArray[np.intp], episode: NDArray[np.int64], at: NDArray[np.intp]) -> None:
        """Update `policy_ids` in place for the environments `at` that started an episode; `episode` [W] numbers them."""
        seats, new = self._policies.seats, self._policies.policy_ids(self._env_index[at], episode[at])
        policy_ids.reshape(-1, seats)[at] = np.reshape(new, (-1, seats))  # type: ignore[arg-type]

    def take(self, obs: NDArray[Any], infos: Mapping[str, Any], episode: NDArray[np.int64]) -> None:
        """See `View.take`."""
        policies, policy_ids = self._policies, self.policy_ids(episode)
        self.acts = infos.get("acts")
        self.obs = [policies.select(k, obs) for k in range(len(policies.specs))]
        if self.acts is not None:
            self.obs = [own.copy() for own in self.obs]
            for k, own in enumerate(self.obs):
                acts, owned = self.acts[policies.rows(k, self._num_envs)], policies.owned(k, policy_ids)
                policies.blank_inactive(k, own, acts if owned is None else acts & owned)

    def state_dict(self) -> dict[str, Any]:
        """See `View.state_dict`."""
        return {"obs": self._policies.by_name(self.obs), **({} if self.acts is None else {"acts": self.acts})}

    def load_state_dict(self, state: State) -> None:
        """See `View.load_state_dict`."""
        self.obs = [np.array(obs) for obs in self._policies.in_order(state["obs"])]
        self.acts = np.array(state["acts"]) if "acts" in state else None

    def unpack(self, episode: NDArray[np.int64]) -> ToEnv:
        """See `View.unpack`."""
        policy_ids = self.policy_ids(episode)
        return lambda actions, rows: self._policies.unpack(actions, None if policy_ids is None else policy_ids[rows])
