"""PolicyGroup: the policies that act in one environment, and which rows of its worlds each acts for.

One policy is one part, whose rows are all rows as they are. Of several each sees its own rows alone, as its own role
has them. A part's rows stay the same for a whole run, and it acts on all of them, so that no shape and no last bit
depends on who lives. Where several policies are for the same seat, a `Cast` says which of them plays there in an episode:
to the others that row is dead until the world restarts.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.inputs import blank_row
from paddock.envs.errors import require
from paddock.envs.multiagent.roles import SeatRows, narrow, widen
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec

Value = TypeVar("Value")
Rows = slice | NDArray[np.intp]
Flags = NDArray[np.bool_]
# Of worlds [W] in their episodes [W], by these alone: who plays at each seat, [W, seats]. Players are numbered in the
# order of policies; a part of versions has one number for each.
Cast = Callable[[NDArray[np.intp], NDArray[np.int64]], NDArray[np.intp]]


@dataclass(frozen=True)
class PolicySpec:
    """A policy and the seats that it is for.

    Attributes:
        name: of the policy; "" of one that acts for all.
        seats: in each world, in order; of one role.
        layouts: how its observations and actions lie at the start of a row, where a world has several roles; None: rows
            are as its own.
        versions: how many frozen versions of the policy it plays, and learns from none; 0: the one that learns.
    """

    name: str
    seats: tuple[int, ...]
    architecture: Architecture
    layouts: tuple[Layout, Layout] | None = None
    versions: int = 0

    @property
    def rows_per_env(self) -> int:
        """Rows of an environment that it acts for."""
        return len(self.seats)


@dataclass(frozen=True)
class PolicyGroup:
    """All policies of an environment.

    Attributes:
        seats: rows of a world.
        wide: what rows of observations and of actions are made of, where a world has several roles.
        cast: where policies share seats; None: no two do.
    """

    specs: tuple[PolicySpec, ...]
    seats: int
    wide: tuple[np.dtype[Any], np.dtype[Any]] | None = None
    cast: Cast | None = None

    @classmethod
    def shared(cls, architecture: Architecture, seats: int) -> "PolicyGroup":
        """Return the one part of a policy that acts for all."""
        return cls((PolicySpec("", tuple(range(seats)), architecture),), seats)

    @classmethod
    def of(cls, each: Sequence[PolicySpec], env: EnvSpec, cast: Cast | None = None) -> "PolicyGroup":
        """Return the policies of an environment's worlds."""
        return cls(tuple(each), env.seats, wide_rows(env), cast)

    @property
    def rows_per_env(self) -> int:
        """Rows of an environment, one for each seat."""
        return self.seats

    @property
    def single(self) -> bool:
        """Whether one policy acts for all."""
        return len(self.specs) == 1

    @property
    def names(self) -> list[str]:
        """Of the policies; [""] of one that acts for all."""
        return [spec.name for spec in self.specs]

    @property
    def layouts(self) -> list[Layout]:
        """How the observations of each policy lie in rows."""
        return [spec.architecture.inputs.layout for spec in self.specs]

    @property
    def state_width(self) -> int:
        """S, numbers of a row's memory: of the policy that has the longest."""
        return max(spec.architecture.state_width for spec in self.specs)

    @property
    def components(self) -> int:
        """K of the actions [T, N, K] that lead to a point: numbers of the only policy, or bytes of the longest."""
        heads = [spec.architecture.head for spec in self.specs]
        if self.single:
            return heads[0].components
        return max(head.components * np.dtype(head.compact_dtype).itemsize for head in heads)

    @property
    def compact_dtype(self) -> np.dtype[Any]:
        """What they are."""
        return np.dtype(self.specs[0].architecture.head.compact_dtype if self.single else np.uint8)

    def rows(self, k: int, worlds: int) -> Rows:
        """Return where among the rows of so many worlds a policy's own are."""
        if self.single:
            return slice(0, worlds * self.seats)
        return _rows(self.specs[k].seats, self.seats, worlds)

    def own(self, k: int, batch: NDArray[Any]) -> NDArray[Any]:
        """Return a policy's rows of a batch of whole worlds, as its own network takes them."""
        if self.single:
            return batch
        return self.narrow(k, batch[self.rows(k, len(batch) // self.seats)])

    def narrow(self, k: int, rows: NDArray[Any]) -> NDArray[Any]:
        """Return a policy's rows of observations, picked already, as its own network takes them."""
        layouts = self.specs[k].layouts
        return rows if layouts is None else narrow(rows, layouts[0])

    def hide(self, k: int, obs: NDArray[Any], acts: Flags) -> None:
        """Blank the observations [B, ...] of those that await no action: nobody may depend on them."""
        if not acts.all():
            obs[~acts] = blank_row(self.specs[k].architecture.inputs.layout)

    def policy_ids(self, world: NDArray[np.intp], episode: NDArray[np.int64]) -> NDArray[np.intp] | None:
        """Return who plays each row of worlds [W] in their episodes [W]; None: each policy its own."""
        return None if self.cast is None else self.cast(world, episode).ravel()

    def owned(self, k: int, policy_ids: NDArray[np.intp] | None) -> Flags | None:
        """Return which of a policy's rows it plays; None: all."""
        if policy_ids is None:
            return None
        number = self.number(k, policy_ids)
        return (number >= 0) & (number < max(self.specs[k].versions, 1))

    def number(self, k: int, policy_ids: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return of each of a policy's rows which of its versions plays there; those that others play are outside."""
        before = sum(max(spec.versions, 1) for spec in self.specs[:k])
        return np.asarray(policy_ids[self.rows(k, len(policy_ids) // self.seats)] - before)

    def join(self, actions: Sequence[NDArray[Any]], policy_ids: NDArray[np.intp] | None = None) -> NDArray[Any]:
        """Return one batch of whole worlds of all policies' actions, each as its head gives them to environments."""
        if self.single:
            return actions[0]
        worlds = len(actions[0]) // len(self.specs[0].seats)
        batch: NDArray[Any] | None = None
        for k, own in enumerate(actions):
            given, rows, owned = self._widen(k, own), self.rows(k, worlds), self.owned(k, policy_ids)
            if batch is None:
                batch = np.zeros((worlds * self.seats, *given.shape[1:]), given.dtype)
            if owned is None:
                batch[rows] = given
            else:
                batch[rows[owned]] = given[owned]  # type: ignore[index]
        assert batch is not None
        return batch

    def pack(self, actions: Sequence[NDArray[Any]], owned: Sequence[Flags | None]) -> NDArray[Any]:
        """Return all policies' actions [T, B, K] as a `ResumePoint` keeps them, [T, N, components].

        Args:
            owned: of each policy, which of its rows it played, [T, B]; None: all.
        """
        if self.single:
            return actions[0].astype(self.compact_dtype)
        T, worlds = len(actions[0]), actions[0].shape[1] // len(self.specs[0].seats)
        packed = np.zeros((T, worlds * self.seats, self.components), np.uint8)
        for k, own in enumerate(actions):
            compact = np.ascontiguousarray(own.astype(self.specs[k].architecture.head.compact_dtype))
            octets, rows, played = compact.view(np.uint8).reshape(*own.shape[:2], -1), self.rows(k, worlds), owned[k]
            if played is not None:
                octets = np.where(played[..., None], octets, packed[:, rows, : octets.shape[2]])
            packed[:, rows, : octets.shape[2]] = octets
        return packed

    def unpack(self, packed: NDArray[Any], policy_ids: NDArray[np.intp] | None = None) -> NDArray[Any]:
        """Return packed actions [R, components] of whole worlds as environments take them."""
        worlds, actions = len(packed) // self.seats, []
        for k, spec in enumerate(self.specs):
            head, own, owned = spec.architecture.head, packed, self.owned(k, policy_ids)
            if not self.single:
                compact = np.dtype(head.compact_dtype)
                own = np.ascontiguousarray(packed[self.rows(k, worlds), : head.components * compact.itemsize])
                own = own.view(compact).reshape(-1, head.components)
                own = own if owned is None else np.where(owned[:, None], own, 0)  # not what another head meant
            actions.append(head.to_env(own.astype(head.inner_dtype)))
        return self.join(actions, policy_ids)

    def state_dict(self, normalized: bool = False) -> dict[str, Any]:
        """Return what of a run's state holds for these policies alone: `divisors`, if there are any.

        Args:
            normalized: observations are, those that are a Box of bytes instead of being divided.
        """
        divisors = self._divisors(normalized)
        return {} if divisors is None else {"divisors": divisors}

    def check(self, state: Mapping[str, Any], normalized: bool = False) -> None:
        """Compare a run's state with these policies.

        Raises:
            ConfigError: bytes of observations are divided otherwise than when the run learned from them.
        """
        then, now = state.get("divisors"), self._divisors(normalized)
        what = f"env: bytes of observations were divided by {then} when this run began, and are by {now} now"
        require(then == now, f"{what}, as other bounds are declared; choose another run.dir=")

    def _divisors(self, normalized: bool) -> Any:
        """By what bytes of observations are divided, as `by_name` gives it; None: by 255, as all were once."""
        networks = [spec.architecture for spec in self.specs]
        each = [[] if normalized and one.inputs.plain else one.divisors for one in networks]
        return self.by_name(each) if any(set(one) - {255} for one in each) else None

    def by_name(self, values: Sequence[Value]) -> Any:
        """Return the value of the only policy, or those of several by their policies' names."""
        return values[0] if self.single else {spec.name: value for spec, value in zip(self.specs, values, strict=True)}

    def in_order(self, given: Any) -> list[Any]:
        """Return the values that `by_name` was given."""
        return [given] if self.single else [given[spec.name] for spec in self.specs]

    def _widen(self, k: int, actions: NDArray[Any]) -> NDArray[Any]:
        layouts = self.specs[k].layouts
        if layouts is None or self.wide is None:
            return actions
        return widen_actions(actions, layouts[1], self.wide[1])


def widen_actions(actions: NDArray[Any], layout: Layout, row: np.dtype[Any]) -> NDArray[Any]:
    """Return actions of a role, as its policy gives them, as rows of all roles."""
    if not layout.plain and actions.dtype.kind != "V":
        rows = layout.zeros(len(actions))
        layout.pack(actions, rows)
        actions = rows
    return widen(actions, layout, row)


def wide_rows(env: EnvSpec) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """Return what rows of observations and of actions are made of where worlds have several roles; else None."""
    if env.seats == 1 or len(env.roles) == 1:
        return None
    seats = [role.seats for role in env.roles]
    seen, done = (
        SeatRows.of([layout for layout in layouts if layout is not None], seats).row
        for layouts in zip(*[(role.observations, role.actions) for role in env.roles], strict=True)
    )
    return seen, done


@functools.lru_cache(maxsize=256)
def _rows(own: tuple[int, ...], seats: int, worlds: int) -> NDArray[np.intp]:
    return (np.arange(worlds)[:, None] * seats + np.array(own, np.intp)).ravel()
