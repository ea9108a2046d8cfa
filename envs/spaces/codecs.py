"""Codecs of spaces: the fields of a row, and functions that write, read and batch elements.

Codecs work on views, never on copies: an array [N, ...] for a leaf, a dict or a tuple of views for a structure.
Repeated elements, such as the items of a sequence, are stored leaf by leaf: [N, bound, ...].
"""

import abc
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Views = Any  # an array [N, ...], or a dict or tuple of Views
Index = int | tuple[int, ...]  # a row; for repeated elements, a row and the item's position
Path = tuple[str | int, ...]
Kind = Literal["real", "pixels", "bits", "choice", "choices", "text", "length"]
Write = Callable[[Index, Any], None]
Read = Callable[[Index], Any]


class SpaceMismatch(ValueError):
    """An element does not belong to its space; the message names the element, its path and the declaration."""


@dataclass(frozen=True)
class Leaf:
    """One array of numbers or text in a row."""

    path: Path  # its keys and positions
    kind: Kind
    offset: int  # bytes from the start of the row
    dtype: str  # of one number, in NumPy's notation ("<f4")
    shape: tuple[int, ...]  # of its numbers in one row, after the bounds of enclosing sequences
    sizes: tuple[int, ...] = ()  # number of choices per number in the last part of the shape; the bound of a length
    starts: tuple[int, ...] = ()  # the smallest choice of each, parallel to `sizes`
    greatest: int = 1  # the largest byte of a Box, at least 1; scaled features divide by it

    @property
    def count(self) -> int:
        """Return how many numbers the leaf has in a row."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Return the leaf's size in a row in bytes."""
        return np.dtype(self.dtype).itemsize * self.count


class SourceBuilder:
    """Generated Python source and the objects that its names refer to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"ndarray": np.ndarray, "whole": operator.index}

    def bind(self, value: Any) -> str:
        """Return a name for an object."""
        name = f"n{len(self.names)}"
        self.names[name] = value
        return name

    def local(self) -> str:
        """Return a new local variable name."""
        return f"v{len(self.lines)}"

    def add(self, *lines: str) -> None:
        """Append lines; nested lines are indented by four spaces."""
        self.lines += lines


class Codec(abc.ABC):
    """Codec of a space, or of a component of one, in a row.

    Attributes:
        path: keys and positions of the component.
        dtype: its field of a row, including the slots of repeated elements.
    """

    path: Path
    dtype: np.dtype[Any]

    @abc.abstractmethod
    def leaves(self, offset: int) -> Iterator[Leaf]:
        """Yield the leaves in the order of the row; the component starts at byte `offset`."""

    def views(self, array: Array) -> Views:
        """Return views of the leaves in an array of this codec's dtype."""
        return array

    @abc.abstractmethod
    def emit(self, source: SourceBuilder, value: str, views: Views) -> None:
        """Append the lines that write the element, given by the expression `value`, at `index`."""

    @abc.abstractmethod
    def reader(self, views: Views) -> Read:
        """Return a function that maps an index to a copy of the element there."""

    def batch(self, views: Views) -> Any:
        """Return all elements in Gymnasium's batch form: views, or a tuple for elements of variable size."""
        return views

    @abc.abstractmethod
    def pack(self, views: Views, batch: Any, choices: bool = False) -> None:
        """Write a batch in Gymnasium's form.

        Args:
            views: the destination.
            batch: elements in Gymnasium's batch form.
            choices: check that choices are in range (actions that are ignored may be out of range).

        Raises:
            SpaceMismatch: the batch has another form.
        """

    def count_rows(self, batch: Any) -> int:
        """Return the number of elements of a batch in Gymnasium's form."""
        return len(batch)

    def writer(self, views: Views) -> Write:
        """Return a function that writes an element at an index; its assignments are generated for this space.

        The function raises SpaceMismatch for a wrong structure, shape, dtype, choice or bound. Parts of the element
        that were written before the error remain.
        """
        source = SourceBuilder()
        self.emit(source, "element", views)
        body = "\n".join(f"        {line}" for line in source.lines)
        names = source.names | {"misfit": _other_structure}
        exec(
            f"def write(index, element):\n    try:\n{body}\n"
            "    except (KeyError, IndexError, TypeError, AttributeError) as error:\n"
            "        raise misfit(error) from error\n",
            names,
        )
        write: Write = names["write"]
        return write


