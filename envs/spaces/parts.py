"""Each kind of space in a row: its fields, and the writing, reading and batching of elements.

Everything here works on views, never on copies: an array [N, ...] for a leaf, and for a structure a dict or a tuple of
what its parts have. What comes in numbers, such as the items of a sequence, lies leaf by leaf: [N, bound, ...].
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
Index = int | tuple[int, ...]  # a row; within what comes in numbers, a row and the item's place
Path = tuple[str | int, ...]
Kind = Literal["real", "pixels", "bits", "choice", "choices", "text", "length", "tag", "links"]
Write = Callable[[Index, Any], None]
Read = Callable[[Index], Any]


class Misfit(ValueError):
    """An element is not of its space; the text says what it is, where, and what is declared."""


@dataclass(frozen=True)
class Leaf:
    """One array of numbers or text in a row."""

    path: Path  # keys and positions that lead to it
    kind: Kind
    offset: int  # bytes from the start of the row
    dtype: str  # of one number, as NumPy writes it ("<f4")
    shape: tuple[int, ...]  # of its numbers in one row, after the bounds of sequences that it is in
    sizes: tuple[
        int, ...
    ] = ()  # numbers of choices, for each number of the last part of the shape; the bound of a length
    starts: tuple[int, ...] = ()  # the smallest choice of each, beside `sizes`
    greatest: int = 1  # the greatest byte that a Box declares, at least 1: where they are scaled, it becomes 1

    @property
    def count(self) -> int:
        """Number of its numbers in a row."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of its bytes in a row."""
        return np.dtype(self.dtype).itemsize * self.count


class Source:
    """Python source that is being put together, and the objects its names stand for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"ndarray": np.ndarray, "whole": operator.index}

    def bind(self, value: Any) -> str:
        """Return a name that stands for an object."""
        name = f"n{len(self.names)}"
        self.names[name] = value
        return name

    def local(self) -> str:
        """Return a name for a variable of its own."""
        return f"v{len(self.lines)}"

    def add(self, *lines: str) -> None:
        """Add lines; what belongs to one above is indented by four."""
        self.lines += lines


class Part(abc.ABC):
    """A space, or a part of one, in a row.

    Attributes:
        path: where it lies.
        dtype: what it takes of a row, with the places for what comes in numbers.
    """

    path: Path
    dtype: np.dtype[Any]

    @abc.abstractmethod
    def leaves(self, offset: int) -> Iterator[Leaf]:
        """Return its leaves in the order of the row, given where it starts."""

    def views(self, array: Array) -> Views:
        """Return views on its leaves, of an array of its dtype."""
        return array

    @abc.abstractmethod
    def emit(self, source: Source, value: str, views: Views) -> None:
        """Add the lines that write the element which the expression gives at `index`."""

    @abc.abstractmethod
    def reader(self, views: Views) -> Read:
        """Return a function from an index to the element there, apart from the rows."""

    def batch(self, views: Views) -> Any:
        """Return all elements in Gymnasium's batch form: views, or a tuple of elements where they vary in size."""
        return views

    @abc.abstractmethod
    def pack(self, views: Views, batch: Any, choices: bool = False) -> None:
        """Write a batch in Gymnasium's form.

        Args:
            choices: whether choices have to be those of the space, which ignored actions need not be.

        Raises:
            Misfit: it is not of that form.
        """

    def rows_in(self, batch: Any) -> int:
        """Return how many elements a batch in Gymnasium's form has."""
        return len(batch)

    def writer(self, views: Views) -> Write:
        """A function that writes an element at an index: straight assignments, made for this space.

        Raises (the function):
            Misfit: the element is not of the space in structure, shape, kind of number, choice or bound. What is
                written of it by then stays.
        """
        source = Source()
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
class NumbersPart(Part):
    """A Box, MultiBinary or MultiDiscrete: an array."""

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
        self.path, self.kind, self.base, self.shape, self.sizes, self.starts = path, kind, dtype, shape, sizes, starts
        self.dtype, self.greatest = np.dtype((dtype, (*lead, *shape))), greatest
        if kind in ("choice", "choices"):
            self._low = np.array(starts).reshape(shape)
            self._high = self._low + np.array(sizes).reshape(shape) - 1

    def leaves(self, offset: int) -> Iterator[Leaf]:
        more = self.sizes, self.starts, self.greatest
        yield Leaf(self.path, self.kind, offset, self.base.str, self.dtype.shape, *more)

    def emit(self, source: Source, value: str, views: Views) -> None:
        # By its name, as a dtype that was pickled inside another is equal to NumPy's own, but not the same object.
        dtype, fit = source.bind(np.dtype(views.dtype.str)), source.bind(self.fit)
        # A view of each row by itself takes an array in two thirds of the time that an index into all of them does.
        alone = self.shape and views.ndim == 1 + len(self.shape)
        target = f"{source.bind(list(views))}[index][...]" if alone else f"{source.bind(views)}[index]"
        source.add(
            f"x = {value}",
            f"if type(x) is not ndarray or x.dtype is not {dtype} or x.shape != {self.shape}:",
            f"    x = {fit}(x)",
        )
        if self.kind == "choices":
            source.add(f"elif {source.bind(finder(self))}(x):", f"    {fit}(x)")
        source.add(f"{target} = x")

    def fit(self, value: Any, rows: tuple[int, ...] = (), choices: bool = True) -> Array:
        """Return an element, or a batch of so many rows, as the row holds it.

        Raises:
            Misfit: another shape, another kind of number, or whole numbers that the dtype cannot hold, or, where
                `choices` says so, no choices.
        """
        at, shape = place(self.path), (*rows, *self.shape)
        try:
            array = np.asarray(value)
        except ValueError:
            raise Misfit(f"a ragged {type(value).__name__}{at} where shape {shape} is declared") from None
        if array.shape != shape:
            raise Misfit(f"shape {array.shape}{at} where {shape} is declared")
        whole = array.dtype.kind in "iu" and self.base.kind in "iu"
        if not whole and not np.can_cast(array.dtype, self.base, "same_kind"):
            raise Misfit(f"dtype {array.dtype}{at} where {self.base} is declared")
        cast = array.astype(self.base, copy=False)
        if whole and (cast != array).any():
            raise Misfit(f"{array[cast != array].flat[0]}{at} where {self.base} is declared")
        if choices and self.kind in ("choice", "choices"):
            low, high = self._low, self._high
            for k in np.argwhere((cast < low) | (cast > high))[:1].tolist():
                own = tuple(k[len(rows) :])
                got = f"{cast[tuple(k)]}{place((*self.path, *own))}"
                raise Misfit(f"{got} where {low[own]} to {high[own]} is declared")
        return cast

    def reader(self, views: Views) -> Read:
        return lambda index: views[index, ...].copy() if isinstance(index, int) else views[(*index, ...)].copy()

    def pack(self, views: Views, batch: Any, choices: bool = False) -> None:
        views[...] = self.fit(batch, views.shape[: views.ndim - len(self.shape)], choices)


