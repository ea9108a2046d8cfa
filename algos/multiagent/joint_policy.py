"""Joint policy of several policies that play the seats of one environment."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.policy import Policy, can_draw, drawn_by
from paddock.algos.multiagent.policies import PolicyGroup, widen_actions
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.inputs import blank_row
from paddock.envs.errors import ConfigError, require
from paddock.envs.multiagent.roles import SeatRows, narrow
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec


@final
class JointPolicy:
    """Policy of all seats, each played by one of several member policies with its own memory.

    Observations and actions are rows of whole environments: row = environment * seats + seat. If there are several
    roles, a member sees and returns rows in the layout of the role that it plays.
    """

    def __init__(
        self, env: EnvSpec, members: Sequence[Policy], seats: Sequence[int], names: Sequence[str] = ()
    ) -> None:
        """Assign policies to seats: `seats` [A] are indices of members, of which each must play a single role."""
        valid = len(seats) == env.seats and all(0 <= member < len(members) for member in seats)
        what = f"seats={list(seats)} must be indices below {len(members)}, one for each of {env.seats} seats"
        require(valid, f"{what} of env.id={env.id}")
        self._seats = np.array(seats, np.intp)
        self._named = dict(zip(names, members, strict=True)) if names else {}
        self._agents = {seat.agent: members[k] for seat, k in zip(env.made.seats, seats, strict=True)}
        self._members = [_seat(env, member, np.flatnonzero(self._seats == k)) for k, member in enumerate(members)]

    def at(self, seat: int) -> Policy:
        """Return the policy of a seat, which acts on joint rows."""
        return self._members[self._seats[seat]].policy

    def plays(self, seat: int) -> Policy:
        """Return the policy of a seat, which acts on the rows of its role."""
        return list(self._agents.values())[seat]

    def find(self, word: str | None) -> Policy:
        """Return the policy of a policy or agent name, which acts on the rows of its role; raise ConfigError."""
        agents = ", ".join(map(str, self._agents))
        known = f"policies: {', '.join(self._named)}; agents: {agents}" if self._named else f"agents: {agents}"
        require(word is not None, f"the run learned several policies; choose one with of= ({known})")
        found = self._named.get(str(word), self._agents.get(str(word)))
        if found is None:
            raise ConfigError(f"of={word} is neither a policy nor an agent ({known})")
        return found

    @property
    def populations(self) -> Mapping[str, Policy]:
        """Policies of a league, any of which may play any seat, by name; empty if this is no league."""
        return self._named if len(self._named) > len(set(self._seats.tolist())) else {}

    @property
    def has_distribution(self) -> bool:
        """True if any member's actions can be sampled."""
        return any(can_draw(member.policy) for member in self._members)

    def drawing(self, generator: np.random.Generator) -> "JointPolicy":
        """Return the same policies, with actions sampled from this generator where possible."""
        sampling = object.__new__(JointPolicy)
        sampling._seats, sampling._named, sampling._agents = self._seats, self._named, self._agents
        sampling._members = [_Member(drawn_by(each.policy, generator), each.memory) for each in self._members]
        return sampling

    def act(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[Any], dict[str, NDArray[Any]], Any]:
        """Map rows [W * A, ...] of environments and states [W * A, S] to actions; state=None starts new episodes."""
        member_of = self._seats[np.arange(len(obs)) % len(self._seats)]
        actions: NDArray[Any] | None = None
        after = np.zeros((len(obs), max(member.memory for member in self._members)), np.float32)
        for k, member in enumerate(self._members):
            rows = np.flatnonzero(member_of == k)
            if not len(rows):
                continue
            own = None if state is None or not member.memory else state[rows, : member.memory]
            acted, _, kept = member.policy.act(obs[rows], own)
            if actions is None:
                actions = np.zeros((len(obs), *acted.shape[1:]), acted.dtype)
            actions[rows] = acted
            if member.memory:
                after[rows, : member.memory] = kept
        assert actions is not None
        return actions, {}, after


def make_joint_policy(policies: PolicyGroup, env: EnvSpec, weights: Sequence[Weights]) -> Policy:
    """Build the policy that acts for all agents; of a league, the first policy plays every seat."""
    each = [ActorPolicy(spec.architecture, one) for spec, one in zip(policies.specs, weights, strict=True)]
    if policies.single:
        return each[0]
    seats = [next(k for k, spec in enumerate(policies.specs) if seat in spec.seats) for seat in range(env.seats)]
    return JointPolicy(env, each, seats, policies.names)


class _Member(NamedTuple):
    policy: Policy
    memory: int  # size of the recurrent state


@final
class RolePolicy:
    """Policy of one of several roles that acts on rows of the joint layout."""

    def __init__(self, policy: Policy, observations: Layout, actions: Layout, rows: SeatRows) -> None:
        self._policy, self._observations, self._actions, self._rows = policy, observations, actions, rows

    def act(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[Any], dict[str, NDArray[Any]], Any]:
        """Map joint rows [B] to actions as joint rows [B]."""
        acted, extras, state = self._policy.act(narrow(obs, self._observations), state)
        return widen_actions(acted, self._actions, self._rows.row), extras, state

    @property
    def has_distribution(self) -> bool:
        """True if actions can be sampled."""
        return can_draw(self._policy)

    def drawing(self, generator: np.random.Generator) -> "RolePolicy":
        """Return the same policy, with actions sampled from this generator if possible."""
        return RolePolicy(drawn_by(self._policy, generator), self._observations, self._actions, self._rows)


def _seat(env: EnvSpec, policy: Policy, seats: NDArray[np.intp]) -> _Member:
    roles = env.roles
    played = [role for role in roles if set(role.seats) & set(seats.tolist())] or roles[:1]
    names = " and ".join(role.name for role in played)
    require(len(played) == 1, f"env.id={env.id}: one policy cannot play {names}, which have different spaces")
    _, _, state = policy.act(blank_row(played[0].observations), None)
    memory = 0 if state is None else int(np.size(state))
    if len(roles) > 1:
        wide = SeatRows.of([role.actions for role in roles], [role.seats for role in roles])
        policy = RolePolicy(policy, played[0].observations, played[0].actions, wide)
    return _Member(policy, memory)
