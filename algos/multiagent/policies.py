"""The policies that act in one environment, and the rows that each of them acts for.

A single policy acts for all rows. Each of several sees only its own rows, in its role's layout; they are fixed for the
whole run, and it acts on all of them, so last bits do not depend on which agents are alive. If several may play the
same seat, a `PolicyMapping` chooses one for each episode; for the others that row is dead until the reset.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.inputs import blank_row
from paddock.envs.multiagent.roles import SeatRows, narrow, widen
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec

Value = TypeVar("Value")
Rows = slice | NDArray[np.intp]
Flags = NDArray[np.bool_]
# Maps environment indices [W] and their episodes [W] to the policy that plays each seat, [W, seats]. Policies are
# numbered in the order of specs; a spec of V versions takes V numbers.
PolicyMapping = Callable[[NDArray[np.intp], NDArray[np.int64]], NDArray[np.intp]]


@dataclass(frozen=True)
class PolicySpec:
    """A policy and the seats it may play."""

    name: str  # "" for one that acts for all agents
    seats: tuple[int, ...]  # sorted, in each environment, all of one role
    architecture: Architecture
    layouts: tuple[Layout, Layout] | None = None  # of observations and actions in a row; None: a single role
    versions: int = 0  # number of frozen versions that play without learning; 0: the policy that learns

    @property
    def rows_per_env(self) -> int:
        """Number of rows per environment that the policy acts for."""
        return len(self.seats)


@dataclass(frozen=True)
class PolicyGroup:
    """All policies of an environment."""

    specs: tuple[PolicySpec, ...]
    seats: int  # rows per environment
    row_dtypes: tuple[np.dtype[Any], np.dtype[Any]] | None = None  # of rows of several roles, observations and actions
    mapping: PolicyMapping | None = None  # the policy that plays each seat; None: no two policies share a seat

    @classmethod
    def shared(cls, architecture: Architecture, seats: int) -> "PolicyGroup":
        """Return the group of one policy that is shared by all agents."""
        return cls((PolicySpec("", tuple(range(seats)), architecture),), seats)

    @classmethod
    def of(cls, specs: Sequence[PolicySpec], env: EnvSpec, mapping: PolicyMapping | None = None) -> "PolicyGroup":
        """Return the policies of an environment."""
        return cls(tuple(specs), env.seats, joint_row_dtypes(env), mapping)

    @property
    def rows_per_env(self) -> int:
        """Number of rows per environment, one for each seat."""
        return self.seats

    @property
    def single(self) -> bool:
        """True if one policy acts for all agents."""
        return len(self.specs) == 1

    @property
    def names(self) -> list[str]:
        """Names of the policies; [""] for one that acts for all."""
        return [spec.name for spec in self.specs]

    @property
    def layouts(self) -> list[Layout]:
        """Layouts of each policy's observations."""
        return [spec.architecture.inputs.layout for spec in self.specs]

    @property
    def state_width(self) -> int:
        """Size S of a row's recurrent state: the largest of all policies."""
        return max(spec.architecture.state_width for spec in self.specs)

    @property
    def components(self) -> int:
        """K of the packed actions [T, N, K]: components of the only policy, or bytes of the largest action."""
        heads = [spec.architecture.head for spec in self.specs]
        if self.single:
            return heads[0].components
        return max(head.components * np.dtype(head.compact_dtype).itemsize for head in heads)

    @property
    def compact_dtype(self) -> np.dtype[Any]:
        """Dtype of packed actions."""
        return np.dtype(self.specs[0].architecture.head.compact_dtype if self.single else np.uint8)

    def rows(self, k: int, num_envs: int) -> Rows:
        """Return the indices of a policy's rows among those of `num_envs` environments."""
        if self.single:
            return slice(0, num_envs * self.seats)
        return _rows(self.specs[k].seats, self.seats, num_envs)

    def select(self, k: int, batch: NDArray[Any]) -> NDArray[Any]:
        """Return a policy's rows of a batch of whole environments, in the layout of its network."""
        if self.single:
            return batch
        return self.narrow(k, batch[self.rows(k, len(batch) // self.seats)])

    def narrow(self, k: int, rows: NDArray[Any]) -> NDArray[Any]:
        """Convert a policy's rows of observations to the layout of its network."""
        layouts = self.specs[k].layouts
        return rows if layouts is None else narrow(rows, layouts[0])

    def blank_inactive(self, k: int, obs: NDArray[Any], acts: Flags) -> None:
        """Blank the observations [B, ...] of rows that await no action, in place: no result may depend on them."""
        if not acts.all():
            obs[~acts] = blank_row(self.specs[k].architecture.inputs.layout)

    def policy_ids(self, env_index: NDArray[np.intp], episode: NDArray[np.int64]) -> NDArray[np.intp] | None:
        """Return the policy that plays each row of environments [W] in their episodes [W]; None: no mapping."""
        return None if self.mapping is None else self.mapping(env_index, episode).ravel()

    def owned(self, k: int, policy_ids: NDArray[np.intp] | None) -> Flags | None:
        """Return a mask of the rows that a policy plays, among its rows; None: all."""
        if policy_ids is None:
            return None
        number = self.version_index(k, policy_ids)
        return (number >= 0) & (number < max(self.specs[k].versions, 1))

    def version_index(self, k: int, policy_ids: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the version that plays each of a policy's rows; out of range where another policy plays."""
        before = sum(max(spec.versions, 1) for spec in self.specs[:k])
        return np.asarray(policy_ids[self.rows(k, len(policy_ids) // self.seats)] - before)

    def join(self, actions: Sequence[NDArray[Any]], policy_ids: NDArray[np.intp] | None = None) -> NDArray[Any]:
        """Join all policies' actions, as their heads give them to environments, to a batch of whole environments."""
        if self.single:
            return actions[0]
        num_envs = len(actions[0]) // len(self.specs[0].seats)
        batch: NDArray[Any] | None = None
        for k, own in enumerate(actions):
            given, rows, owned = self._widen(k, own), self.rows(k, num_envs), self.owned(k, policy_ids)
            if batch is None:
                batch = np.zeros((num_envs * self.seats, *given.shape[1:]), given.dtype)
            if owned is None:
                batch[rows] = given
            else:
                batch[rows[owned]] = given[owned]  # type: ignore[index]
        assert batch is not None
        return batch

    def pack(self, actions: Sequence[NDArray[Any]], owned: Sequence[Flags | None]) -> NDArray[Any]:
        """Pack all policies' actions [T, B, K], of which they played `owned` [T, B], as a `ResumePoint` stores them."""
        if self.single:
            return actions[0].astype(self.compact_dtype)
        T, num_envs = len(actions[0]), actions[0].shape[1] // len(self.specs[0].seats)
        packed = np.zeros((T, num_envs * self.seats, self.components), np.uint8)
        for k, own in enumerate(actions):
            compact = np.ascontiguousarray(own.astype(self.specs[k].architecture.head.compact_dtype))
            octets, rows, played = compact.view(np.uint8).reshape(*own.shape[:2], -1), self.rows(k, num_envs), owned[k]
            if played is not None:
                octets = np.where(played[..., None], octets, packed[:, rows, : octets.shape[2]])
            packed[:, rows, : octets.shape[2]] = octets
        return packed

    def unpack(self, packed: NDArray[Any], policy_ids: NDArray[np.intp] | None = None) -> NDArray[Any]:
        """Unpack actions [R, components] of whole environments into the form that environments take."""
        num_envs, actions = len(packed) // self.seats, []
        for k, spec in enumerate(self.specs):
            head, own, owned = spec.architecture.head, packed, self.owned(k, policy_ids)
            if not self.single:
                compact = np.dtype(head.compact_dtype)
                own = np.ascontiguousarray(packed[self.rows(k, num_envs), : head.components * compact.itemsize])
                own = own.view(compact).reshape(-1, head.components)
                own = own if owned is None else np.where(owned[:, None], own, 0)  # the rest belongs to another head
            actions.append(head.to_env(own.astype(head.inner_dtype)))
        return self.join(actions, policy_ids)

    def by_name(self, values: Sequence[Value]) -> Any:
        """Return the value of the only policy, or a mapping of policy names to values."""
        return values[0] if self.single else {spec.name: value for spec, value in zip(self.specs, values, strict=True)}

    def in_order(self, given: Any) -> list[Any]:
        """Invert `by_name`."""
        return [given] if self.single else [given[spec.name] for spec in self.specs]

    def _widen(self, k: int, actions: NDArray[Any]) -> NDArray[Any]:
        layouts = self.specs[k].layouts
        if layouts is None or self.row_dtypes is None:
            return actions
        return widen_actions(actions, layouts[1], self.row_dtypes[1])


def widen_actions(actions: NDArray[Any], layout: Layout, row: np.dtype[Any]) -> NDArray[Any]:
    """Convert actions of a role's policy to rows of the joint layout of all roles."""
    if not layout.plain and actions.dtype.kind != "V":
        rows = layout.zeros(len(actions))
        layout.pack(actions, rows)
        actions = rows
    return widen(actions, layout, row)


def joint_row_dtypes(env: EnvSpec) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """Return the dtypes of rows of observations and of actions that hold any role; None: there is one role."""
    if env.seats == 1 or len(env.roles) == 1:
        return None
    seats = [role.seats for role in env.roles]
    seen, done = (
        SeatRows.of([layout for layout in layouts if layout is not None], seats).row
        for layouts in zip(*[(role.observations, role.actions) for role in env.roles], strict=True)
    )
    return seen, done


@functools.lru_cache(maxsize=256)
def _rows(own: tuple[int, ...], seats: int, num_envs: int) -> NDArray[np.intp]:
    return (np.arange(num_envs)[:, None] * seats + np.array(own, np.intp)).ravel()