@final
class NumericCodec(Codec):
    """Codec of a Box, MultiBinary or MultiDiscrete: an array."""

    def __init__(
        self,
        path: Path,
        kind: Kind,
        dtype: np.dtype[Any],
        lead: tuple[int, ...],
        shape: tuple[int, ...],
        sizes: tuple[int, ...] = (),
        starts: tuple[int, ...] = (),
        greatest: int = 1,
    ) -> None:
        """Lay out `shape` numbers; the other arguments are those of `Leaf`."""
        self.path, self.kind, self.base, self.shape, self.sizes, self.starts = path, kind, dtype, shape, sizes, starts
        self.dtype, self.greatest = np.dtype((dtype, (*lead, *shape))), greatest
        if kind in ("choice", "choices"):
            self._low = np.array(starts).reshape(shape)
            self._high = self._low + np.array(sizes).reshape(shape) - 1

    def leaves(self, offset: int) -> Iterator[Leaf]:
        """See `Codec.leaves`."""
        more = self.sizes, self.starts, self.greatest
        yield Leaf(self.path, self.kind, offset, self.base.str, self.dtype.shape, *more)

    def emit(self, source: SourceBuilder, value: str, views: Views) -> None:
        """See `Codec.emit`."""
        # By name: a dtype unpickled inside another dtype equals NumPy's own but is another object.
        dtype, convert = source.bind(np.dtype(views.dtype.str)), source.bind(self.convert)
        # Writing to a separate view of each row takes two thirds of the time of indexing the whole array.
        alone = self.shape and views.ndim == 1 + len(self.shape)
        target = f"{source.bind(list(views))}[index][...]" if alone else f"{source.bind(views)}[index]"
        source.add(
            f"x = {value}",
            f"if type(x) is not ndarray or x.dtype is not {dtype} or x.shape != {self.shape}:",
            f"    x = {convert}(x)",
        )
        if self.kind == "choices":
            source.add(f"elif {source.bind(out_of_range_check(self))}(x):", f"    {convert}(x)")
        source.add(f"{target} = x")

    def convert(self, value: Any, rows: tuple[int, ...] = (), choices: bool = True) -> Array:
        """Convert an element, or a batch of shape `rows`, to the codec's dtype.

        Raises:
            SpaceMismatch: wrong shape or kind of number, integers that the dtype cannot hold or, if `choices` is set,
                choices out of range.
        """
        at, shape = at_path(self.path), (*rows, *self.shape)
        try:
            array = np.asarray(value)
        except ValueError:
            raise SpaceMismatch(f"a ragged {type(value).__name__}{at}, expected shape {shape}") from None
        if array.shape != shape:
            raise SpaceMismatch(f"shape {array.shape}{at}, expected {shape}")
        whole = array.dtype.kind in "iu" and self.base.kind in "iu"
        if not whole and not np.can_cast(array.dtype, self.base, "same_kind"):
            raise SpaceMismatch(f"dtype {array.dtype}{at}, expected {self.base}")
        cast = array.astype(self.base, copy=False)
        if whole and (cast != array).any():
            raise SpaceMismatch(f"{array[cast != array].flat[0]}{at}, expected {self.base}")
        if choices and self.kind in ("choice", "choices"):
            low, high = self._low, self._high
            for k in np.argwhere((cast < low) | (cast > high))[:1].tolist():
                own = tuple(k[len(rows) :])
                got = f"{cast[tuple(k)]}{at_path((*self.path, *own))}"
                raise SpaceMismatch(f"{got}, expected {low[own]} to {high[own]}")
        return cast

    def reader(self, views: Views) -> Read:
        """See `Codec.reader`."""
        return lambda index: views[index, ...].copy() if isinstance(index, int) else views[(*index, ...)].copy()

    def pack(self, views: Views, batch: Any, choices: bool = False) -> None:
        """See `Codec.pack`."""
        views[...] = self.convert(batch, views.shape[: views.ndim - len(self.shape)], choices)


@final
class DiscreteCodec(Codec):
    """Codec of a Discrete: one integer, read as a Python int."""

    def __init__(self, path: Path, dtype: np.dtype[Any], lead: tuple[int, ...], size: int, start: int) -> None:
        """Lay out one of `size` choices from `start` on."""
        self.path, self.size, self.start = path, size, start
        self._numbers = NumericCodec(path, "choice", dtype, lead, (), (size,), (start,))
        self.dtype = self._numbers.dtype

    def leaves(self, offset: int) -> Iterator[Leaf]:
        """See `Codec.leaves`."""
        return self._numbers.leaves(offset)

    def emit(self, source: SourceBuilder, value: str, views: Views) -> None:
        """See `Codec.emit`."""
        view, convert = source.bind(views), source.bind(self._numbers.convert)
        source.add(
            f"x = whole({value})",
            f"if not {self.start} <= x < {self.start + self.size}:",
            f"    {convert}(x)",
            f"{view}[index] = x",
        )

    def reader(self, views: Views) -> Read:
        """See `Codec.reader`."""
        item = views.item
        return lambda index: item(index)

    def pack(self, views: Views, batch: Any, choices: bool = False) -> None:
        """See `Codec.pack`."""
        self._numbers.pack(views, batch, choices)


def out_of_range_check(codec: NumericCodec) -> Callable[[Array], bool]:
    """Return a function that tests whether elements [..., *shape] of the codec's dtype have a choice out of range."""
    unsigned = np.dtype(f"u{codec.base.itemsize}")  # choices below the smallest become large
    low, counts = np.array(codec.starts, codec.base).reshape(codec.shape), np.array(codec.sizes, np.uint64)
    highest = np.minimum(counts - 1, np.iinfo(unsigned).max).astype(unsigned).reshape(codec.shape)
    return lambda array: 1 in ((array - low).view(unsigned) > highest).tobytes()  # ten times as fast as any()


def _other_structure(error: Exception) -> SpaceMismatch:
    return SpaceMismatch(f"another structure than the space ({type(error).__name__}: {error})")


def dotted(path: Path) -> str:
    """Return a path in the notation of the configuration: "arm.joints.0"."""
    return ".".join(map(str, path))


def at_path(path: Path) -> str:
    """Return a path for messages, such as " at ['camera'][0]"; "" for the root."""
    return f" at {''.join(f'[{key!r}]' for key in path)}" if path else ""
