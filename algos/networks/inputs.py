"""Network inputs from rows of observations: features for dense layers, raw leaves for encoders, and action masks.

A Box is used as the array it is. Any other space becomes one matrix: float32 features [B, F] followed by action masks
[B, W]; or, if encoders take raw leaves, bytes in which each section is aligned to 8.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads import Head
from paddock.envs.errors import require
from paddock.envs.multiagent.roles import SeatRows, widen
from paddock.envs.spaces.codecs import Leaf, Path, at_path, dotted
from paddock.envs.spaces.features import Features, numbers_of
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.legal import MASK
from paddock.envs.spaces.sparse import SparseFeatures
from paddock.envs.spec import EnvSpec

MAX_FEATURES = 65_536  # of one observation, for dense layers
ALIGNMENT = 8  # bytes
MIN_IMAGE = 5  # minimum side length in pixels for convolutions


@dataclass(frozen=True)
class Inputs:
    """Input specification of one network."""

    layout: Layout
    head: Head
    raw: tuple[Leaf, ...] = ()  # leaves passed to encoders unchanged
    real_only: bool = False  # features are real numbers only, for custom encoders

    def __post_init__(self) -> None:
        some = self.layout.itemsize > 0
        require(some, f"env: observation space {self.layout.space} is empty; wrap the environment")
        require(
            self.plain or self.width <= MAX_FEATURES,
            f"env: {self.layout.space} gives {self.width:,} features; dense networks support {MAX_FEATURES:,}; exclude "
            "leaves with env.without=, or set algo.custom_encoder=",
        )
        _ = self._legal  # checks the mask

    @property
    def plain(self) -> bool:
        """Return True if observations are the array of a Box, used unchanged."""
        return self.layout.plain

    @property
    def as_bytes(self) -> bool:
        """Return True if the input is a matrix of bytes, False if of float32."""
        return bool(self.raw) or self.real_only

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation in a batch: that of a Box, or () for structured rows."""
        return self.layout.row.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a batch of rows."""
        return self.layout.row.base

    @property
    def greatest(self) -> int:
        """Upper bound of a uint8 Box, by which networks divide."""
        return self.layout.leaves[0].greatest

    @property
    def divisors(self) -> list[int]:
        """Divisors of a uint8 Box without normalization, or of images within a structure."""
        if self.plain:
            return [self.greatest] if self.dtype == np.uint8 else []
        return [leaf.greatest for leaf in visible_leaves(self.layout) if leaf.kind == "pixels"]

    @functools.cached_property
    def width(self) -> int:
        """Number of features F."""
        return int(np.prod(self.shape)) if self.plain else self._features.width

    @property
    def is_real(self) -> NDArray[np.bool_]:
        """Mask [F] of the features that normalization applies to."""
        return np.ones(self.width, np.bool_) if self.plain else self._features.is_real

    @property
    def legal_width(self) -> int:
        """Width W of the action mask; 0 without mask."""
        return self.head.width if self._legal else 0

    @functools.cached_property
    def offsets(self) -> tuple[list[int], int, int]:
        """Byte offsets of the raw leaves and of the action mask, and the row size."""
        starts, end = [], _aligned(4 * self.width)
        for leaf in self.raw:
            starts.append(end)
            end = _aligned(end + leaf.nbytes)
        return starts, end, _aligned(end + self.legal_width)

    def of_reals(self, mean: NDArray[Any], std: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return mean and standard deviation [F]; 0 and 1 for features that are not real numbers."""
        real = self.is_real
        return np.where(real, mean, 0).astype(np.float32), np.where(real, std, 1).astype(np.float32)

    def numbers(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Map rows [B, ...] to features [B, F] without normalization; a Box is flattened and keeps its dtype."""
        return rows.reshape(len(rows), self.width) if self.plain else self._features(self.layout.octets(rows))

    def legal(self, rows: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Return the action mask [B, W] of rows [B]; None without mask."""
        if not self._legal:
            return None
        octets = self.layout.octets(rows)
        legal = np.ones((len(octets), self.head.width), np.bool_)
        for leaf, columns in self._legal:
            legal[:, columns] = numbers_of(leaf, octets) != 0
        return legal

    @functools.cached_property
    def sparse(self) -> SparseFeatures | None:
        """Sparse features for dense networks; None if observations are not sparse."""
        if self.plain or self.as_bytes:
            return None
        whole = [leaf.offset for leaf, columns in self._legal if columns == slice(0, self.head.width)]
        return SparseFeatures.of(self._leaves, self.layout.itemsize, *whole)

    def join(self, rows: NDArray[Any], numbers: NDArray[np.float32]) -> NDArray[Any]:
        """Return the network input of rows [B], given their features [B, F]."""
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
        """Names of the raw leaves in an exported policy: paths, prefixed with `observation`."""
        return [dotted(("observation", *leaf.path)) for leaf in self.raw]

    @property
    def action_names(self) -> list[str]:
        """Names of the action leaves in an exported policy: paths, prefixed with `action`."""
        return [dotted(("action", *leaf.path)) for leaf in self.head.leaves]

    def feed(self, rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the inputs of an exported policy by name, for rows of observations [B, ...].

        `observation` is the array of a Box, or the features [B, F] of any other space that has some; images are named as
        in `raw_names`. `legal` is the action mask [B, W].
        """
        if self.plain:
            return {"observation": rows}
        octets, legal = self.layout.octets(rows), self.legal(rows)
        each = zip(self.raw_names, self.raw, strict=True)
        images = {name: numbers_of(leaf, octets).reshape(-1, *leaf.shape) for name, leaf in each}
        numbers = {"observation": self.numbers(rows)} if self.width else {}
        return {**numbers, **images, **({} if legal is None else {"legal": legal})}

    @functools.cached_property
    def _features(self) -> Features:
        return Features(self._leaves, self.layout.itemsize)

    @property
    def _leaves(self) -> list[Leaf]:
        raw = set() if self.real_only else set(self.raw)
        leaves = [leaf for leaf in visible_leaves(self.layout) if leaf not in raw]
        return [leaf for leaf in leaves if leaf.kind == "real" or not self.real_only]

    @functools.cached_property
    def _legal(self) -> list[tuple[Leaf, slice]]:
        """Mask leaves with the output columns they apply to; raise ConfigError for masks that fit no action."""
        found = []
        for leaf in mask_leaves(self.layout):
            columns = self.head.columns.get(leaf.path[1:], slice(0, 0))
            fits = count_of(columns) == leaf.count and leaf.dtype[1:] in ("i1", "u1", "b1")
            each = [f"{count_of(part)} for the action{at_path(path)}" for path, part in self.head.columns.items()]
            require(
                fits,
                f"env: the mask{at_path(leaf.path)} has {leaf.count} entries of {leaf.dtype}, which match no action; "
                f"allowed: {', '.join(each) or 'none'}, as bits; or set env.without=[{MASK}]",
            )
            found.append((leaf, columns))
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "sparse" and not key.startswith("_")}


def with_agent_ids(env: EnvSpec, agent_id_feature: bool) -> EnvSpec:
    """Return an environment that adds the agent's id to observations, if wanted; it must have several agents."""
    if not agent_id_feature:
        return env
    require(env.seats > 1, f"algo.agent_id_feature=true needs several agents, but env.id={env.id} has one")
    return replace(env, agent_id_feature=True)


def spaces_of(env: EnvSpec) -> tuple[Layout, gymnasium.Space]:
    """Return an environment's observation layout and action space; raise ConfigError if it has several roles."""
    if env.seats == 1:
        return env.observations, env.spaces[1]
    roles = env.roles
    names = ", ".join(role.name for role in roles)
    require(
        len(roles) == 1,
        f"env.id={env.id} has agents of {len(roles)} roles ({names}) with different spaces; allowed: one role; "
        "algo=ppo, a2c, dqn, pqn, sac and td3 learn a policy for each role",
    )
    return roles[0].observations, roles[0].action_space


def images(layout: Layout, *, bits: bool) -> tuple[Leaf, ...]:
    """Return the image leaves: uint8 (or `bits`) in two or three dimensions, at least MIN_IMAGE pixels a side."""
    kinds = ("pixels", "bits") if bits else ("pixels",)
    return tuple(
        leaf
        for leaf in layout.leaves
        if leaf.kind in kinds and leaf.count and len(leaf.shape) in (2, 3) and sorted(leaf.shape)[-2] >= MIN_IMAGE
    )


def blank_row(layout: Layout) -> NDArray[Any]:
    """Return rows [1] of zeros, with every action legal."""
    rows = layout.zeros(1)
    for leaf in mask_leaves(layout):
        numbers_of(leaf, layout.octets(rows))[:] = 1
    return rows


def unmask_empty_rows(layout: Layout, rows: NDArray[Any]) -> None:
    """Unmask all actions, in place, in rows [R] without legal actions (waiting agents, truncated episodes)."""
    for leaf in mask_leaves(layout):
        legal = numbers_of(leaf, layout.octets(rows))
        legal[~legal.any(axis=1)] = 1


def row_of(env: EnvSpec) -> np.dtype[Any]:
    """Return the dtype of observation rows: of the single agent, of the only role, or wide enough for all roles."""
    if env.seats == 1 or len(env.roles) == 1:
        return spaces_of(env)[0].row
    return SeatRows.of([role.observations for role in env.roles], [role.seats for role in env.roles]).row


def blank_agent_rows(env: EnvSpec) -> NDArray[Any]:
    """Return blank rows [A] of all agents of an environment with several roles."""
    rows = np.zeros(env.seats, row_of(env))
    for role in env.roles:
        rows[list(role.seats)] = widen(blank_row(role.observations), role.observations, rows.dtype)
    return rows


def visible_leaves(layout: Layout) -> tuple[Leaf, ...]:
    """Return all leaves except the action mask."""
    return tuple(leaf for leaf in layout.leaves if leaf.path[:1] != (MASK,))


def mask_leaves(layout: Layout) -> tuple[Leaf, ...]:
    """Return the leaves of the action mask; the rest of their paths are those of actions."""
    return tuple(leaf for leaf in layout.leaves if leaf.path[:1] == (MASK,))


def masked_paths(layout: Layout) -> list[Path]:
    """Return the paths of masked leaves in the action space."""
    return [leaf.path[1:] for leaf in mask_leaves(layout)]


def count_of(part: slice) -> int:
    """Return the number of columns of a slice."""
    return int(part.stop - part.start)


def _aligned(end: int) -> int:
    return -(-end // ALIGNMENT) * ALIGNMENT
