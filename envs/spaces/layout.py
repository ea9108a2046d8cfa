"""Layout: the encoding of an element of any Gymnasium space as a row of bytes, and back.

A batch of elements of any structure is one array of rows, moved by one copy, as in PufferLib's emulation (Suarez 2024,
arXiv:2406.12905). Unlike there, nested structures are restored exactly, and nothing is cast silently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from paddock.envs.errors import ConfigError, nearest, require
from paddock.envs.spaces.codecs import (
    Array,
    Codec,
    DiscreteCodec,
    Kind,
    Leaf,
    NumericCodec,
    Path,
    Read,
    Views,
    Write,
    dotted,
)
from paddock.envs.spaces.columns import Fill, filler
from paddock.envs.spaces.features import Features
from paddock.envs.spaces.structures import RecordCodec
from paddock.envs.spaces.varying import SequenceCodec, TextCodec

Bounds = Mapping[str, int]


@dataclass(frozen=True)
class Layout:
    """A space as rows of bytes.

    Rows are an array [...] of opaque voids; a single Box of numbers is `plain`, and its rows are arrays [..., *shape].
    Padding bytes are zeros, so that equal elements have equal bytes.
    """

    leaves: tuple[Leaf, ...]  # in order
    itemsize: int  # bytes of a row
    plain: bool  # the space is a single Box of numbers
    space: Space = field(compare=False, repr=False)  # without the components in `without`
    _root: Codec = field(compare=False, repr=False)

    @classmethod
    def of(cls, space: Space, bounds: Bounds | None, without: Sequence[str]) -> "Layout":
        """Lay out a space.

        Args:
            space: any Gymnasium space except Graph and OneOf.
            bounds: largest size by the dotted path of each component of variable size: items of a Sequence, characters
                of a custom text space. The path of the root is "element". None: sizes must not vary, as of actions.
            without: dotted paths of components to leave out.

        Raises:
            ConfigError: a space has no bound or an unknown class, or a path does not exist.
        """
        builder = _Builder(bounds, set(without))
        kept, root = builder.build(space, (), ())
        builder.finish()
        leaves = tuple(root.leaves(0))
        require(bool(leaves), f"env.without removes all of {space}; shorten it")
        plain = isinstance(kept, spaces.Box) and kept.dtype != np.bool_
        return cls(leaves, root.dtype.itemsize, plain, kept, root)

    @property
    def row(self) -> np.dtype[Any]:
        """Return the dtype of an array of rows."""
        return self._root.dtype if self.plain else np.dtype(f"V{self.itemsize}")

    def zeros(self, *shape: int) -> Array:
        """Return new rows of zeros."""
        return np.zeros(shape, self.row)

    def fields(self, rows: Array) -> Views:
        """Return views of the leaves of rows [...]: arrays [..., *shape] in the space's structure of dicts and tuples.

        A Sequence has "length" and "items".
        """
        return self._root.views(rows if self.plain else rows.view(self._root.dtype))

    def writer(self, rows: Array) -> Write:
        """Return a function `write(index, element)` for these rows; it raises SpaceMismatch for invalid elements."""
        return self._root.writer(self.fields(rows))

    def filler(self, rows: Array) -> Fill | None:
        """Return a function `fill(index, elements)` that writes many rows (`columns.filler`); None for structures."""
        return filler(self._root, self.fields(rows))

    def reader(self, rows: Array) -> Read:
        """Return a function `read(index)` that returns a copy of the element there; a Discrete as an int."""
        return self._root.reader(self.fields(rows))

    def batch(self, rows: Array) -> Any:
        """Return rows [N] in Gymnasium's batch form: views, or tuples for elements of variable size."""
        return self._root.batch(self.fields(rows))

    def pack(self, batch: Any, rows: Array, choices: bool = False) -> None:
        """Write a batch in Gymnasium's form into rows [N]; raises SpaceMismatch.

        Args:
            batch: elements in Gymnasium's batch form.
            rows: the destination.
            choices: check that choices are in range, as for observations.
        """
        self._root.pack(self.fields(rows), batch, choices)

    @property
    def is_real(self) -> Array:
        """Return the features that are real numbers (and can be normalized), [F] bool."""
        return self._features.is_real

    def features(self, rows: Array) -> Array:
        """Return the features [..., F] float32 of rows [...] for a dense network (`Features`)."""
        lead = rows.shape[: rows.ndim - len(self._root.dtype.shape)] if self.plain else rows.shape
        return self._features(self.octets(rows)).reshape(*lead, -1)

    def octets(self, rows: Array) -> Array:
        """Return rows as bytes [B, itemsize]; contiguous rows are not copied."""
        return np.ascontiguousarray(rows).view(np.uint8).reshape(-1, self.itemsize)

    @cached_property
    def _features(self) -> Features:
        return Features(self.leaves, self.itemsize)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without cached properties."""
        return {key: value for key, value in self.__dict__.items() if key != "_features"}


class _Builder:
    """Recursive builder of a space's codecs."""

    def __init__(self, bounds: Bounds | None, without: set[str]) -> None:
        self.bounds, self.without = bounds, without
        self.varying: set[str] = set()  # paths that take a bound
        self.paths: set[str] = set()  # paths that can be left out
        self.unbounded: list[str] = []  # messages about missing bounds

    def build(self, space: Space, path: Path, lead: tuple[int, ...]) -> tuple[Space, Codec]:
        """Return the space without the components that are left out, and its codec."""
        match space:
            case spaces.Dict():
                return self._record(space, dict(space.spaces.items()), path, lead)
            case spaces.Tuple():
                return self._record(space, dict(enumerate(space.spaces)), path, lead)
            case spaces.Discrete():
                return space, DiscreteCodec(path, np.dtype(space.dtype), lead, int(space.n), int(space.start))
            case spaces.MultiDiscrete():
                sizes, starts = (
                    tuple(np.broadcast_to(of, space.nvec.shape).ravel().tolist()) for of in (space.nvec, space.start)
                )
                return space, NumericCodec(path, "choices", np.dtype(space.dtype), lead, space.shape, sizes, starts)
            case spaces.MultiBinary():
                return space, NumericCodec(path, "bits", np.dtype(space.dtype), lead, space.shape)
            case spaces.Box():
                dtype, greatest = np.dtype(space.dtype), _greatest(space)
                return space, NumericCodec(path, _kind(space), dtype, lead, space.shape, greatest=greatest)
            case spaces.Text():
                return space, TextCodec(path, lead, space.max_length)
            case spaces.Sequence():
                most, key = self._bound(space, path)
                kept, item = self.build(space.feature_space, (*path, "items"), (*lead, most))
                return spaces.Sequence(kept, stack=space.stack), SequenceCodec(path, lead, most, key, item, space.stack)
        # A custom class of texts, such as MiniGrid's MissionSpace.
        if space.dtype is not None and np.dtype(space.dtype).kind == "U":
            return space, TextCodec(path, lead, self._bound(space, path)[0])
        raise ConfigError(
            f"{_named(path)} is a {type(space).__name__}, which is not supported; "
            f"{self._leave_out(path)}wrap the environment"
        )

    def finish(self) -> None:
        """Raise ConfigError for an unknown path or a missing bound."""
        for path in sorted((self.bounds or {}).keys() - self.varying):
            raise ConfigError(f"env.bounds.{path} is not a text or sequence; {nearest(path, self.varying)}")
        for path in sorted(self.without - self.paths):
            raise ConfigError(f"env.without={path} is not a part of the space; {nearest(path, self.paths)}")
        for text in self.unbounded:
            raise ConfigError(text)

    def _record(self, space: Space, parts: dict[Any, Space], path: Path, lead: tuple[int, ...]) -> tuple[Space, Codec]:
        self.paths |= {_key((*path, key)) for key in parts}
        built = {
            key: self.build(part, (*path, key), lead)
            for key, part in parts.items()
            if _key((*path, key)) not in self.without
        }
        kept = {key: space for key, (space, _) in built.items()}
        of = {key: part for key, (_, part) in built.items()}
        if isinstance(space, spaces.Dict):
            return spaces.Dict(list(kept.items())), RecordCodec(path, of, None)  # in the original order
        return spaces.Tuple(list(kept.values())), RecordCodec(path, of, len(parts))

    def _bound(self, space: Space, path: Path) -> tuple[int, str]:
        """Return a component's bound and its configuration key."""
        at = _key(path)
        key = f"env.bounds.{at}"
        self.varying.add(at)
        varies = f"{_named(path)} is a {type(space).__name__}, whose elements vary in size"
        require(self.bounds is not None, f"{varies}; wrap the environment")
        assert self.bounds is not None
        if at not in self.bounds:
            remedy = f"set an upper bound by +{key}=n, or {self._leave_out(path)}wrap the environment"
            self.unbounded.append(f"{varies}; {remedy}")
        bound = self.bounds.get(at, 1)
        whole = isinstance(bound, int) and not isinstance(bound, bool) and bound >= 1
        require(whole, f"{key}={bound} must be an integer, at least 1")
        return bound, key

    def _leave_out(self, path: Path) -> str:
        """Return a remedy for a component of an observation; actions cannot be left out."""
        at = _key(path)
        return f"exclude it with env.without=[{at}], or " if self.bounds is not None and at in self.paths else ""


def _kind(box: spaces.Box) -> Kind:
    if box.dtype == np.bool_:
        return "bits"
    return "pixels" if box.dtype == np.uint8 and len(box.shape) >= 2 else "real"


def _greatest(box: spaces.Box) -> int:
    return max(int(box.high.max(initial=1)), 1) if box.dtype == np.uint8 else 1


def _key(path: Path) -> str:
    return dotted(path) or "element"


def _named(path: Path) -> str:
    return f"the space at {_key(path)}" if path else "the space"
