"""What a network sees of rows of observations: numbers for dense layers, leaves for encoders, and what is legal.

Of a Box alone it is the array, as it always was. Of any other space it is one matrix, which is gathered and sent in one
piece: numbers [B, F] and, behind them, legal actions [B, W], as float32; or, where leaves go to encoders as they are,
bytes, in which each part starts at a multiple of 8.
"""

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads import Head
from paddock.envs.errors import require
from paddock.envs.multiagent.roles import Role, SeatRows, widen
from paddock.envs.spaces.codecs import Leaf, Path, at_path, dotted
from paddock.envs.spaces.features import Features, numbers_of
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.legal import MASK
from paddock.envs.spaces.sparse import SparseFeatures
from paddock.envs.spec import EnvSpec

MOST = 65_536  # numbers of one observation, for dense layers
ALIGNMENT = 8  # bytes
MIN_IMAGE = 5  # pixels a side that the smallest convolutional network needs
TAKEN = "", "observation", "legal", "state", "action", "output", "next_state"  # by what else an exported policy has


@dataclass(frozen=True)
class Inputs:
    """The inputs of one network."""

    layout: Layout
    head: Head
    raw: tuple[Leaf, ...] = ()  # leaves that encoders take as they are
    real_only: bool = False  # of the numbers, only reals: a network of somebody's own has the rest raw

    def __post_init__(self) -> None:
        some = self.layout.itemsize > 0
        require(some, f"env: an observation of {self.layout.space} has no numbers; wrap the environment")
        require(
            self.plain or self.width <= MOST,
            f"env: an observation of {self.layout.space} is {self.width:,} numbers for a dense network; {MOST:,} are "
            "allowed; leave parts out by env.without=, or give algo.custom_encoder= an encoder of your own",
        )
        _ = self._legal  # refuses a mask that fits no action

    @property
    def plain(self) -> bool:
        """Whether the observations are the array of a Box, which goes in as it is."""
        return self.layout.plain

    @property
    def as_bytes(self) -> bool:
        """Whether the matrix is one of bytes, and not of float32."""
        return bool(self.raw) or self.real_only

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one observation in a batch of rows: that of a Box; () of an opaque row."""
        return self.layout.row.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of a batch of rows."""
        return self.layout.row.base

    @property
    def greatest(self) -> int:
        """Of a Box of bytes the greatest that is declared, by which networks divide them."""
        return self.layout.leaves[0].greatest

    @property
    def divisors(self) -> list[int]:
        """By what bytes of a Box, where they are not normalized, or of images within a structure are divided."""
        if self.plain:
            return [self.greatest] if self.dtype == np.uint8 else []
        return [leaf.greatest for leaf in seen(self.layout) if leaf.kind == "pixels"]

    @property
    def width(self) -> int:
        """F, numbers of one observation."""
        return int(np.prod(self.shape)) if self.plain else self._features.width

    @property
    def is_real(self) -> NDArray[np.bool_]:
        """[F], which numbers are normalized, if any are."""
        return np.ones(self.width, np.bool_) if self.plain else self._features.is_real

    @property
    def legal_width(self) -> int:
        """W where a mask says what is legal, else 0."""
        return self.head.width if self._legal else 0

    @functools.cached_property
    def offsets(self) -> tuple[list[int], int, int]:
        """Of a row of bytes: where each raw leaf begins, where what is legal does, and how long the row is."""
        starts, end = [], _aligned(4 * self.width)
        for leaf in self.raw:
            starts.append(end)
            end = _aligned(end + leaf.nbytes)
        return starts, end, _aligned(end + self.legal_width)

    def of_reals(self, mean: NDArray[Any], std: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return mean and deviation [F] by which numbers are normalized: what is no real number is left as it is."""
        real = self.is_real
        return np.where(real, mean, 0).astype(np.float32), np.where(real, std, 1).astype(np.float32)

    def numbers(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Map rows [B, ...] to numbers [B, F] as they are; of a Box flattened, in its own dtype."""
        return rows.reshape(len(rows), self.width) if self.plain else self._features(self.layout.octets(rows))

    def legal(self, rows: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Map rows [B] to which of the head's choices may be taken, [B, W]; None where nothing says so."""
        if not self._legal:
            return None
        octets = self.layout.octets(rows)
        legal = np.ones((len(octets), self.head.width), np.bool_)
        for leaf, columns in self._legal:
            legal[:, columns] = numbers_of(leaf, octets) != 0
        return legal

    @functools.cached_property
    def sparse(self) -> SparseFeatures | None:
        """How dense layers alone see rows without their zeros; None where an observation has few."""
        if self.plain or self.as_bytes:
            return None
        whole = [leaf.offset for leaf, columns in self._legal if columns == slice(0, self.head.width)]
        return SparseFeatures.of(self._leaves, self.layout.itemsize, *whole)

    def join(self, rows: NDArray[Any], numbers: NDArray[np.float32]) -> NDArray[Any]:
        """Return what goes into the network for rows [B], given their numbers [B, F], normalized or not."""
        legal = self.legal(rows)
        if not self.as_bytes:
            return numbers if legal is None else np.concatenate([numbers, legal], axis=1, dtype=np.float32)
        octets, (starts, legal_at, end) = self.layout.octets(rows), self.offsets
        out = np.zeros((len(octets), end), np.uint8)
        if self.width:
            out[:, : 4 * self.width] = np.ascontiguousarray(numbers, np.float32).view(np.uint8)
        for leaf, start in zip(self.raw, starts, strict=True):
            out[:, start : start + leaf.nbytes] = octets[:, leaf.offset : leaf.offset + leaf.nbytes]
        if legal is not None:
            out[:, legal_at : legal_at + self.legal_width] = legal
        return out

    @property
    def raw_names(self) -> list[str]:
        """Names of the raw leaves in an exported policy: their paths, behind `observation` where those are taken."""
        return _free([dotted(leaf.path) for leaf in self.raw], "observation", (*TAKEN, *self.action_names))

    @property
    def action_names(self) -> list[str]:
        """Names of the leaves of an action in an exported policy: their paths, behind `action`."""
        return _free([dotted(("action", *leaf.path)) for leaf in self.head.leaves], "action", ())

    def feed(self, rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return what an exported policy takes for rows of observations [B, ...]: its inputs by their names.

        An array is `observation` as it is. Of any other space `observation` is its numbers [B, F]; images come beside
        them, by `raw_names`; and where there is a mask, `legal` says which choices are, [B, W].
        """
        if self.plain:
            return {"observation": rows}
        octets, legal = self.layout.octets(rows), self.legal(rows)
        each = zip(self.raw_names, self.raw, strict=True)
        images = {name: numbers_of(leaf, octets).reshape(-1, *leaf.shape) for name, leaf in each}
        return {"observation": self.numbers(rows), **images, **({} if legal is None else {"legal": legal})}

    @functools.cached_property
    def _features(self) -> Features:
        return Features(self._leaves, self.layout.itemsize)

    @property
    def _leaves(self) -> list[Leaf]:
        """Those that become numbers."""
        raw = set() if self.real_only else set(self.raw)
        leaves = [leaf for leaf in seen(self.layout) if leaf not in raw]
        return [leaf for leaf in leaves if leaf.kind == "real" or not self.real_only]

    @functools.cached_property
    def _legal(self) -> list[tuple[Leaf, slice]]:
        """Leaves of the mask, and whose choices each is about.

        Raises:
            ConfigError: it fits no action.
        """
        found = []
        for leaf in masks(self.layout):
            columns = self.head.columns.get(leaf.path[1:], slice(0, 0))
            fits = count_of(columns) == leaf.count and leaf.dtype[1:] in ("i1", "u1", "b1")
            each = [f"{count_of(part)} for the action{at_path(path)}" for path, part in self.head.columns.items()]
            require(
                fits,
                f"env: the mask{at_path(leaf.path)} has {leaf.count} numbers of {leaf.dtype} and is about no choice; "
                f"allowed: {', '.join(each) or 'none, since nothing is chosen'}, as bits; or env.without=[{MASK}]",
            )
            found.append((leaf, columns))
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "sparse" and not key.startswith("_")}


def seated(env: EnvSpec, agent_id_feature: bool) -> EnvSpec:
    """Return an environment whose agents see which seat they have, if they are to.

    Raises:
        ConfigError: it has one agent alone.
    """
    if not agent_id_feature:
        return env
    require(env.seats > 1, f"algo.agent_id_feature=true: env.id={env.id} has one agent; leave it at false")
    return replace(env, agent_id_feature=True)


def spaces_of(env: EnvSpec) -> tuple[Layout, gymnasium.Space]:
    """Return how an observation lies in a row, and the action space, of every agent of an environment.

    Raises:
        ConfigError: its agents have several roles, or an observation has no known size.
    """
    if env.seats == 1:
        return env.observations, env.spaces[1]
    roles = env.roles
    names = ", ".join(role.name for role in roles)
    require(
        len(roles) == 1,
        f"env.id={env.id} has agents of {len(roles)} roles ({names}), which see or do different things; allowed: one "
        "role here; algo=ppo, a2c, dqn, r2d2, pqn, sac and td3 learn a policy for each; or choose an environment of "
        "agents alike",
    )
    return spaces_of_role(env, roles[0])


def spaces_of_role(env: EnvSpec, role: Role) -> tuple[Layout, gymnasium.Space]:
    """Return how an observation lies in a row, and the action space, of the agents of a role."""
    return role.observations, role.action_space


def images(layout: Layout) -> tuple[Leaf, ...]:
    """Return the leaves that convolutions suit: bytes in two dimensions or three, two of them at least MIN_IMAGE."""
    return tuple(
        leaf
        for leaf in layout.leaves
        if leaf.kind == "pixels" and leaf.count and len(leaf.shape) in (2, 3) and sorted(leaf.shape)[-2] >= MIN_IMAGE
    )


def blank(layout: Layout) -> NDArray[Any]:
    """Return rows [1] of zeros, with every action legal."""
    rows = layout.zeros(1)
    for leaf in masks(layout):
        numbers_of(leaf, layout.octets(rows))[:] = 1
    return rows


def offer(layout: Layout, rows: NDArray[Any]) -> None:
    """Let all actions be legal in rows [R] where none is, as to who waits, or whose episode was cut off; in place."""
    for leaf in masks(layout):
        legal = numbers_of(leaf, layout.octets(rows))
        legal[~legal.any(axis=1)] = 1


def row_of(env: EnvSpec) -> np.dtype[Any]:
    """Return what rows of observations are made of, of one agent, of a role, or of several roles."""
    if env.seats == 1 or len(env.roles) == 1:
        return spaces_of(env)[0].row
    return SeatRows.of([spaces_of_role(env, role)[0] for role in env.roles], [role.seats for role in env.roles]).row


def blanks(env: EnvSpec) -> NDArray[Any]:
    """Return the blank rows of a world's seats, [A], where they have several roles."""
    rows = np.zeros(env.seats, row_of(env))
    for role in env.roles:
        layout = spaces_of_role(env, role)[0]
        rows[list(role.seats)] = widen(blank(layout), layout, rows.dtype)
    return rows


def seen(layout: Layout) -> tuple[Leaf, ...]:
    """Return the leaves that are looked at: all but the mask."""
    return tuple(leaf for leaf in layout.leaves if leaf.path[:1] != (MASK,))


def masks(layout: Layout) -> tuple[Leaf, ...]:
    """Return the leaves of the mask; the paths behind its own are those of actions."""
    return tuple(leaf for leaf in layout.leaves if leaf.path[:1] == (MASK,))


def masked_paths(layout: Layout) -> list[Path]:
    """Return the paths, in the action space, of what a mask is about."""
    return [leaf.path[1:] for leaf in masks(layout)]


def count_of(part: slice) -> int:
    """Return how many columns a slice has."""
    return int(part.stop - part.start)


def _free(names: Sequence[str], front: str, taken: Collection[str]) -> list[str]:
    """Return names that all differ and are not taken, with `front` before them as often as need be."""
    used, free = {*names, *taken}, []
    for k, name in enumerate(names):
        if name in taken or name in names[:k]:
            while name in used:
                name = f"{front}.{name}"
        used.add(name)
        free.append(name)
    return free


def _aligned(end: int) -> int:
    return -(-end // ALIGNMENT) * ALIGNMENT
