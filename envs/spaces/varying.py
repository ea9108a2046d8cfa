"""Codecs of spaces whose elements vary in size within a bound: Text and Sequence."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from paddock.envs.spaces.codecs import (
    Array,
    Codec,
    Index,
    Leaf,
    NumericCodec,
    Path,
    Read,
    SourceBuilder,
    SpaceMismatch,
    Views,
    Write,
    at_path,
)
from paddock.envs.spaces.structures import RecordCodec
from paddock.envs.spaces.views import copied, first, flatten, select

INTEGER = np.dtype(np.int64)


class VaryingCodec(Codec):
    """Codec of a space whose elements differ in size or structure: written, read and batched one by one.

    Attributes:
        record: codec of its components.
    """

    record: RecordCodec

    def leaves(self, offset: int) -> Iterator[Leaf]:
        """See `Codec.leaves`."""
        return self.record.leaves(offset)

    def views(self, array: Array) -> Views:
        """See `Codec.views`."""
        return self.record.views(array)

    def emit(self, source: SourceBuilder, value: str, views: Views) -> None:
        """See `Codec.emit`."""
        source.add(f"{source.bind(self.write(views))}(index, {value})")

    @abc.abstractmethod
    def write(self, views: Views) -> Write:
        """Return a function that writes one element at an index; it raises SpaceMismatch."""

    def batch(self, views: Views) -> Any:
        """See `Codec.batch`."""
        read = self.reader(views)
        return tuple([read(row) for row in range(len(first(views)))])

    def pack(self, views: Views, batch: Any, choices: bool = False) -> None:
        """See `Codec.pack`."""
        write, rows = self.write(views), len(first(views))
        if not isinstance(batch, Sequence | np.ndarray) or len(batch) != rows:
            got = f"{len(batch)}" if isinstance(batch, Sequence | np.ndarray) else f"{type(batch).__name__}"
            raise SpaceMismatch(f"{got}{at_path(self.path)}, expected a sequence of {rows}")
        for row, element in enumerate(batch):
            write(row, element)


@final
class TextCodec(VaryingCodec):
    """Codec of a text of at most `most` characters; shorter texts are padded with zeros."""

    def __init__(self, path: Path, lead: tuple[int, ...], most: int) -> None:
        """Lay out at most `most` characters."""
        self.path, self.most = path, most
        self.dtype = np.dtype((f"U{max(most, 1)}", lead))  # NumPy has no zero-length text dtype

    def leaves(self, offset: int) -> Iterator[Leaf]:
        """See `Codec.leaves`."""
        yield Leaf(self.path, "text", offset, self.dtype.base.str, self.dtype.shape)

    def views(self, array: Array) -> Views:
        """See `Codec.views`."""
        return array

    def write(self, views: Views) -> Write:
        """See `VaryingCodec.write`."""

        def write(index: Index, element: Any) -> None:
            if not isinstance(element, str):
                raise SpaceMismatch(f"{type(element).__name__}{at_path(self.path)}, expected a text")
            if len(element) > self.most:
                raise SpaceMismatch(f"{len(element)} characters{at_path(self.path)}, expected at most {self.most}")
            views[index] = element

        return write

    def reader(self, views: Views) -> Read:
        """See `Codec.reader`."""
        item = views.item
        return lambda index: item(index)


@final
class SequenceCodec(VaryingCodec):
    """Codec of a Sequence of at most `most` items; missing items are zeros."""

    def __init__(self, path: Path, lead: tuple[int, ...], most: int, key: str, item: Codec, stacked: bool) -> None:
        """Lay out a length and at most `most` items, whose codec has the bound at the end of its lead.

        `key` is the configuration key of the bound; `stacked` elements are batches in Gymnasium's form, not tuples.
        """
        self.path, self.most, self.key, self.item, self.stacked = path, most, key, item, stacked
        self.length = NumericCodec((*path, "length"), "length", INTEGER, lead, (), (most,), (0,))
        self.record = RecordCodec(path, {"length": self.length, "items": item}, None)
        self.dtype = self.record.dtype

    def write(self, views: Views) -> Write:
        """See `VaryingCodec.write`."""
        length, items, write_item = views["length"], views["items"], self.item.writer(views["items"])
        arrays = list(flatten(items))

        def write(index: Index, element: Any) -> None:
            count = self.item.count_rows(element) if self.stacked else len(element)
            if count > self.most:
                what = f"{count} items{at_path(self.path)}, expected at most {self.most}; increase {self.key}"
                raise SpaceMismatch(what)
            before = int(length[index])
            at = deeper(index)
            if self.stacked:
                self.item.pack(select(items, (*at, slice(0, count))), element, choices=True)
            else:
                for place_, item in enumerate(element):
                    write_item((*at, place_), item)
            if before > count:
                clear(arrays, (*at, slice(count, before)))
            length[index] = count

        return write

    def reader(self, views: Views) -> Read:
        """See `Codec.reader`."""
        length, items, read_item = views["length"], views["items"], self.item.reader(views["items"])

        def read(index: Index) -> Any:
            at, count = deeper(index), int(length[index])
            if self.stacked:
                return self.item.batch(copied(select(items, (*at, slice(0, count)))))
            return tuple([read_item((*at, k)) for k in range(count)])

        return read


def deeper(index: Index) -> tuple[int, ...]:
    """Return an index as a tuple, to which an item's position can be appended."""
    return index if isinstance(index, tuple) else (index,)


def clear(arrays: Sequence[Array], index: Any) -> None:
    """Zero each array at an index."""
    for array in arrays:
        array[index] = "" if array.dtype.kind == "U" else 0
