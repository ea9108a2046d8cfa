"""Scripted player of uniformly random actions; scripts/board_players.py has players that search ahead."""

import copy
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.multiagent.joint_policy import JointPolicy
from paddock.algos.networks.heads import make_head
from paddock.algos.networks.inputs import Inputs, masked_paths, spaces_of
from paddock.envs.multiagent.roles import Role
from paddock.envs.spec import EnvSpec

Acted = tuple[NDArray[Any], dict[str, NDArray[Any]], Any]


class Scripted:
    """Player that draws its actions with a generator; without one it takes the first of equal actions."""

    _generator: np.random.Generator | None = None

    def drawing(self, generator: np.random.Generator) -> Self:
        """Return this player with a generator."""
        sampling = copy.copy(self)
        sampling._generator = generator
        return sampling


@final
class Random(Scripted):
    """Player of uniformly random legal actions; unbounded numbers are standard normal."""

    def __init__(self, env: EnvSpec, role: Role | None = None) -> None:
        observations, actions = spaces_of(env) if role is None else (role.observations, role.action_space)
        self._inputs = Inputs(observations, make_head(actions, masked=masked_paths(observations)))

    def act(self, obs: NDArray[Any], state: Any = None) -> Acted:
        """Map rows [B, ...] to actions [B, ...]."""
        head, generator, legal = self._inputs.head, self._generator, self._inputs.legal(obs)
        out = np.zeros((len(obs), head.width), np.float32)
        out = out if legal is None else head.masked(out, legal)
        noise = None if generator is None else head.sample_noise(generator, (len(obs),))
        action = head.sample(out, np.zeros(head.num_log_std, np.float32), noise)
        start = 0
        for leaf in head.leaves:
            if not leaf.sizes and generator is not None:
                low, high = np.array(leaf.low), np.array(leaf.high)
                bounded = np.flatnonzero(np.isfinite(low) & np.isfinite(high))
                action[:, start + bounded] = generator.uniform(low[bounded], high[bounded], (len(obs), len(bounded)))
            start += leaf.components
        return head.to_env(action), {}, None


def random_player(env: EnvSpec) -> Random | JointPolicy:
    """Return a random player for all roles of an environment."""
    if len(env.roles) == 1:
        return Random(env)
    role_of = [next(k for k, role in enumerate(env.roles) if seat in role.seats) for seat in range(env.seats)]
    return JointPolicy(env, [Random(env, role) for role in env.roles], role_of)