@final
class Choice(Part):
    """A Discrete: one whole number, read as Python's own."""

    def __init__(self, path: Path, dtype: np.dtype[Any], lead: tuple[int, ...], size: int, start: int) -> None:
        self.path, self.size, self.start = path, size, start
        self._numbers = NumbersPart(path, "choice", dtype, lead, (), (size,), (start,))
        self.dtype = self._numbers.dtype

    def leaves(self, offset: int) -> Iterator[Leaf]:
        return self._numbers.leaves(offset)

    def emit(self, source: Source, value: str, views: Views) -> None:
        view, fit = source.bind(views), source.bind(self._numbers.fit)
        source.add(
            f"x = whole({value})",
            f"if not {self.start} <= x < {self.start + self.size}:",
            f"    {fit}(x)",
            f"{view}[index] = x",
        )

    def reader(self, views: Views) -> Read:
        item = views.item
        return lambda index: item(index)

    def pack(self, views: Views, batch: Any, choices: bool = False) -> None:
        self._numbers.pack(views, batch, choices)


def finder(part: NumbersPart, most: int | None = None) -> Callable[[Array], bool]:
    """Return a function that says whether an element has a number that is none of its choices.

    It takes arrays of the part's dtype and shape; where `most` is given, batches [B, *shape] of at most so many.
    """
    shape = part.shape if most is None else (most, *part.shape)
    low, counts = np.array(part.starts, part.base).reshape(part.shape), np.array(part.sizes, np.uint64)
    above, wrong = np.zeros(shape, part.base), np.zeros(shape, np.bool_)
    unsigned = above.view(f"u{part.base.itemsize}")  # in which what lies below the smallest choice is large
    highest = np.minimum(counts - 1, np.iinfo(unsigned.dtype).max).astype(unsigned.dtype).reshape(part.shape)

    def has_other(array: Array) -> bool:
        np.subtract(array, low, above)
        np.greater(unsigned, highest, wrong)
        return 1 in wrong.tobytes()  # a tenth of what any() takes

    def have_other(batch: Array) -> bool:
        count = len(batch)
        np.subtract(batch, low, above[:count])
        return bool(np.greater(unsigned[:count], highest, wrong[:count]).any())

    return has_other if most is None else have_other


def _other_structure(error: Exception) -> Misfit:
    return Misfit(f"another structure than is declared ({type(error).__name__}: {error})")


def dotted(path: Path) -> str:
    """Return a path as it is written in configuration: "arm.joints.0"."""
    return ".".join(map(str, path))


def place(path: Path) -> str:
    """Say where something is: " at ['camera'][0]", and nothing for the whole."""
    return f" at {''.join(f'[{key!r}]' for key in path)}" if path else ""
