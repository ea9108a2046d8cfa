"""What off-policy learning asks of an environment whose agents share a policy or wait for their turns."""

from paddock.algos.learning.rollouts.config import playable
from paddock.algos.multiagent.parts import PolicyPart
from paddock.algos.networks.inputs import seated
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec
from paddock.envs.vector.remote import is_shared


def prepare_env(env: EnvSpec, vec: Vec, seat_feature: bool) -> EnvSpec:
    """Return the recipe that rollouts are played in; see `playable` and `seated`."""
    return playable(seated(env, seat_feature), vec)


def count_rows(part: PolicyPart, num_envs: int) -> int:
    """Return the rows of a rollout that a policy acts for."""
    return num_envs * len(part.seats)


def has_turns(env: EnvSpec, vec: Vec) -> bool:
    """Return whether rows of a rollout may wait or end before their environment does, as agents do."""
    return env.seats > 1 or is_shared(vec)
