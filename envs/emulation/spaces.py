"""Flat observation and action spaces of an environment, the same for all agents."""

import sys
from collections.abc import Sequence
from functools import reduce
from itertools import zip_longest
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces.utils import flatten_space

from paddock.envs.errors import ConfigError, require
from paddock.envs.multiagent.roles import Role, narrow, widen
from paddock.envs.spaces.codecs import Array, at_path
from paddock.envs.spaces.features import numbers_of, width_of
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.legal import MASK
from paddock.envs.spaces.views import flatten
from paddock.envs.vector.storage import Layouts

Form = Literal["features", "bytes"]


class FlatSpaces:
    """Flat observations and actions of the agents of an environment; those of smaller roles are padded with zeros.

    Attributes:
        layouts: layouts of the agents' rows.
        observation_space: of each agent.
        action_space: of each agent.
    """

    def __init__(self, roles: Sequence[Role], form: Form, bins: int | None, discrete: bool) -> None:
        """Lay out the spaces of these roles; the other arguments are those of `emulate`.

        Raises:
            ConfigError: the actions cannot be converted with these arguments.
        """
        require(form in get_args(Form), f"form={form!r} must be one of {', '.join(get_args(Form))}")
        require(bins is None or bins >= 2, f"bins={bins} must be at least 2, or None")
        self.layouts, self._roles, self._bytes = Layouts.of_roles(roles), list(roles), form == "bytes"
        self._alone = len(roles) == 1
        self._box = self._alone and roles[0].observations.plain  # observations are not changed
        self.observation_space: Space[Any] = roles[0].observation_space
        if not self._box:
            width = max(self._flatten(role.observations, role.observations.zeros(1)).shape[1] for role in roles)
            bounds: Any = (0, 255, (width,), np.uint8) if self._bytes else (-np.inf, np.inf, (width,), np.float32)
            self.observation_space = spaces.Box(*bounds)
        self._values = [
            _choices(role, bins) for role in roles
        ]  # of each component of an action; empty if it is continuous
        some, every = any(self._values), all(self._values)
        require(
            every or not (some or discrete), "actions have continuous values; set bins=, the number of levels of each"
        )
        counts = [[len(one) for one in values] for values in self._values]
        self._sizes = [max(numbers) for numbers in zip_longest(*counts, fillvalue=1)]
        self.action_space: Space[Any] = spaces.MultiDiscrete(self._sizes or [1])
        if not some:
            boxes: list[Any] = [flatten_space(role.action_space) for role in roles]
            low, high = min(box.low.min() for box in boxes), max(box.high.max() for box in boxes)
            widest = max(boxes, key=lambda box: box.shape)
            self.action_space = boxes[0] if self._alone else spaces.Box(low, high, widest.shape, widest.dtype.type)
        elif discrete or all(isinstance(role.action_space, spaces.Discrete) for role in roles):
            self.action_space = spaces.Discrete(int(np.prod(self._sizes)))
        self.unchanged = self._alone and self.action_space == roles[0].action_space

    def flatten_observations(self, rows: Array) -> Array:
        """Return rows [N] of `layouts` as flat observations [N, W]; they may be a view of the rows."""
        if self._alone:
            return rows if self._box else self._flatten(self._roles[0].observations, rows)
        flat = np.zeros((len(rows), *(self.observation_space.shape or ())), self.observation_space.dtype)
        for role, at in self._split(len(rows)):
            own = self._flatten(role.observations, narrow(rows[at], role.observations))
            flat[at, : own.shape[1]] = own
        return flat

    def unflatten_observation(self, flat: Any, role: int = 0) -> Any:
        """Return flat observations [B, W] of a role's agents, an array or a tensor, structured like the space.

        The result has arrays or tensors [B, *shape] in dicts and tuples. Bytes are restored exactly: an array in
        Gymnasium's batch form (one observation [W] as an element), a tensor as views, in which text is code points.
        Features are not decoded: discrete values stay one-hot, and pixels in [0, 1].
        """
        layout = self._roles[role].observations
        if self._box:
            return flat
        if isinstance(flat, np.ndarray) and self._bytes:
            octets = np.ascontiguousarray(flat[..., : layout.itemsize], np.uint8)
            rows = octets.view(layout.row.base).reshape((*flat.shape[:-1], *layout.row.shape))
            return layout.batch(rows) if flat.ndim == 2 else layout.reader(rows[None])(0)
        # Imported here: it imports torch.
        from paddock.envs.spaces.tensors import LeafView, tree_of

        if self._bytes:
            tensor = flat[:, : layout.itemsize].to(sys.modules["torch"].uint8).contiguous()
            return tree_of((leaf.path, LeafView(leaf, leaf.offset).view(tensor)) for leaf in layout.leaves)
        leaves, start = [], 0
        for leaf in layout.leaves:
            width = width_of(leaf)
            shape = leaf.shape if width == leaf.count else (width,)
            leaves.append((leaf.path, flat[:, start : start + width].reshape(len(flat), *shape)))
            start += width
        return tree_of(leaves)

    def unflatten_actions(self, flat: Array) -> Array:
        """Return flat actions [N, ...] for a vector environment: unchanged if the space is, else rows [N]."""
        if self.unchanged:
            return flat
        if flat.shape[1:] != self.action_space.shape:
            raise ConfigError(f"an action has shape {flat.shape[1:]}, expected {self.action_space.shape}")
        if isinstance(self.action_space, spaces.Discrete):
            flat = np.stack(np.unravel_index(flat, self._sizes), axis=1)
        rows = np.zeros(len(flat), self.layouts.action.row)
        for (role, at), values in zip(self._split(len(flat)), self._values, strict=True):
            numbers = flat[at]
            if values:
                chosen = zip(values, numbers.T, strict=False)  # padded values are replaced by the last
                numbers = np.stack([one[np.minimum(column, len(one) - 1)] for one, column in chosen], axis=1)
            own, start = role.actions.zeros(len(at)), 0
            for view, leaf in zip(flatten(role.actions.fields(own)), role.actions.leaves, strict=True):
                view[...] = numbers[:, start : start + leaf.count].reshape(view.shape)
                start += leaf.count
            if self._alone:
                return own
            rows[at] = widen(own, role.actions, rows.dtype)
        return rows

    def masks(self, rows: Array) -> Array:
        """Return action masks [N, W] of rows of observations: True for each legal value of each component in turn.

        If a mask allows no value, as after the end of an episode, all are legal.
        """
        masks = [np.eye(1, size, dtype=np.bool_).repeat(len(rows), axis=0) for size in self._sizes]
        for (role, at), values in zip(self._split(len(rows)), self._values, strict=True):
            octets = role.observations.octets(rows if self._alone else narrow(rows[at], role.observations))
            given = {leaf.path[1:]: leaf for leaf in role.observations.leaves if leaf.path[:1] == (MASK,)}
            number = 0
            for leaf in role.actions.leaves:
                sizes = [len(one) for one in values[number : number + leaf.count]]
                legal = np.ones((len(at), sum(sizes)), np.bool_)
                if leaf.path in given and leaf.kind != "real":
                    legal = numbers_of(given[leaf.path], octets) != 0
                for size, part in zip(sizes, np.split(legal, np.cumsum(sizes)[:-1], axis=1), strict=True):
                    masks[number][at, :size] = part | ~part.any(axis=1, keepdims=True)
                    number += 1
        if isinstance(self.action_space, spaces.Discrete):
            return reduce(lambda one, two: (one[:, :, None] & two[:, None]).reshape(len(rows), -1), masks)
        return np.concatenate(masks, axis=1)

    def _flatten(self, layout: Layout, rows: Array) -> Array:
        return layout.octets(rows) if self._bytes else layout.features(rows)

    def _split(self, count: int) -> list[tuple[Role, Array]]:
        """Return each role with the indices of its agents among `count` rows."""
        seat = np.arange(count) % self.layouts.seats
        return [(role, np.flatnonzero(np.isin(seat, role.seats))) for role in self._roles]


def _choices(role: Role, bins: int | None) -> list[Array]:
    """Return the discrete values of each component of a role's actions; empty if all are continuous, without bins."""
    leaves, values = role.actions.leaves, list[Array]()
    real = [leaf.kind == "real" and np.dtype(leaf.dtype).kind == "f" for leaf in leaves]
    if bins is None and all(real):
        return values
    for leaf, is_real in zip(leaves, real, strict=True):
        what = f"actions{at_path(leaf.path)} are"
        if is_real:
            require(bins is not None, f"{what} continuous, but others are discrete; set bins=, the number of levels")
            box: Any = role.action_space
            for key in leaf.path:
                box = box[key]
            require(box.is_bounded(), f"{what} unbounded, but bins= requires bounds; wrap the environment")
            values += list(np.linspace(box.low.ravel(), box.high.ravel(), bins or 0, axis=1))
        elif leaf.kind == "bits":
            values += [np.arange(2)] * leaf.count
        else:
            require(leaf.kind in ("choice", "choices"), f"{what} neither discrete nor continuous; wrap the environment")
            values += [start + np.arange(size) for start, size in zip(leaf.starts, leaf.sizes, strict=True)]
    return values
